"""Serves an ASGI app on a port, on trio: HTTP/1.1 alone, with limits for connections and for slow clients.

Whatever clients do, a turn of the loop stays short and a probe gets its answer: see `efo_service.web.http`.
"""

from __future__ import annotations

import socket
from math import inf
from typing import Final

import structlog
import trio
from starlette.types import ASGIApp

from efo_service.web.http.accepting import (
    MAX_CONNECTIONS,
    TURNS,
    ConnectionSlot,
    InTurn,
    Places,
    accepted,
    has_certificate,
)
from efo_service.web.http.connection import serve_connection
from efo_service.web.http.listening import addresses, host_and_port_of, listening
from efo_service.web.process_problems import ProcessProblems
from efo_service.web.renewal import RenewedContext
from efo_service.web.security.guard import CERTIFICATE
from efo_service.web.tls import TlsFiles

_HANDSHAKE_SECONDS: Final = 5.0
_CLOSED_EVERY: Final = 60.0


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    tls: TlsFiles | None = None,
    problems: ProcessProblems | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on all addresses of a host until cancelled; "::" has those of IPv4 too. Port 0 takes a free port.

    `problems`: gets what is wrong with the certificate, or with accepting connections. `task_status` gets the URL of
    the first address; if there are more, the log has all of them.

    Raises UnavailableError if the address cannot be bound, ConfigurationError if the TLS files do not fit.
    """
    context = None if tls is None else RenewedContext(tls, problems)
    scheme = "http" if tls is None else "https"
    places, turns, closed = Places(MAX_CONNECTIONS), trio.Semaphore(TURNS), _Closed()

    async def handle(stream: trio.SocketStream) -> None:
        client, server = _ends(stream)
        address = None if client is None else client[0]
        with trio.CancelScope() as scope:
            place = ConnectionSlot(address, scope.cancel)
            closed.count(places.take(place), trio.current_time())
            try:
                await serve_stream(InTurn(stream, turns), {"client": client, "server": server}, place)
            except Exception as error:  # noqa: BLE001 - one request must not end the service, whatever is raised
                # Without the message: it may quote what the client sent.
                structlog.get_logger().warning("connection_failed", address=address, error_type=type(error).__name__)
            finally:
                places.leave(place)
                await trio.aclose_forcefully(stream)

    async def serve_stream(
        stream: trio.abc.Stream, ends: dict[str, tuple[str, int] | None], place: ConnectionSlot
    ) -> None:
        if context is not None:
            stream = trio.SSLStream(stream, context.current(), server_side=True, https_compatible=True)
            try:
                with trio.fail_after(_HANDSHAKE_SECONDS):
                    await stream.do_handshake()
            except (trio.BrokenResourceError, trio.TooSlowError):
                return  # the client does not speak TLS, is too slow, or showed a certificate of another authority
        base = {"scheme": scheme, **ends, CERTIFICATE: has_certificate(stream)}
        await serve_connection(app, stream, base, place, turns)

    with listening(host, port) as sockets:
        urls = [f"{scheme}://{address}" for address in addresses(sockets)]
        if len(urls) > 1:
            structlog.get_logger().info("listening", urls=urls)
        async with trio.open_nursery() as connections:

            async def accept(listener: socket.socket) -> None:
                async for stream in accepted(listener, len(sockets), problems):
                    connections.start_soon(handle, stream)

            for each in sockets:
                connections.start_soon(accept, each)
            task_status.started(urls[0])


class _Closed:
    """Logs that connections are closed to make room for others: the first at once, later ones once a minute."""

    def __init__(self) -> None:
        self._closed = 0  # since the last line
        self._logged_at = -inf

    def count(self, closed: int, now: float) -> None:
        """Count connections that were closed."""
        self._closed += closed
        if closed and now - self._logged_at >= _CLOSED_EVERY:
            structlog.get_logger().warning("connections_closed", count=self._closed, limit=MAX_CONNECTIONS)
            self._closed, self._logged_at = 0, now


def _ends(stream: trio.SocketStream) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
    """Return the client's address and port, and those of this side; None for both if the client is gone already."""
    try:
        return host_and_port_of(stream.socket.getpeername()), host_and_port_of(stream.socket.getsockname())
    except OSError:
        return None, None
