"""`efo healthcheck`: asks a running service how it is; the container's HEALTHCHECK."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from efo_service.commands.options import ConfigFile, Json
from efo_service.config.loading import load
from efo_service.errors import UnavailableError
from efo_service.web.probe import ask


class _Answer(msgspec.Struct):
    """What the service answers, as far as it is looked at."""

    status: Literal["alive", "ready", "not ready"]
    problems: tuple[str, ...] = ()


def healthcheck(
    *,
    config: ConfigFile = None,
    ready: Annotated[bool, Parameter(negative="", help="Ask whether it is ready, not merely alive.")] = False,
    as_json: Json = False,
) -> None:
    """Ask the service on [service] host and port whether it is alive. Exits with 69 if it is not."""
    service = load(config).service
    status, body = ask(service.host, service.port, "/readyz" if ready else "/livez")
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except msgspec.MsgspecError as error:
        raise UnavailableError(
            f"what answers at http://{service.host}:{service.port} is not efo: check [service] host and port"
        ) from error
    sys.stdout.write((body if as_json else answer.status) + "\n")
    if not status < 400:  # noqa: PLR2004 - HTTP's own border
        raise UnavailableError(f"{answer.status}: {'; '.join(answer.problems)}")
