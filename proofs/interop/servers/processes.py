"""The processes of a server and the addresses on which they listen, from Linux's /proc.

A server may start its children in new sessions, so they are found by parent process id.
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
    """A process. `started`: its start time, which distinguishes it from a later process with the same id."""

    pid: int
    started: int


class Listener(NamedTuple):
    """An address and a port on which a process listens."""

    address: IPv4Address | IPv6Address
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect to it."""
        address = self.address
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback


def process_tree(pid: int) -> list[Process]:
    """Return a process and all its descendants."""
    found: dict[int, Process] = {}
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            # The name is in parentheses and may contain any character. The other fields follow it.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            found[int(entry.name)] = Process(int(entry.name), int(fields[19]))
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    tree, todo = [], [pid]
    while todo:
        current = todo.pop()
        if current in found:
            tree.append(found[current])
        todo += children.get(current, [])
    return tree


def kill(processes: Iterable[Process]) -> None:
    """Send SIGKILL to the processes that still run."""
    for process in processes:
        if process in process_tree(process.pid):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def listeners(processes: Iterable[Process]) -> set[Listener]:
    """Return the addresses on which these processes accept TCP connections."""
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
    """Yield the inode and address of each listening socket (Linux: Documentation/networking/proc_net_tcp)."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            yield fields[9], Listener(_address(address), int(port, 16))


def _address(text: str) -> IPv4Address | IPv6Address:
    """Parse an address of the table: 32-bit words in this machine's byte order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    raw = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return IPv4Address(raw) if len(words) == 1 else IPv6Address(raw)
