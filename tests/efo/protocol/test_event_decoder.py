"""EventDecoder: events and errors of a stream in pieces, with a step that reads what it knows."""

import pytest

from efo.errors import ChecksumError, EventError, FrameError, ServiceError
from efo.model import Record
from efo.protocol.event_decoder import SMALL, EventDecoder
from efo.protocol.eventstream import encode
from efo.protocol.native import STEP
from efo.protocol.packed import filtered, packed
from tests.packing import packed_columns

EVENT = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
RECORD = b'{"SequenceNumber":"17","ApproximateArrivalTimestamp":1.5,"Data":"AAE="}'
RECORDS = (Record("17", 1.5, b"\0\1"),)


def body(rest=b'"ContinuationSequenceNumber":"17"', records=RECORD):
    return b'{"Records":[' + records + b'],"MillisBehindLatest":0,' + rest + b"}"


class FakeStep:
    """A step that gives the same answer for each event, and notes what it was asked."""

    def __init__(self, answer, packed=None):
        self.answer = answer
        self.packed_answer = packed
        self.asked = []
        self.asked_packed = 0

    def event(self, first, later, start, length, headers):
        self.asked.append((b"".join((first, *later))[start : start + length], headers))
        return self.answer

    def packed(self, _first, _later, _start, _length, _headers):
        self.asked_packed += 1
        return self.packed_answer


def received(decoder, data, size):
    events = []
    for at in range(0, len(data), size):
        decoder.receive_data(data[at : at + size])
        while (found := decoder.next_event()) is not None:
            events.append(found)
    return events


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_step_reads_each_event_after_the_first_with_the_same_headers(size):
    first, second = encode(EVENT, body()), encode(EVENT, body(b'"ContinuationSequenceNumber":"18"'))
    step = FakeStep((RECORDS, body(b'"ContinuationSequenceNumber":"18"', b"")))
    events = received(EventDecoder(step, 0), first + second, size)
    assert [frame for frame, _ in step.asked] == [second]
    assert events == received(EventDecoder(None), first + second, size)
    assert [length for _, length in events] == [len(first), len(second)]


def test_records_are_packed_until_somebody_looks():
    rest = body(records=b"")
    step = FakeStep((RECORDS, rest), (*packed_columns([Record("17", 1.5, b"\0\1")]), rest))
    frames = encode(EVENT, body()) * 3
    decoder = EventDecoder(step, 0)
    events = received(decoder, frames, len(frames))
    assert [packed(event.records) is not None for event, _ in events] == [False, True, True]
    assert filtered(events[-1][0].records, lambda _: True) == RECORDS  # no look
    assert (events[-1][0].records[0], events[-1][0].records[-1]) == RECORDS * 2
    last, _ = received(decoder, frames, len(frames))[-1]
    assert (step.asked_packed, len(step.asked)) == (5, 0)
    assert [*last.records] == [*RECORDS]
    assert (step.asked_packed, len(step.asked)) == (5, 0)
    assert events == received(EventDecoder(None), frames, len(frames))
    assert received(decoder, frames, len(frames)) == events
    assert (step.asked_packed, len(step.asked)) == (5, 3)


def test_after_an_aggregate_the_step_packs_no_more():
    step = FakeStep((RECORDS, body(records=b"")))
    frames = encode(EVENT, body()) * 4
    assert received(EventDecoder(step, 0), frames, len(frames)) == received(EventDecoder(None), frames, len(frames))
    assert (step.asked_packed, len(step.asked)) == (1, 3)


def test_what_the_step_leaves_the_python_step_reads():
    data = encode(EVENT, body()) * 3
    step = FakeStep(None)
    assert received(EventDecoder(step, 0), data, len(data)) == received(EventDecoder(None), data, len(data))
    assert len(step.asked) == 2


def test_what_is_wrong_besides_the_records_is_reported_by_the_python_step():
    frame = encode(EVENT, body())
    decoder = EventDecoder(FakeStep((RECORDS, b'{"Records":[],"MillisBehindLatest":"no"}')), 0)
    decoder.receive_data(frame)
    decoder.next_event()
    decoder.receive_data(encode(EVENT, body(b'"ContinuationSequenceNumber":7')))
    with pytest.raises(EventError, match=r"Expected `str \| null`, got `int`"):
        decoder.next_event()


def test_rule_r2_holds_for_what_the_step_read():
    decoder = EventDecoder(FakeStep((RECORDS, body(b'"New":1', b""))), 0)
    decoder.receive_data(encode(EVENT, body()) * 2)
    decoder.next_event()
    with pytest.raises(EventError, match="neither a continuation nor child shards"):
        decoder.next_event()
    assert decoder.pending == 0


@pytest.mark.parametrize("size", [7, 150, 10_000])
def test_a_view_is_read_by_the_python_step(size):
    decoder = EventDecoder(STEP, 0)
    data = memoryview(encode(EVENT, body()) * 3)
    assert received(decoder, data, size) == received(EventDecoder(None), bytes(data), size)


def test_an_exception_message_is_raised_and_other_messages_are_passed_over():
    decoder = EventDecoder()
    decoder.receive_data(encode({":message-type": "event", ":event-type": "initial-response"}, b"{}"))
    assert decoder.next_event() is None
    decoder.receive_data(encode({":message-type": "exception", ":exception-type": "InternalFailure"}, b"{}"))
    with pytest.raises(ServiceError):
        decoder.next_event()


def test_a_damaged_stream_stays_damaged():
    decoder = EventDecoder()
    frame = encode(EVENT, body())
    decoder.receive_data(frame[:-1] + bytes([frame[-1] ^ 1]))
    with pytest.raises(ChecksumError):
        decoder.next_event()
    with pytest.raises(FrameError, match="earlier"):
        decoder.next_event()


def test_a_short_frame_is_read_by_the_python_step():
    long = encode(EVENT, body(records=b",".join([RECORD] * 40)))
    step = FakeStep(None)
    received(EventDecoder(step), encode(EVENT, body()) * 2 + long, SMALL)
    assert [frame for frame, _ in step.asked] == [long]


def test_a_frame_of_the_shortest_length_is_read_by_the_step():
    frame = encode(EVENT, body())
    for shortest, asked in ((len(frame), 1), (len(frame) + 1, 0)):
        step = FakeStep(None)
        received(EventDecoder(step, shortest), frame * 2, 10_000)
        assert len(step.asked) == asked
