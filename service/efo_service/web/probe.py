"""An HTTP request to a service on this machine."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from efo.proxy import host_and_port
from efo.third_party_errors import reason_of
from efo_service.errors import UnavailableError
from efo_service.web.tls import client_context

_BODY_SECONDS: Final = 10.0
_BODY_BYTES: Final = 64 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024
_UNAUTHORIZED: Final = frozenset({401, 403, 429})


class ServiceAddress(NamedTuple):
    """Where a service is, and what it asks for. `certificate`: the file of its certificate; None: plain HTTP.

    `seconds`: for which it may be silent.
    """

    host: str
    port: int
    token: str | None = None
    certificate: Path | None = None
    seconds: float = 3.0

    @property
    def url(self) -> str:
        """Its URL, as it is called on this machine: a service that listens on all addresses is called on loopback."""
        return f"{'http' if self.certificate is None else 'https'}://{host_and_port(self._host, self.port)}"

    @property
    def _host(self) -> str:
        try:
            address = ip_address(self.host.strip("[]"))
        except ValueError:  # it is a name
            return self.host
        loopback = "127.0.0.1" if address.version == 4 else "::1"  # noqa: PLR2004 - the versions of IP
        return loopback if address.is_unspecified else str(address)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of the response. Blocks for a few seconds at most. Raises UnavailableError."""
        return self._request("GET", path, None)

    def post(self, path: str, body: bytes) -> tuple[int, str]:
        """Send JSON; return status and body of the response. Blocks as `get` does. Raises UnavailableError."""
        return self._request("POST", path, body)

    def refusal(self, status: int) -> str | None:
        """Return what to do if the service refused a request with this status; None if it did not refuse."""
        if status not in _UNAUTHORIZED:
            return None
        return f"{self.url} refused the request: set EFO_SERVICE__TOKEN to the token of the service"

    def _request(self, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        host = self._host
        headers = {} if self.token is None else {"authorization": f"Bearer {self.token}"}
        if body is not None:
            headers["content-type"] = "application/json"
        connection: HTTPConnection | None = None
        try:
            if self.certificate is None:
                connection = HTTPConnection(host, self.port, timeout=self.seconds)
            else:
                context = client_context(self.certificate)
                connection = HTTPSConnection(host, self.port, timeout=self.seconds, context=context)
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, _read(response).decode(errors="replace")
        except (OSError, HTTPException, _BodyError) as error:
            why = str(error) if isinstance(error, _BodyError) else reason_of(error)
            raise UnavailableError(f"no response from {self.url}{path}: {why}") from None
        finally:
            if connection is not None:
                connection.close()


class _BodyError(Exception):
    """The body of a response is not one of a service of efo."""


def _read(response: HTTPResponse) -> bytes:
    """Return the body. Raises _BodyError: another program listens there, and sends on and on."""
    body, deadline = bytearray(), monotonic() + _BODY_SECONDS
    while piece := response.read1(_PIECE_BYTES):
        body += piece
        if len(body) > _BODY_BYTES or monotonic() > deadline:
            raise _BodyError(f"the response has more than {_BODY_BYTES} bytes, or takes {_BODY_SECONDS:g} s")
    if response.length:
        raise _BodyError("the response is cut off")
    return bytes(body)


def http_get(host: str, port: int, path: str) -> tuple[int, str]:
    """Return status and body of a service without token and TLS, as `ServiceAddress.get` does."""
    return ServiceAddress(host, port).get(path)
