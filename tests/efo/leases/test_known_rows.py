"""A lease scan decodes only the rows that have changed, and an unchanged row keeps its Lease object."""

from __future__ import annotations

from dataclasses import replace

import pytest

from efo.leases.known_rows import RENEWALS, KnownRows, Namesakes
from efo.model import Checkpoint, Lease


class Decoder:
    def __init__(self):
        self.calls = []

    def __call__(self, key, version):
        self.calls.append((key, version))
        return Lease(key, Checkpoint("5"), counter=version)


@pytest.fixture
def decode():
    return Decoder()


def test_only_changed_rows_are_decoded(decode):
    rows = KnownRows()
    first = {lease.key: lease for lease in rows.replace({"a": 1, "b": 1}, decode)}
    assert rows.changed({"a": 1, "b": 2, "c": 1}) == ["b", "c"]
    second = {lease.key: lease for lease in rows.replace({"a": 1, "b": 2, "c": 1}, decode)}
    assert decode.calls == [("a", 1), ("b", 1), ("b", 2), ("c", 1)]
    assert second["a"] is first["a"]
    assert {key: lease.counter for key, lease in second.items()} == {"a": 1, "b": 2, "c": 1}


def test_a_row_that_is_gone_is_forgotten(decode):
    rows = KnownRows()
    rows.replace({"a": 1, "b": 1}, decode)
    assert [lease.key for lease in rows.replace({"b": 1}, decode)] == ["b"]
    rows.deleted("b")
    rows.deleted("b")
    assert rows.leases() == []


def test_a_row_that_this_store_has_written_is_known_until_the_table_is_read_again(decode):
    rows = KnownRows()
    rows.replace({"a": 1}, decode)
    written = Lease("a", Checkpoint("6"), counter=2)
    rows.written(written)
    assert rows.leases() == [written]
    assert rows.changed({"a": 2}) == ["a"]
    assert rows.replace({"a": 2}, decode) == [Lease("a", Checkpoint("5"), counter=2)]


def test_a_row_that_cannot_be_decoded_changes_nothing(decode):
    rows = KnownRows()
    rows.replace({"a": 1}, decode)

    def fail(key, version):
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        rows.replace({"a": 2}, fail)
    assert [lease.counter for lease in rows.leases()] == [1]


ROW = Lease("shardId-000000000000", Checkpoint.TRIM_HORIZON, owner="worker", counter=7)


def renewed(by):
    return replace(ROW, counter=ROW.counter + by)


def test_two_renewals_of_a_lease_that_is_not_held_are_another_workers():
    namesakes = Namesakes()
    assert [namesakes.renews(renewed(by)) for by in range(RENEWALS + 2)] == [False, False, True, True]


def test_one_renewal_may_be_a_write_of_ours():
    namesakes = Namesakes()
    assert [namesakes.renews(row) for row in (ROW, renewed(1), renewed(1), renewed(1))] == [False] * 4


def test_a_lease_that_is_taken_is_forgotten():
    namesakes = Namesakes()
    namesakes.renews(ROW)
    namesakes.renews(renewed(1))
    namesakes.forget(ROW.key)
    assert not namesakes.renews(renewed(2))
