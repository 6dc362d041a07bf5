from __future__ import annotations

import socket

import pytest

from efo_service.errors import UnavailableError
from efo_service.web.http import listening as module
from efo_service.web.http.listening import addresses, host_and_port_of, listening
from proofs.ports import free_port
from tests.efo_service.web.http.resolving import resolving


def test_an_address_that_the_machine_has_not_is_left_out(monkeypatch):
    resolving(monkeypatch, "192.0.2.1", "127.0.0.1")  # the first is of no machine (RFC 5737)
    with listening("host.test", 0) as sockets:
        assert [address.rpartition(":")[0] for address in addresses(sockets)] == ["127.0.0.1"]


def test_a_host_without_an_address_of_this_machine_is_unavailable(monkeypatch):
    resolving(monkeypatch, "192.0.2.1")
    with (
        pytest.raises(UnavailableError, match=r"cannot listen on host.test:0: Cannot assign requested address"),
        listening("host.test", 0),
    ):
        pass


def test_an_address_of_ipv6_has_brackets_in_the_error():
    with (
        pytest.raises(UnavailableError, match=r"cannot listen on \[2001:db8::1\]:8080: (Cannot assign|Address family)"),
        listening("2001:db8::1", 8080),
    ):
        pass


def test_a_port_that_another_program_has_on_one_of_the_addresses_is_refused_and_the_others_are_free(monkeypatch):
    port = free_port()
    with socket.create_server(("127.0.0.2", port)):
        resolving(monkeypatch, "127.0.0.1", "127.0.0.2")
        with pytest.raises(UnavailableError, match="Address already in use"), listening("host.test", port):
            pass
        monkeypatch.undo()
        socket.create_server(("127.0.0.1", port)).close()


def test_a_link_local_address_keeps_its_interface(monkeypatch):
    asked = []

    def create(address, **_options):
        asked.append(address)
        raise OSError(13, "Permission denied")

    resolving(monkeypatch, "fe80::1%2")
    monkeypatch.setattr(module.socket, "create_server", create)
    with pytest.raises(UnavailableError, match="Permission denied"), listening("host.test", 8080):
        pass
    assert asked == [("fe80::1%2", 8080)]


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        (("127.0.0.1", 1), ("127.0.0.1", 1)),
        (("::ffff:192.0.2.1", 1, 0, 0), ("192.0.2.1", 1)),
        (("2001:db8::1", 1, 0, 0), ("2001:db8::1", 1)),
        (("fe80::1%eth0", 1, 0, 2), ("fe80::1%eth0", 1)),
    ],
)
def test_an_address_of_ipv4_is_as_such(address, plain):
    assert host_and_port_of(address) == plain
