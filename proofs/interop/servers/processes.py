"""The processes of a server and where they listen, as Linux tells it in /proc.

A server may put its children into sessions of their own, so they are found by their parents.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_LISTEN: Final = "0A"
"""The state of a listening socket (Linux: include/net/tcp_states.h)."""


class Process(NamedTuple):
    """A process. `started` tells it from a later one with the same number."""

    pid: int
    started: int


class Listener(NamedTuple):
    """An address and a port that somebody may connect to."""

    address: IPv4Address | IPv6Address
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether it can be reached from this machine alone."""
        address = self.address
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback


def family(pid: int) -> list[Process]:
    """Return a process and all that descend from it."""
    found: dict[int, Process] = {}
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            # The name, in parentheses, may hold anything; the numbers follow it.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            found[int(entry.name)] = Process(int(entry.name), int(fields[19]))
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    ours, todo = [], [pid]
    while todo:
        one = todo.pop()
        if one in found:
            ours.append(found[one])
        todo += children.get(one, [])
    return ours


def kill(processes: Iterable[Process]) -> None:
    """Kill those that are still there (SIGKILL)."""
    for process in processes:
        if process in family(process.pid):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def listeners(processes: Iterable[Process]) -> set[Listener]:
    """Return where these processes accept TCP connections."""
    inodes: set[str] = set()
    for process in processes:
        for descriptor in (_PROC / str(process.pid) / "fd").glob("*"):
            with suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    return {
        listener
        for table in ("tcp", "tcp6")
        for inode, listener in _listening((_PROC / "net" / table).read_text())
        if inode in inodes
    }


def _listening(table: str) -> Iterable[tuple[str, Listener]]:
    """Yield the listening sockets of a table with their inodes (Linux: Documentation/networking/proc_net_tcp)."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            yield fields[9], Listener(_address(address), int(port, 16))


def _address(text: str) -> IPv4Address | IPv6Address:
    """Return the address of a table: words of 32 bits, each in this machine's order of bytes."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    raw = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return IPv4Address(raw) if len(words) == 1 else IPv6Address(raw)
