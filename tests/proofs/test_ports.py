"""Free ports for servers that must be told theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofs.ports import free_port, free_ports
from tests.loopback import refused_port

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_in_a_row_are_free():
    first, second, third = free_ports(3)
    assert (second, third) == (first + 1, first + 2)


def test_no_port_is_returned_twice():
    assert len({free_port() for _ in range(50)}) == 50


def test_a_port_that_is_bound_is_passed_over(monkeypatch):
    with refused_port() as taken:
        monkeypatch.setattr("proofs.ports._PORTS", iter([taken, free := free_port()]))
        assert free_port() == free


@pytest.mark.skipif(not OUTGOING.exists(), reason="not Linux")
def test_no_connection_to_elsewhere_takes_the_port_first():
    assert free_port() < int(OUTGOING.read_text().split()[0])
