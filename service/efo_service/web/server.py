"""Serves an ASGI app on a port, on trio: HTTP/1.1 alone, with limits for connections and for slow clients.

Whatever clients do, a turn of the loop stays short and a probe gets its answer: see `efo_service.web.http`.
"""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

import structlog
import trio
from starlette.types import ASGIApp

from efo.proxy import host_and_port
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
    """Serve on all addresses of a host until cancelled; "::" has those of IPv4 too. Port 0 takes a free port.

    `task_status` gets the URL of the first address; if there are more, the log has all of them.

    Raises UnavailableError if the address cannot be bound, ConfigurationError if the TLS files do not fit.
    """
    context = None if tls is None else RenewedContext(tls)
    scheme = "http" if tls is None else "https"
    places, turns = Places(MAX_CONNECTIONS), trio.Semaphore(TURNS)

    async def handle(stream: trio.SocketStream) -> None:
        client, server = _peer(stream), _plain(stream.socket.getsockname())
        address = None if client is None else client[0]
        with trio.CancelScope() as scope:
            place = Place(address, scope.cancel)
            places.take(place)
            try:
                await serve_stream(InTurn(stream, turns), {"client": client, "server": server}, place)
            except Exception as error:  # noqa: BLE001 - one request must not end the service, whatever is raised
                # Without the message: it may quote what the client sent.
                structlog.get_logger().warning("connection_failed", address=address, error_type=type(error).__name__)
            finally:
                places.leave(place)
                await trio.aclose_forcefully(stream)

    async def serve_stream(stream: trio.abc.Stream, ends: dict[str, tuple[str, int] | None], place: Place) -> None:
        if context is not None:
            stream = trio.SSLStream(stream, context.current(), server_side=True, https_compatible=True)
            try:
                with trio.fail_after(_HANDSHAKE_SECONDS):
                    await stream.do_handshake()
            except (trio.BrokenResourceError, trio.TooSlowError):
                return  # the client does not speak TLS, is too slow, or showed a certificate of another authority
        base = {"scheme": scheme, **ends, CERTIFICATE: has_certificate(stream)}
        await serve_connection(app, stream, base, place, turns)

    sockets = _listen(host, port)
    urls = [f"{scheme}://{address}" for each in sockets for address in _addresses(each)]
    with ExitStack() as stack:
        for each in sockets:
            stack.enter_context(each)
        if len(urls) > 1:
            structlog.get_logger().info("listening", urls=urls)
        async with trio.open_nursery() as connections:

            async def accept(listener: socket.socket) -> None:
                async for stream in accepted(listener, len(sockets)):
                    connections.start_soon(handle, stream)

            for each in sockets:
                connections.start_soon(accept, each)
            task_status.started(urls[0])


def _peer(stream: trio.SocketStream) -> tuple[str, int] | None:
    """Return the address and the port of the client; None if it is gone already."""
    try:
        return _plain(stream.socket.getpeername())
    except OSError:
        return None


def _plain(address: tuple[Any, ...]) -> tuple[str, int]:
    """Return host and port. An IPv4 address is as such, not as a socket for IPv6 has it: ::ffff:192.0.2.1."""
    host, port = address[:2]
    mapped = IPv6Address(host).ipv4_mapped if ":" in host else None
    return str(mapped or host), int(port)


def _listen(host: str, port: int) -> list[socket.socket]:
    """Bind the sockets here instead of in trio, so that the error can name the setting.

    A name may have an address that this machine has not, such as ::1 in a container without IPv6: the others serve.
    """
    sockets: list[socket.socket] = []
    failure: OSError | UnicodeError | None = None
    try:
        addresses = _resolved(host, port)
    except (OSError, UnicodeError) as error:  # the latter for what can be no name
        addresses, failure = [], error
    for family, address in addresses:
        try:
            bound = sockets[0].getsockname()[1] if sockets else port
            dual = family == socket.AF_INET6 and ip_address(address).is_unspecified and socket.has_dualstack_ipv6()
            server = socket.create_server((address, bound), family=family, backlog=_BACKLOG, dualstack_ipv6=dual)
            sockets.append(server)
        except OSError as error:
            failure = error
            if error.errno != errno.EADDRNOTAVAIL:
                break
    if not sockets or (failure is not None and getattr(failure, "errno", None) != errno.EADDRNOTAVAIL):
        for each in sockets:
            each.close()
        raise UnavailableError(
            f"cannot listen on {host_and_port(host, port)}: {getattr(failure, 'strerror', None) or failure}: "
            "choose another address in [service] host and port, or EFO_SERVICE__PORT"
        ) from failure
    for each in sockets:
        each.setblocking(False)
    return sockets


def _resolved(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    """Return the addresses of a host, each once. A link-local one keeps its interface: fe80::1%2."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(
        dict.fromkeys(
            (family, str(name) + "".join(f"%{zone}" for zone in more[2:] if zone))
            for family, *_, (name, *more) in found
        )
    )


def _addresses(bound: socket.socket) -> list[str]:
    """Return HOST:PORT of a socket: two if it serves all addresses of IPv6 and of IPv4."""
    host, port = bound.getsockname()[:2]
    is_dual = bound.family == socket.AF_INET6 and not bound.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    both = ["0.0.0.0"] if is_dual and ip_address(host).is_unspecified else []  # noqa: S104 - what it serves
    return [host_and_port(each, port) for each in (host, *both)]
