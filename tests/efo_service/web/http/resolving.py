"""Names for what listens, whose addresses a test says."""

import socket

import pytest


def _has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")


def resolving(monkeypatch, *addresses):
    """Let each name have these addresses, which the resolver returns twice. One of IPv6 may have a zone."""
    found = []
    for address in addresses:
        name, _, zone = address.partition("%")
        of_ipv6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (name, 0, 0, int(zone or 0)))
        found.append(of_ipv6 if ":" in name else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, 0)))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: [*found, *found])
