from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efo.protocol.eventstream import Decoder
from efo.protocol.messages import parse
from efo.testing.load.event import EventTemplate, Part

LOW = "0123456789012345678901234567"
PARTS = [Part(b"QUJD", f"key-{n}", f"{LOW[:-1]}{n}") for n in range(5)]
HIGHS = st.integers(10**27, 10**28 - 1).map(str)
EVENTS = st.tuples(HIGHS, st.integers(0, 9_999_999_999_999).map(lambda n: n / 1000), st.integers(0, 10**12 - 1))


def read(message):
    """Parse one message; the decoder checks both CRCs."""
    decoder = Decoder()
    decoder.receive_data(message)
    (decoded,) = decoder.messages()
    assert decoder.pending == 0
    return parse(decoded)


@settings(max_examples=50)
@given(st.integers(1, 5), st.lists(EVENTS, min_size=1, max_size=6))
def test_what_is_patched_is_what_would_have_been_made_anew(count, events):
    parts = PARTS[:count]
    template = EventTemplate(parts, events[0][0])
    for high, stamp, behind in events:
        message = template.render(high, stamp, behind)
        assert message == EventTemplate(parts, high).render(high, stamp, behind)
        event = read(message)
        assert [record.sequence_number for record in event.records] == [high + part.low for part in parts]
        assert {record.approximate_arrival_timestamp for record in event.records} == {stamp}
        assert [record.partition_key for record in event.records] == [part.partition_key for part in parts]
        assert {record.data for record in event.records} == {b"ABC"}
        assert event.millis_behind_latest == behind
        assert event.continuation_sequence_number == high + parts[-1].low


def test_an_event_is_not_changed_by_the_next_one():
    template = EventTemplate(PARTS, "1" * 28)
    first = template.render("1" * 28, 1.0, 0)
    copy = bytes(first)
    template.render("2" * 28, 2.0, 7)
    assert first == copy


def test_the_members_are_those_of_the_service():
    decoder = Decoder()
    decoder.receive_data(EventTemplate(PARTS[:1], "1" * 28).render("1" * 28, 1_767_225_600.5, 3))
    (message,) = decoder.messages()
    assert message.headers[":event-type"] == "SubscribeToShardEvent"
    assert msgspec.json.decode(message.payload) == {
        "Records": [
            {
                "ApproximateArrivalTimestamp": 1_767_225_600.5,
                "Data": "QUJD",
                "PartitionKey": "key-0",
                "SequenceNumber": "1" * 28 + PARTS[0].low,
                "EncryptionType": "NONE",
            }
        ],
        "MillisBehindLatest": 3,
        "ContinuationSequenceNumber": "1" * 28 + PARTS[0].low,
    }


def test_records_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="one length"):
        EventTemplate([PARTS[0], Part(b"QUJDRA==", "key-1", LOW)], "1" * 28)


@pytest.mark.parametrize(
    ("high", "stamp", "behind"), [("1" * 27, 1.0, 0), ("1" * 28, 1e10, 0), ("1" * 28, 1.0, 10**12)]
)
def test_what_does_not_fit_is_refused(high, stamp, behind):
    with pytest.raises(ValueError, match="does not fit"):
        EventTemplate(PARTS, "1" * 28).render(high, stamp, behind)
