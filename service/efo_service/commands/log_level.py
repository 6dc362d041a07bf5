"""`efo log-level`: changes the level of a running service's log."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from efo_service.commands.options import ConfigFile
from efo_service.commands.output import write_line
from efo_service.config.loading import load_all
from efo_service.errors import UnavailableError
from efo_service.telemetry.logs import LevelName


def log_level(
    level: Annotated[LevelName, Parameter(help="debug, info, warning or error.")], *, config: ConfigFile = None
) -> None:
    """Change the level of the log of the service on [service] host and port, until it is started again."""
    address = load_all(config).service.address
    status, body = address.post("/log-level", msgspec.json.encode({"level": level}))
    if status != 200:  # noqa: PLR2004 - HTTP status
        raise UnavailableError(address.refusal(status) or f"{address.url} did not change its level: {body[:200]}")
    write_line(f"{address.url} logs from {level} on, until it is started again or its configuration says otherwise")
