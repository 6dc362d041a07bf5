"""Asks a service on this machine how it is."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException
from typing import Final

from efo_service.errors import UnavailableError

_SECONDS: Final = 3.0
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a service that listens everywhere is asked


def ask(host: str, port: int, path: str) -> tuple[int, str]:
    """Return status and body of a GET, blocking for seconds at most. Raises UnavailableError."""
    host = _ANY.get(host, host)
    connection = HTTPConnection(host, port, timeout=_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    except (OSError, HTTPException) as error:
        raise UnavailableError(f"no answer from http://{host}:{port}{path}: {error}") from error
    finally:
        connection.close()
