from __future__ import annotations

import base64
import json

import msgspec
import pytest

from efo.model import Record
from proofs.interop.clients.load import data_of, key_of
from proofs.interop.clients.transcript import REFUSED_CALLS, Comparison, Transcript, compare, passed

CLOSED = {"a": frozenset({"b", "c"})}
TRUTH = {
    "a": [Record("1", 0.0, data_of(1), key_of(1)), Record("2", 0.0, data_of(2), key_of(2))],
    "b": [Record("3", 0.0, data_of(1 + 211), key_of(1 + 211))],  # the key of the first record
    "c": [],
}
CORRECT = Comparison(3, 0, 0, 0, 1, refused_ok=True)


def record(shard, sequence, number, **other):
    data = base64.b64encode(data_of(number)).decode()
    return {"record": {"shard": shard, "sequence": sequence, "key": key_of(number), "data": data} | other}


def end(shard="a", children=("b", "c")):
    return {"shard_end": {"shard": shard, "children": children}}


A1, A2, B3 = record("a", "1", 1), record("a", "2", 2), record("b", "3", 212)
REFUSED = [{"refused": {"what": what, "error": min(errors)}} for what, errors in REFUSED_CALLS.items()]


def comparison_of(*lines):
    transcript = Transcript()
    for line in lines:
        transcript.add_line(json.dumps(line).encode())
    return compare(transcript, TRUTH, CLOSED)


@pytest.mark.parametrize("children", [("c", "b"), None], ids=["children", "no children"])
def test_a_complete_transcript_passes(children):
    comparison = comparison_of(*REFUSED, A1, A2, end(children=children), B3)
    assert comparison == CORRECT
    assert passed(comparison, records=3, shard_ends=1)
    assert not passed(comparison, records=4, shard_ends=1)
    assert not passed(comparison, records=3, shard_ends=2)


@pytest.mark.parametrize(
    ("lines", "figures"),
    [
        pytest.param([A1, end(), B3], {"records": 2, "lost": 1}, id="missing"),
        pytest.param([A1, record("a", "2", 2, key="other"), end(), B3], {"lost": 1}, id="other key"),
        pytest.param([A1, record("a", "2", 3), end(), B3], {"lost": 1}, id="data of another record"),
        pytest.param([A1, record("a", "2", 2, data="AAAA"), end(), B3], {"lost": 1}, id="unknown data"),
        pytest.param(
            [A1, A2, record("b", "2", 2), end(), B3], {"records": 4, "order_violations": 0}, id="in another shard"
        ),
        pytest.param([A1, A2, A2, end(), B3], {"records": 4, "duplicated": 1}, id="duplicated"),
        pytest.param([A2, A1, end(), B3], {"order_violations": 1}, id="shard out of order"),
        pytest.param([B3, A1, A2, end()], {"order_violations": 1}, id="child before its parent"),
        pytest.param([A1, A2, B3], {"shard_ends": 0}, id="no end"),
        pytest.param([A1, A2, end(), end(), B3], {"shard_ends": 0}, id="two ends"),
        pytest.param([A1, A2, end(children=["b"]), B3], {"shard_ends": -1}, id="missing child"),
        pytest.param([A1, A2, end(), B3, end("b", [])], {"shard_ends": 0}, id="end of an open shard"),
    ],
)
def test_each_fault_is_counted_and_fails(lines, figures):
    comparison = comparison_of(*REFUSED, *lines)
    assert {name: getattr(comparison, name) for name in figures} == figures
    assert not passed(comparison, records=3, shard_ends=1)


@pytest.mark.parametrize("what", REFUSED_CALLS)
def test_a_refused_call_that_is_missing_or_has_another_error_fails(what):
    lines = [A1, A2, end(), B3]
    others = [line for line in REFUSED if line["refused"]["what"] != what]
    assert comparison_of(*REFUSED, *lines).refused_ok
    assert not comparison_of(*others, *lines).refused_ok
    assert not comparison_of(*others, {"refused": {"what": what, "error": "ClientError"}}, *lines).refused_ok


@pytest.mark.parametrize("line", [b"", b"hello", b'{"record": {"shard": "a"}}', b'{"other": {}}'])
def test_a_line_in_another_format_is_rejected(line):
    with pytest.raises(msgspec.DecodeError):
        Transcript().add_line(line)
