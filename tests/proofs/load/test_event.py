from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from efo.protocol.eventstream import EventStreamDecoder
from efo.protocol.messages import parse_message
from proofs.load.event import EventTemplate, RecordTemplate

LOW = "0123456789012345678901234567"
RECORDS = [RecordTemplate(b"QUJD", f"key-{n}", f"{LOW[:-1]}{n}") for n in range(5)]
HIGHS = st.integers(10**27, 10**28 - 1).map(str)
EVENTS = st.tuples(HIGHS, st.integers(0, 9_999_999_999_999).map(lambda n: n / 1000), st.integers(0, 10**12 - 1))


def read(message):
    """Parse one message. The decoder checks both CRCs."""
    decoder = EventStreamDecoder()
    decoder.receive_data(message)
    (decoded,) = decoder.messages()
    assert decoder.pending == 0
    return parse_message(decoded)


@settings(max_examples=50)
@given(st.integers(1, 5), st.lists(EVENTS, min_size=1, max_size=6))
def test_a_patched_event_equals_a_newly_encoded_event(count, events):
    records = RECORDS[:count]
    template = EventTemplate(records, events[0][0])
    for high, timestamp, behind in events:
        message = template.render(high, timestamp, behind)
        assert message == EventTemplate(records, high).render(high, timestamp, behind)
        event = read(message)
        assert [record.sequence_number for record in event.records] == [high + record.low_digits for record in records]
        assert {record.approximate_arrival_timestamp for record in event.records} == {timestamp}
        assert [record.partition_key for record in event.records] == [record.partition_key for record in records]
        assert {record.data for record in event.records} == {b"ABC"}
        assert event.millis_behind_latest == behind
        assert event.continuation_sequence_number == high + records[-1].low_digits


def test_rendering_an_event_does_not_change_earlier_events():
    template = EventTemplate(RECORDS, "1" * 28)
    first = template.render("1" * 28, 1.0, 0)
    copy = bytes(first)
    template.render("2" * 28, 2.0, 7)
    assert first == copy


def test_an_event_has_the_members_of_the_service():
    decoder = EventStreamDecoder()
    decoder.receive_data(EventTemplate(RECORDS[:1], "1" * 28).render("1" * 28, 1_767_225_600.5, 3))
    (message,) = decoder.messages()
    assert message.headers[":event-type"] == "SubscribeToShardEvent"
    assert msgspec.json.decode(message.payload) == {
        "Records": [
            {
                "ApproximateArrivalTimestamp": 1_767_225_600.5,
                "Data": "QUJD",
                "PartitionKey": "key-0",
                "SequenceNumber": "1" * 28 + RECORDS[0].low_digits,
            }
        ],
        "MillisBehindLatest": 3,
        "ContinuationSequenceNumber": "1" * 28 + RECORDS[0].low_digits,
    }


def test_records_of_different_lengths_are_rejected():
    with pytest.raises(ValueError, match="the same length"):
        EventTemplate([RECORDS[0], RecordTemplate(b"QUJDRA==", "key-1", LOW)], "1" * 28)


@pytest.mark.parametrize(
    ("high", "timestamp", "behind"), [("1" * 27, 1.0, 0), ("1" * 28, 1e10, 0), ("1" * 28, 1.0, 10**12)]
)
def test_values_of_the_wrong_length_are_rejected(high, timestamp, behind):
    with pytest.raises(ValueError, match="does not fit"):
        EventTemplate(RECORDS, "1" * 28).render(high, timestamp, behind)
