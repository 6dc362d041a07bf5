"""The sockets on which a service listens, and the addresses of their ends."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from efo.proxy import host_and_port
from efo_service.errors import UnavailableError

_BACKLOG: Final = 1024
"""Connections that wait to be accepted."""


@contextmanager
def listening(host: str, port: int) -> Iterator[Sequence[socket.socket]]:
    """Listen on all addresses of a host, on the same port; "::" has those of IPv4 too. Port 0 takes a free port.

    A name may have an address that this machine has not, such as ::1 in a container without IPv6: the others serve.
    Raises UnavailableError, which names the setting.
    """
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        missing: OSError | None = None
        try:
            for family, address in _resolved(host, port):
                bound = sockets[0].getsockname()[1] if sockets else port
                try:
                    sockets.append(stack.enter_context(_listener(family, address, bound)))
                except OSError as error:
                    if error.errno != errno.EADDRNOTAVAIL:
                        raise
                    missing = error
            if missing is not None and not sockets:
                raise missing
        except (OSError, UnicodeError) as error:  # the latter for what can be no name
            raise UnavailableError(
                f"cannot listen on {host_and_port(host, port)}: {getattr(error, 'strerror', None) or error}: "
                "choose another address in [service] host and port, or EFO_SERVICE__PORT"
            ) from error
        yield sockets


def addresses(sockets: Sequence[socket.socket]) -> list[str]:
    """Return HOST:PORT of these sockets: two of one that serves all addresses of IPv6 and of IPv4."""
    return [address for each in sockets for address in _addresses(each)]


def host_and_port_of(address: tuple[Any, ...]) -> tuple[str, int]:
    """Return host and port of a socket's address. That of a client by IPv4 is as such, not ::ffff:192.0.2.1."""
    host, port = address[:2]
    mapped = IPv6Address(host).ipv4_mapped if ":" in host else None
    return str(mapped or host), int(port)


def _listener(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    is_dual = family == socket.AF_INET6 and ip_address(address).is_unspecified and socket.has_dualstack_ipv6()
    listener = socket.create_server((address, port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual)
    listener.setblocking(False)
    return listener


def _resolved(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    """Return the addresses of a host, each once. A link-local one has its interface: fe80::1%2."""
    found = []
    for family, *_, (name, _port, *more) in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        zone = more[1] if len(more) > 1 else 0
        found.append((family, f"{name!s}%{zone}" if zone else str(name)))
    return list(dict.fromkeys(found))


def _addresses(bound: socket.socket) -> list[str]:
    """Return HOST:PORT of a socket: two if it serves all addresses of IPv6 and of IPv4."""
    host, port = bound.getsockname()[:2]
    is_dual = bound.family == socket.AF_INET6 and not bound.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    both = ["0.0.0.0"] if is_dual and ip_address(host).is_unspecified else []  # noqa: S104 - what it serves
    return [host_and_port(each, port) for each in (host, *both)]
