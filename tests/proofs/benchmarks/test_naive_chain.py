"""The client that efo is compared with must read everything, or the comparison would flatter it."""

import json

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator

from efo.protocol.eventstream import encode
from proofs.benchmarks import naive_chain
from proofs.benchmarks.data_path import EVENT_HEADERS, event

BLOBS = [b"a" * 10, b"b" * 20, b"c" * 30]


@pytest.fixture
def added(monkeypatch):
    calls = []
    monkeypatch.setattr(naive_chain.sampler, "add", lambda *arguments: calls.append(arguments))
    return calls


@pytest.mark.parametrize("size", [1, 5, 100, 10_000])
def test_frames_that_arrive_in_pieces_are_read_whole(size, added):
    wire = memoryview(event(BLOBS[:1]) + event(BLOBS[1:]) + event(BLOBS))
    stream = naive_chain.Stream()
    for at in range(0, len(wire), size):
        stream.receive(wire[at : at + size])
    assert [(count, total) for count, total, _ in added] == [(1, 10), (2, 50), (3, 60)]


def test_frames_of_other_types_are_not_events(added):
    naive_chain.Stream().receive(memoryview(encode({":event-type": "initial-response"}, b"{}") + event(BLOBS)))
    assert len(added) == 1


def test_a_flipped_bit_is_found():
    damaged = bytearray(encode(EVENT_HEADERS, json.dumps({"Records": []}).encode()))
    damaged[-6] ^= 1
    with pytest.raises(ValueError, match="CRC"):
        naive_chain.Stream().receive(memoryview(damaged))


def test_the_user_records_of_an_aggregate_are_read():
    aggregator = RecordAggregator()
    for number in range(3):
        aggregator.add_user_record(f"key-{number}", b"x" * number)
    _, _, blob = aggregator.clear_and_get().get_contents()
    assert list(naive_chain.user_records(blob)) == [("key-0", b""), ("key-1", b"x"), ("key-2", b"xx")]
