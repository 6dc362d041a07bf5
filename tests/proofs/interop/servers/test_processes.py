from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

from proofs.interop.servers import processes
from proofs.interop.servers.processes import Listener, Process

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent():
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        processes.kill(processes.process_tree(process.pid))
        process.stdin.close()
        process.stdout.close()
        process.wait()


def test_a_process_tree_includes_children_in_other_sessions(parent):
    child = int(parent.stdout.readline())
    assert [process.pid for process in processes.process_tree(parent.pid)] == [parent.pid, child]


def test_kill_spares_a_later_process_with_the_same_id(parent):
    parent.stdout.readline()
    first, child = processes.process_tree(parent.pid)
    processes.kill([Process(first.pid, first.started - 1)])  # an earlier process with this id
    assert parent.poll() is None
    ended = os.pidfd_open(child.pid)
    try:
        processes.kill([first, child])
        assert parent.wait() == -9
        assert select.select([ended], [], [], 60)[0] == [ended]
    finally:
        os.close(ended)


def test_listeners_are_found_by_process():
    this = [process for process in processes.process_tree(os.getpid()) if process.pid == os.getpid()]
    before = processes.listeners(this)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert processes.listeners(this) - before == {Listener(ip_address("127.0.0.1"), port)}
    assert processes.listeners(this) == before
    assert processes.listeners([Process(2**22 + 1, 0)]) == set()


@pytest.mark.parametrize(
    ("text", "address", "is_loopback"),
    [
        ("0100007F", "127.0.0.1", True),
        ("00000000", "0.0.0.0", False),  # noqa: S104 - an address as text
        ("0200000A", "10.0.0.2", False),
        ("00000000000000000000000001000000", "::1", True),
        ("00000000000000000000000000000000", "::", False),
        ("0000000000000000FFFF00000100007F", "::ffff:127.0.0.1", True),
        ("0000000000000000FFFF000000000000", "::ffff:0.0.0.0", False),
    ],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="the tables are written in little-endian byte order")
def test_loopback_addresses_are_recognized(text, address, is_loopback):
    [(inode, listener)] = processes._listening(f"head\n  0: {text}:1F90 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n")
    assert (inode, listener) == ("4711", Listener(ip_address(address), 8080))
    assert listener.is_loopback is is_loopback


def test_connected_sockets_are_not_listeners():
    assert list(processes._listening("head\n  0: 0100007F:1F90 0100007F:0050 01 0:0 0:0 0 0 0 4711 1\n")) == []
