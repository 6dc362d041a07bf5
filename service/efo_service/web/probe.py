"""An HTTP GET to a service on this machine."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException
from typing import Final

from efo_service.errors import UnavailableError

_TIMEOUT_SECONDS: Final = 3.0
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - addresses that servers listen on


def http_get(host: str, port: int, path: str) -> tuple[int, str]:
    """Return status and body of the response. Blocks for a few seconds at most. Raises UnavailableError."""
    host = _LOOPBACK.get(host, host)
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    except (OSError, HTTPException) as error:
        raise UnavailableError(f"no response from http://{host}:{port}{path}: {error}") from error
    finally:
        connection.close()
