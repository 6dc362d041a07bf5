"""The document of leases: what is stored, and what is refused."""

from __future__ import annotations

import json

import pytest

from efo.errors import ConfigurationError, LeaseStoreCorruptError
from efo.model import Checkpoint, Lease
from efo_service.object_leases.document import (
    FORMAT_VERSION,
    KEPT_WRITES,
    LeaseDocument,
    decode_document,
    decode_lease,
    encode_document,
    encode_lease,
    key_of,
    plan,
)

LEASE = Lease("shardId-000000000001", Checkpoint("7", 2), owner="ann", counter=3)


def decode(content: bytes) -> LeaseDocument:
    return decode_document(content, "billing", "orders", "s3://logs/efo/leases.json")


def stored(**changes: object) -> bytes:
    document = LeaseDocument(5, ("a", "b"), {LEASE.key: encode_lease(LEASE)})
    return json.dumps(json.loads(encode_document(document, "billing", "orders")) | changes).encode()


def test_a_document_is_read_as_it_was_written() -> None:
    document = LeaseDocument().written({LEASE.key: encode_lease(LEASE)}, "w1")
    found = decode(encode_document(document, "billing", "orders"))
    assert found == document
    assert found.revision == 1
    assert decode_lease(LEASE.key, found.rows[LEASE.key], "x") == LEASE


def test_the_key_tells_applications_and_streams_apart() -> None:
    assert key_of("billing", "orders") == ".efo-leases/application=billing/stream=orders.json"
    assert key_of("..", "..") == ".efo-leases/application=../stream=...json"
    with pytest.raises(ConfigurationError, match="'a/b' is no name of an application"):
        key_of("a/b", "orders")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged"),
        (b'{"format": 1', "is damaged"),
        (b"[]", "is damaged"),
        (stored()[:-20], "is damaged"),
        (stored(leases=None), "is damaged"),
        (stored(future=1), "is damaged"),
        (stored(format="1"), "is damaged"),
        (stored(format=FORMAT_VERSION + 1, leases="other"), r"format version 3, this efo supports 1 to 2: use the"),
        (stored(application="payroll"), "'payroll' on the stream 'orders', not of 'billing' on 'orders'"),
        (stored(stream="clicks"), "'clicks'"),
    ],
)
def test_what_is_damaged_newer_or_of_another_stream_is_refused_with_its_name(content, message) -> None:
    with pytest.raises(LeaseStoreCorruptError, match=message) as caught:
        decode(content)
    assert "s3://logs/efo/leases.json" in str(caught.value)


@pytest.mark.parametrize(
    "row",
    [b"{}", b"1", encode_lease(LEASE).replace(b'"7"', b'"seven"'), encode_lease(Lease("other", Checkpoint.LATEST))],
)
def test_a_damaged_row_is_named(row) -> None:
    with pytest.raises(LeaseStoreCorruptError, match=f"x, lease '{LEASE.key}' is damaged"):
        decode_lease(LEASE.key, row, "x")


def test_a_document_names_its_latest_writes_and_knows_what_it_has_forgotten() -> None:
    base = document = LeaseDocument(rows={})
    for number in range(KEPT_WRITES):
        document = document.written({}, f"w{number}")
    assert document.writes[0] == "w0"
    assert not document.has_forgotten(base)
    document = document.written({}, "one more")
    assert "w0" not in document.writes
    assert document.has_forgotten(base)
    assert base.has_forgotten(document)  # an earlier version was restored


def test_an_edit_that_fails_or_changes_nothing_is_no_proof_and_leaves_the_others_their_effect() -> None:
    rows = {LEASE.key: encode_lease(LEASE), "damaged": b"{}"}
    made = plan(LeaseDocument(1, ("w",), rows), [("damaged", lambda row: row), ("new", lambda _: LEASE)], "w2", "x")
    assert isinstance(made.results[0], LeaseStoreCorruptError)
    assert made.results[1] is LEASE
    assert made.document is not None
    assert made.document.rows == rows | {"new": encode_lease(LEASE)}
    assert made.depends_on_currency
    same = plan(LeaseDocument(1, ("w",), rows), [(LEASE.key, lambda row: row)], "w2", "x")
    assert same.document is None
    assert same.depends_on_currency
