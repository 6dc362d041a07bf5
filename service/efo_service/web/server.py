"""Serves an ASGI app on a port, on trio, with limits for the number of connections and for slow clients.

hypercorn speaks HTTP. The connections are accepted here: a client that does not read what it is sent would otherwise
hold a shielded send for ever, and with it the drain. Whatever hypercorn raises ends one connection: in an upgrade to
HTTP/2, it does not catch settings that are no base64.
"""

from __future__ import annotations

import logging
import socket
from functools import partial
from typing import Final, cast

import structlog
import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp

from efo.exception_groups import collapse_groups
from efo_service.errors import UnavailableError
from efo_service.web.bounded_stream import SEND_SECONDS, BoundedStream, with_certificate
from efo_service.web.renewal import RenewedContext
from efo_service.web.tls import TlsFiles

MAX_CONNECTIONS: Final = 256
"""Connections beyond these are closed at once. Scrapers, probes and viewers need a few dozen."""
_HEADER_BYTES: Final = 16 * 1024
_IDLE_SECONDS: Final = 5.0
"""Until the head of a request has arrived, and between two requests of a connection."""
_HANDSHAKE_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 0.5


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
    config = _config()
    worker = WorkerContext(None)
    limiter = trio.CapacityLimiter(MAX_CONNECTIONS)

    async def handle(stream: trio.SocketStream) -> None:
        try:
            limiter.acquire_nowait()
        except trio.WouldBlock:
            await trio.aclose_forcefully(stream)
            return
        address = _peer(stream)
        try:
            with collapse_groups():
                await _serve_connection(stream)
        except Exception as error:  # noqa: BLE001 - one request must not end the service, whatever the library raises
            # Without the message: it may quote what the client sent.
            structlog.get_logger().warning("connection_failed", address=address, error_type=type(error).__name__)
        finally:
            limiter.release()

    async def _serve_connection(stream: trio.SocketStream) -> None:
        connection: trio.abc.Stream = BoundedStream(stream, SEND_SECONDS)
        if context is not None:
            connection = trio.SSLStream(connection, context.current(), server_side=True, https_compatible=True)
        framework = cast("ASGIFramework", with_certificate(app, connection))  # the same, by other names of its types
        wrapped = wrap_app(framework, config.wsgi_max_body_size, "asgi")
        # Typed for its own streams; it uses these attributes of them.
        await TCPServer(wrapped, config, worker, ConnectionState({}), connection).run()  # type: ignore[arg-type]

    listener = trio.SocketListener(trio.socket.from_stdlib_socket(_listen(host, port)))
    name, bound = listener.socket.getsockname()[:2]
    authority = f"[{name}]:{bound}" if ":" in name else f"{name}:{bound}"
    try:
        async with trio.open_nursery() as connections:
            try:
                async with trio.open_nursery() as accepting:
                    await accepting.start(
                        partial(trio.serve_listeners, handle, [listener], handler_nursery=connections)
                    )
                    task_status.started(f"{'http' if tls is None else 'https'}://{authority}")
                    await trio.sleep_forever()
            finally:
                await worker.terminated.set()  # idle connections close
                connections.cancel_scope.deadline = trio.current_time() + _GRACE_SECONDS
    finally:
        with trio.CancelScope(shield=True):
            await listener.aclose()


def _config() -> Config:
    config = Config()
    config.errorlog = logging.getLogger("hypercorn.error")
    config.h11_max_incomplete_size = _HEADER_BYTES
    config.h2_max_header_list_size = _HEADER_BYTES
    config.keep_alive_timeout = _IDLE_SECONDS
    config.ssl_handshake_timeout = _HANDSHAKE_SECONDS
    config.include_server_header = False
    return config


def _peer(stream: trio.SocketStream) -> str | None:
    """Return the address of the client; None if it is gone already."""
    try:
        return str(stream.socket.getpeername()[0])
    except OSError:
        return None


def _listen(host: str, port: int) -> socket.socket:
    """Bind the socket here instead of in trio, so that the error can name the setting."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host}:{port}: {error.strerror or error}: "
            "choose another address in [service] host and port, or EFO_SERVICE__PORT"
        ) from error
    listener.setblocking(False)
    return listener
