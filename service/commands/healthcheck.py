"""`efo healthcheck`: asks a running service how it is; the container's HEALTHCHECK."""

from __future__ import annotations

import json
import sys
from http.client import HTTPConnection, HTTPException
from typing import Annotated, Final

from cyclopts import Parameter

from service.commands.options import ConfigFile, Json
from service.config_file import load
from service.errors import UnavailableError

_SECONDS: Final = 3.0
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a service that listens everywhere is asked


def healthcheck(
    *,
    config: ConfigFile = None,
    ready: Annotated[bool, Parameter(negative="", help="Ask whether it is ready, not merely alive.")] = False,
    as_json: Json = False,
) -> None:
    """Ask the service on [service] host and port whether it is alive. Exits with 69 if it is not."""
    service = load(config).service
    host = _ANY.get(service.host, service.host)
    path = "/readyz" if ready else "/livez"
    connection = HTTPConnection(host, service.port, timeout=_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode()
    except (OSError, HTTPException) as error:
        raise UnavailableError(f"no answer from http://{host}:{service.port}{path}: {error}") from error
    finally:
        connection.close()
    answer = json.loads(body)
    sys.stdout.write((body if as_json else answer["status"]) + "\n")
    if not response.status < 400:  # noqa: PLR2004 - HTTP's own border
        raise UnavailableError(f"{answer['status']}: {'; '.join(answer['problems'])}")
