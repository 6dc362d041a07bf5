"""Free ports of this machine, for servers that must be told theirs."""

from __future__ import annotations

import itertools
import socket
from random import SystemRandom
from typing import Final

_PORTS: Final = itertools.count(SystemRandom().randrange(20_000, 30_000))


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now, and was not returned before."""
    [port] = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """Return so many ports in a row that are free now, and were not returned before.

    In a row, as a supervisor gives its workers the ports after its own. Below the ports of the system's outgoing
    connections, which could take one before its server does.
    """
    while True:
        ports = [next(_PORTS) for _ in range(count)]
        if all(map(_is_free, ports)):
            return ports


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
