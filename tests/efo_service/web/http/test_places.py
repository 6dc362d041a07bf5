from __future__ import annotations

from efo_service.web.http.places import ConnectionSlot, Places


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
