"""`efo healthcheck`: asks a running service how it is; the container's HEALTHCHECK."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from cyclopts import Parameter

from service.commands.options import ConfigFile, Json
from service.config_file import load
from service.errors import UnavailableError
from service.probe import ask


def healthcheck(
    *,
    config: ConfigFile = None,
    ready: Annotated[bool, Parameter(negative="", help="Ask whether it is ready, not merely alive.")] = False,
    as_json: Json = False,
) -> None:
    """Ask the service on [service] host and port whether it is alive. Exits with 69 if it is not."""
    service = load(config).service
    status, body = ask(service.host, service.port, "/readyz" if ready else "/livez")
    answer = json.loads(body)
    sys.stdout.write((body if as_json else answer["status"]) + "\n")
    if not status < 400:  # noqa: PLR2004 - HTTP's own border
        raise UnavailableError(f"{answer['status']}: {'; '.join(answer['problems'])}")
