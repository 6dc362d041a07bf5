"""None"""

from __future__ import annotations

import errno
import socket
import struct
from contextlib import aclosing

import structlog
import trio

from efo_service.web.http.accepting import ConnectionSlot, Places, accepted
from efo_service.web.process_problems import ProcessProblems


class Listener(socket.socket):
    """A listener whose first calls of accept raise."""

    def __init__(self, *errors: int) -> None:
        super().__init__()
        self._errors = list(errors)
        self.bind(("127.0.0.1", 0))
        self.listen()
        self.setblocking(False)

    def accept(self):
        if self._errors:
            number = self._errors.pop(0)
            raise OSError(number, errno.errorcode[number])
        return super().accept()


def leave(listener: socket.socket) -> None:
    """Connect, and reset the connection at once."""
    client = socket.create_connection(listener.getsockname())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


async def test_connections_whose_clients_have_left_are_passed_over():
    with Listener() as listener, trio.fail_after(30):
        for _ in range(100):
            leave(listener)
        socket.create_connection(listener.getsockname()).close()
        with socket.create_connection(listener.getsockname()) as client:
            async with aclosing(accepted(listener)) as streams:
                stream = await anext(streams)
                client.sendall(b"probe")
                assert await stream.receive_some(5) == b"probe"
                await stream.aclose()


async def test_without_free_descriptors_it_waits_and_goes_on(monkeypatch):
    monkeypatch.setattr("efo_service.web.http.accepting._EXHAUSTED_SECONDS", 0.01)
    problems = ProcessProblems()
    with (
        trio.fail_after(30),
        structlog.testing.capture_logs() as lines,
        Listener(errno.EMFILE, errno.EMFILE, errno.ECONNABORTED) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        async with aclosing(accepted(listener, problems=problems)) as streams:
            await (await anext(streams)).aclose()
    assert [(line["event"], line["log_level"]) for line in lines] == [("accept_failed", "warning")]
    [error] = problems.last_errors()
    assert (error.system, error.count, error.is_over, problems.texts()) == ("web", 2, True, ())


class Client:
    """Connections of clients, and which of them were closed."""

    def __init__(self, count: int) -> None:
        self.places = Places(count)
        self.closed: list[str] = []

    def connect(self, name: str, address: str, *, is_idle: bool = True) -> ConnectionSlot:
        place = ConnectionSlot(address, lambda: self.closed.append(name))
        place.is_idle = is_idle
        self.places.take(place)
        return place


def test_there_is_always_room_the_oldest_idle_connection_of_the_busiest_client_gives_way():
    clients = Client(4)
    clients.connect("viewer", "10.0.0.1")
    clients.connect("busy", "10.0.0.6", is_idle=False)
    clients.connect("first", "10.0.0.6")
    clients.connect("second", "10.0.0.6")
    clients.connect("probe", "10.0.0.9")
    assert clients.closed == ["first"]
    clients.connect("third", "10.0.0.6")
    assert clients.closed == ["first", "second"]
    assert len(clients.places) == 4


def test_without_an_idle_one_its_oldest_connection_gives_way():
    clients = Client(3)
    for number in range(2):
        clients.connect(f"slow {number}", "10.0.0.6", is_idle=False)
    clients.connect("other", "10.0.0.7")
    clients.connect("probe", "10.0.0.9")
    assert clients.closed == ["slow 0"]


def test_a_probe_stays_also_if_it_shares_its_address_with_whoever_fills_the_port():
    clients = Client(8)
    for number in range(8):
        clients.connect(f"idle {number}", "127.0.0.1")
    clients.connect("probe", "127.0.0.1")
    for number in range(7):
        clients.connect(f"next {number}", "127.0.0.1")
    assert clients.closed == [f"idle {number}" for number in range(8)]


def test_all_addresses_of_one_ipv6_network_are_one_client():
    clients = Client(2)
    clients.connect("a", "2001:db8::1")
    clients.connect("b", "2001:db8::2")
    clients.connect("c", "2001:db8:1::1")
    assert clients.closed == ["a"]


def test_a_closed_connection_leaves_once():
    clients = Client(1)
    first = clients.connect("first", "10.0.0.1")
    clients.connect("second", "10.0.0.1")
    clients.places.leave(first)
    assert len(clients.places) == 1
