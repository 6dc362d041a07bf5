"""`efo healthcheck`: requests the health of a running service, for the container's HEALTHCHECK."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from efo_service.commands.options import ConfigFile, Json
from efo_service.config.loading import load_all
from efo_service.errors import UnavailableError


class _Response(msgspec.Struct):
    """The fields of the service's response that are used."""

    status: Literal["alive", "ready", "not ready"]
    problems: tuple[str, ...] = ()


def healthcheck(
    *,
    config: ConfigFile = None,
    ready: Annotated[bool, Parameter(negative="", help="Ask whether it is ready, not only alive.")] = False,
    as_json: Json = False,
) -> None:
    """Ask the service on [service] host and port whether it is alive. Exits with 69 if it is not."""
    service = load_all(config).service
    status, body = service.address.get("/readyz" if ready else "/livez")
    try:
        response = msgspec.json.decode(body, type=_Response)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnavailableError(
            f"the program at {service.address.url} is not efo: check [service] host and port"
        ) from error
    sys.stdout.write((body if as_json else response.status) + "\n")
    if not status < 400:  # noqa: PLR2004 - HTTP statuses from 400 on are errors
        raise UnavailableError(f"{response.status}: {'; '.join(response.problems)}")
