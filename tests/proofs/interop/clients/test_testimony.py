from __future__ import annotations

import base64
import json

import msgspec
import pytest

from efo.model import Record
from proofs.interop.clients import testimony as witnessed
from proofs.interop.clients.load import data_of, key_of
from proofs.interop.clients.testimony import REFUSALS, Verdict, is_right, judge

CLOSED = {"a": frozenset({"b", "c"})}
TRUTH = {
    "a": [Record("1", 0.0, data_of(1), key_of(1)), Record("2", 0.0, data_of(2), key_of(2))],
    "b": [Record("3", 0.0, data_of(1 + 211), key_of(1 + 211))],  # the key of the first record
    "c": [],
}
RIGHT = Verdict(3, 0, 0, 0, 1, refused_ok=True)


def record(shard, sequence, number, **other):
    data = base64.b64encode(data_of(number)).decode()
    return {"record": {"shard": shard, "sequence": sequence, "key": key_of(number), "data": data} | other}


def end(shard="a", children=("b", "c")):
    return {"shard_end": {"shard": shard, "children": children}}


A1, A2, B3 = record("a", "1", 1), record("a", "2", 2), record("b", "3", 212)
REFUSED = [{"refused": {"what": what, "error": min(errors)}} for what, errors in REFUSALS.items()]


def verdict_on(*lines):
    testimony = witnessed.Testimony()
    for line in lines:
        testimony.hear(json.dumps(line).encode())
    return judge(testimony, TRUTH, CLOSED)


@pytest.mark.parametrize("children", [("c", "b"), None])
def test_a_right_testimony(children):
    verdict = verdict_on(*REFUSED, A1, A2, end(children=children), B3)
    assert verdict == RIGHT
    assert is_right(verdict, records=3, shard_ends=1)
    assert not is_right(verdict, records=4, shard_ends=1)
    assert not is_right(verdict, records=3, shard_ends=2)


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([A1, end(), B3], {"records": 2, "lost": 1}),
        ([A1, record("a", "2", 2, key="other"), end(), B3], {"lost": 1}),
        ([A1, record("a", "2", 3), end(), B3], {"lost": 1}),
        ([A1, record("a", "2", 2, data="AAAA"), end(), B3], {"lost": 1}),
        ([A1, A2, record("b", "2", 2), end(), B3], {"records": 4, "order_violations": 0}),  # put elsewhere
        ([A1, A2, A2, end(), B3], {"records": 4, "duplicated": 1}),
        ([A2, A1, end(), B3], {"order_violations": 1}),
        ([B3, A1, A2, end()], {"order_violations": 1}),  # a child before its parent: the key runs backwards
        ([A1, A2, B3], {"shard_ends": 0}),
        ([A1, A2, end(), end(), B3], {"shard_ends": 0}),
        ([A1, A2, end(children=["b"]), B3], {"shard_ends": -1}),
        ([A1, A2, end(), B3, end("b", [])], {"shard_ends": 0}),  # it is open
    ],
)
def test_what_is_wrong_shows(lines, wrong):
    verdict = verdict_on(*REFUSED, *lines)
    assert {name: getattr(verdict, name) for name in wrong} == wrong
    assert not is_right(verdict, records=3, shard_ends=1)


@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_that_is_missing_or_wrong_shows(what):
    lines = [A1, A2, end(), B3]
    others = [line for line in REFUSED if line["refused"]["what"] != what]
    assert verdict_on(*REFUSED, *lines).refused_ok
    assert not verdict_on(*others, *lines).refused_ok
    assert not verdict_on(*others, {"refused": {"what": what, "error": "ClientError"}}, *lines).refused_ok


@pytest.mark.parametrize("line", [b"", b"hello", b'{"record": {"shard": "a"}}', b'{"other": {}}'])
def test_what_is_no_line_of_a_witness_is_refused(line):
    with pytest.raises(msgspec.DecodeError):
        witnessed.Testimony().hear(line)
