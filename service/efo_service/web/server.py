"""Serves an ASGI app on a port, on trio: HTTP/1.1 alone, with limits for connections and for slow clients.

Whatever clients do, a turn of the loop stays short and a probe gets its answer: see `efo_service.web.http`.
"""

from __future__ import annotations

import socket
from typing import Final

import structlog
import trio
from starlette.types import ASGIApp

from efo_service.errors import UnavailableError
from efo_service.web.http.accepting import accepted
from efo_service.web.http.connection import serve_connection
from efo_service.web.http.places import MAX_CONNECTIONS, Place, Places
from efo_service.web.http.turns import TURNS, InTurn, has_certificate
from efo_service.web.renewal import RenewedContext
from efo_service.web.security.guard import CERTIFICATE
from efo_service.web.tls import TlsFiles

_HANDSHAKE_SECONDS: Final = 5.0
_BACKLOG: Final = 1024
"""Connections that wait to be accepted."""


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    tls: TlsFiles | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled. `task_status` gets the URL. Port 0 takes a free port.

    Raises UnavailableError if the address cannot be bound, ConfigurationError if the TLS files do not fit.
    """
    context = None if tls is None else RenewedContext(tls)
    scheme = "http" if tls is None else "https"
    places, turns = Places(MAX_CONNECTIONS), trio.Semaphore(TURNS)

    async def handle(stream: trio.SocketStream) -> None:
        client = _peer(stream)
        address = None if client is None else client[0]
        with trio.CancelScope() as scope:
            place = Place(address, scope.cancel)
            places.take(place)
            try:
                await serve_stream(InTurn(stream, turns), client, place)
            except Exception as error:  # noqa: BLE001 - one request must not end the service, whatever is raised
                # Without the message: it may quote what the client sent.
                structlog.get_logger().warning("connection_failed", address=address, error_type=type(error).__name__)
            finally:
                places.leave(place)
                await trio.aclose_forcefully(stream)

    async def serve_stream(stream: trio.abc.Stream, client: tuple[str, int] | None, place: Place) -> None:
        if context is not None:
            stream = trio.SSLStream(stream, context.current(), server_side=True, https_compatible=True)
            try:
                with trio.fail_after(_HANDSHAKE_SECONDS):
                    await stream.do_handshake()
            except (trio.BrokenResourceError, trio.TooSlowError):
                return  # the client does not speak TLS, is too slow, or showed a certificate of another authority
        base = {"scheme": scheme, "client": client, "server": (name, bound), CERTIFICATE: has_certificate(stream)}
        await serve_connection(app, stream, base, place, turns)

    listener = _listen(host, port)
    name, bound = listener.getsockname()[:2]
    authority = f"[{name}]:{bound}" if ":" in name else f"{name}:{bound}"
    with listener:
        async with trio.open_nursery() as connections:
            task_status.started(f"{scheme}://{authority}")
            async for stream in accepted(listener):
                connections.start_soon(handle, stream)


def _peer(stream: trio.SocketStream) -> tuple[str, int] | None:
    """Return the address and the port of the client; None if it is gone already."""
    try:
        host, port = stream.socket.getpeername()[:2]
    except OSError:
        return None
    return str(host), int(port)


def _listen(host: str, port: int) -> socket.socket:
    """Bind the socket here instead of in trio, so that the error can name the setting."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host}:{port}: {error.strerror or error}: "
            "choose another address in [service] host and port, or EFO_SERVICE__PORT"
        ) from error
    listener.setblocking(False)
    return listener
