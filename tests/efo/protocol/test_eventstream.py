"""The event-stream codec: intact bytes decode correctly however they are split; damaged bytes raise an error."""

import struct
import uuid
from itertools import pairwise
from zlib import crc32

import botocore.eventstream
import pytest
from hypothesis import given, strategies as st

from efo.errors import ChecksumError, FrameError
from efo.protocol.eventstream import (
    MAX_HEADERS,
    MAX_HEADERS_LENGTH,
    MAX_MESSAGE_LENGTH,
    EventStreamDecoder,
    EventStreamMessage,
    encode,
)

EVENT_HEADERS = {
    ":event-type": "SubscribeToShardEvent",
    ":content-type": "application/x-amz-json-1.1",
    ":message-type": "event",
}
# Frames in wire format. The first two are the published test vectors of the format.
FRAMES = {
    "empty": ("0000001000000000 05c248eb 7d98c8ff", {}, b""),
    "payload only": ("0000001d00000000 fd528c5a 7b27666f6f273a27626172277d c3653936", {}, b"{'foo':'bar'}"),
    "an event": (
        """0000007700000065 13087661
        0b 3a6576656e742d74797065 07 0015 537562736372696265546f53686172644576656e74
        0d 3a636f6e74656e742d74797065 07 001a 6170706c69636174696f6e2f782d616d7a2d6a736f6e2d312e31
        0d 3a6d6573736167652d74797065 07 0005 6576656e74
        7b7d 154e2189""",
        EVENT_HEADERS,
        b"{}",
    ),
}


def wire(name):
    return bytes.fromhex(FRAMES[name][0])


def decode(*pieces):
    """Decode these pieces one by one and return all messages."""
    decoder = EventStreamDecoder()
    messages = []
    for piece in pieces:
        decoder.receive_data(piece)
        messages += decoder.messages()
    return messages


def frame(headers=b"", payload=b""):
    """Return a valid frame of these raw headers, built without the module under test."""
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    prelude += struct.pack(">I", crc32(prelude))
    body = prelude + headers + payload
    return body + struct.pack(">I", crc32(body))


def prelude(total, headers_length):
    lengths = struct.pack(">II", total, headers_length)
    return lengths + struct.pack(">I", crc32(lengths))


class TestKnownFrames:
    @pytest.fixture(params=FRAMES)
    def name(self, request):
        return request.param

    def test_a_whole_frame_is_decoded(self, name):
        [message] = decode(wire(name))
        assert (message.headers, bytes(message.payload)) == FRAMES[name][1:]
        assert message.wire_length == len(wire(name))

    def test_a_frame_is_decoded_byte_by_byte(self, name):
        pieces = [bytes([byte]) for byte in wire(name)]
        assert decode(*pieces) == decode(wire(name))
        assert decode(*pieces[:-1]) == []

    def test_a_frame_followed_by_others_is_decoded(self, name):
        assert decode(wire(name) + wire("an event") + wire("empty")[:5]) == decode(wire(name), wire("an event"))

    def test_encode_writes_the_same_bytes(self, name):
        _, headers, payload = FRAMES[name]
        assert encode(headers, payload) == wire(name)

    def test_botocore_decodes_the_same_message(self, name):
        buffer = botocore.eventstream.EventStreamBuffer()
        buffer.add_data(wire(name))
        [message] = buffer
        assert (message.headers, message.payload) == FRAMES[name][1:]


def test_a_decoded_message_does_not_change_when_more_data_arrives():
    decoder = EventStreamDecoder()
    decoder.receive_data(frame(payload=b"first"))
    [message] = decoder.messages()
    decoder.receive_data(frame(payload=b"second"))
    list(decoder.messages())
    assert bytes(message.payload) == b"first"


def test_a_frame_that_arrives_as_a_whole_is_not_copied():
    decoder = EventStreamDecoder()
    data = frame(payload=b"first") + frame(payload=b"second")
    decoder.receive_data(data)
    assert [message.payload.obj is data for message in decoder.messages()] == [True, True]


def test_frames_that_arrive_in_a_chunk_each_are_not_copied():
    decoder, chunks = EventStreamDecoder(), [frame(payload=b"first"), frame(payload=b"second")]
    for chunk in chunks:
        decoder.receive_data(chunk)
    assert [message.payload.obj is chunk for message, chunk in zip(decoder.messages(), chunks, strict=True)] == [
        True
    ] * 2


def test_short_chunks_of_a_frame_are_joined_and_long_ones_are_not_copied():
    """A single byte as a chunk would take fifty times its memory."""
    data, sizes = frame(payload=bytes(5000)), []
    decoder = EventStreamDecoder()
    for byte in data[:-1]:
        decoder.receive_data(bytes([byte]))
        sizes = [len(chunk) for chunk in decoder._later]
    assert sizes == [1024] * 4 + [5016 - 2 - 4 * 1024]
    decoder = EventStreamDecoder()
    chunks = [data[:3], data[3 : 3 + 1024], data[3 + 1024 : -1]]
    for chunk in chunks:
        decoder.receive_data(chunk)
    assert [received is chunk for received, chunk in zip(decoder._later, chunks[1:], strict=True)] == [True, True]


def test_messages_are_equal_by_their_headers_and_their_payload():
    message = EventStreamMessage({"a": "1"}, b"x")
    assert message == EventStreamMessage({"a": "1"}, memoryview(b"x"), 7)
    assert message.wire_length == 0
    for other in (EventStreamMessage({}, b"x"), EventStreamMessage({"a": "1"}, b"y"), ({"a": "1"}, b"x"), None):
        assert message != other


def test_each_message_has_its_own_headers():
    sent = [({"a": "1"}, b""), ({"a": "1"}, b""), ({"b": "2"}, b""), ({}, b""), ({"a": "1"}, b"")]
    assert decode(*(encode(*message) for message in sent)) == [EventStreamMessage(*message) for message in sent]


def test_data_may_arrive_during_an_iteration():
    decoder = EventStreamDecoder()
    decoder.receive_data(b"".join(frame(payload=bytes([n])) for n in range(3)))
    messages = decoder.messages()
    first = next(messages)
    decoder.receive_data(frame(payload=b"\x03"))
    assert [bytes(m.payload) for m in (first, *messages)] == [b"\0", b"\1", b"\2", b"\3"]


def test_a_new_iteration_continues_after_an_abandoned_one():
    decoder = EventStreamDecoder()
    decoder.receive_data(frame(payload=b"0") + frame(payload=b"1"))
    abandoned = decoder.messages()
    assert bytes(next(abandoned).payload) == b"0"
    assert [bytes(m.payload) for m in decoder.messages()] == [b"1"]
    assert list(abandoned) == []


def header(kind, value, name=b"n"):
    return bytes([len(name)]) + name + bytes([kind]) + value


IDENTITY = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (header(0, b""), True),
        (header(1, b""), False),
        (header(2, b"\xff"), -1),
        (header(3, b"\x80\x00"), -32768),
        (header(4, b"\x00\x00\x00\x2a"), 42),
        (header(5, b"\xff" * 8), -1),
        (header(6, b"\x00\x02\x00\xff"), b"\x00\xff"),
        (header(6, b"\x00\x00"), b""),
        (header(7, b"\x00\x03" + "é!".encode()), "é!"),
        (header(7, b"\x00\x00"), ""),
        (header(8, struct.pack(">q", 1_700_000_000_123)), 1_700_000_000_123),
        (header(9, IDENTITY.bytes), IDENTITY),
    ],
)
def test_every_header_type_is_decoded(raw, value):
    [message] = decode(frame(raw + header(7, b"\x00\x01z", b"last"), b"payload"))
    assert message == EventStreamMessage({"n": value, "last": "z"}, b"payload")


@pytest.mark.parametrize(
    "raw",
    [
        header(10, b""),
        header(255, b"\x00\x00"),
        header(2, b""),
        header(3, b"\x00"),
        header(4, b"\x00" * 3),
        header(5, b"\x00" * 7),
        header(6, b"\x00\x05abc"),
        header(7, b"\x00"),
        header(7, b"\x00\x05abc"),
        header(8, b"\x00" * 7),
        header(9, b"\x00" * 15),
        header(7, b"\x00\x01\xff"),
        header(0, b"", b"\xff"),
        header(7, b"\x00\x01a") + header(7, b"\x00\x01a"),
        header(0, b"") + header(1, b"", b"m") + header(1, b""),
        b"\x05abc",
        b"\x01n",
        b"\x00",
    ],
)
def test_malformed_headers_are_a_frame_error(raw):
    with pytest.raises(FrameError, match=r"header|UUID"):
        decode(frame(raw, b"the payload is not read as a header"))


def test_a_message_has_at_most_1024_headers():
    def headers(count):
        return b"".join(header(0, b"", b"%d" % number) for number in range(count))

    [message] = decode(frame(headers(MAX_HEADERS), b""))
    assert len(message.headers) == MAX_HEADERS == 1024
    with pytest.raises(FrameError, match="more than 1024 headers"):
        decode(frame(headers(MAX_HEADERS + 1), b""))


@pytest.mark.parametrize(
    ("total", "headers_length"),
    [
        (0, 0),
        (15, 0),
        (16, 1),
        (MAX_HEADERS_LENGTH + 15, MAX_HEADERS_LENGTH),
        (MAX_HEADERS_LENGTH + 17, MAX_HEADERS_LENGTH + 1),
        (MAX_MESSAGE_LENGTH + 1, 0),
        (2**32 - 1, 2**32 - 1),
    ],
)
def test_impossible_lengths_are_rejected_when_the_prelude_arrives(total, headers_length):
    with pytest.raises(FrameError):
        decode(prelude(total, headers_length))


def test_the_maximum_lengths_of_aws_are_accepted():
    assert (MAX_MESSAGE_LENGTH, MAX_HEADERS_LENGTH) == (25_165_824, 131_072)
    assert decode(prelude(MAX_MESSAGE_LENGTH, MAX_HEADERS_LENGTH)) == []


@pytest.mark.parametrize(
    ("at", "text"),
    [(0, "prelude"), (7, "prelude"), (11, "prelude"), (12, "message"), (113, "message"), (115, "message")],
    ids=["total", "headers length", "prelude CRC", "headers", "payload", "message CRC"],
)
def test_damage_to_each_part_is_a_checksum_error(at, text):
    damaged = bytearray(wire("an event"))
    damaged[at] ^= 0x10
    with pytest.raises(ChecksumError, match=text):
        decode(bytes(damaged))


def test_no_message_is_decoded_after_an_error():
    decoder = EventStreamDecoder()
    damaged = bytearray(wire("an event"))
    damaged[-1] ^= 1
    decoder.receive_data(wire("empty") + damaged + wire("empty"))
    messages = decoder.messages()
    assert next(messages) == EventStreamMessage({}, b"")
    with pytest.raises(ChecksumError):
        next(messages)
    for _ in range(2):
        decoder.receive_data(wire("empty"))
        with pytest.raises(FrameError, match="open a new subscription"):
            list(decoder.messages())


headers = st.dictionaries(
    st.text(max_size=20).filter(lambda name: 0 < len(name.encode()) < 256), st.text(max_size=40), max_size=4
)
message_lists = st.lists(st.tuples(headers, st.binary(max_size=60)), max_size=4)


def split(data, cuts):
    bounds = [0, *sorted(at % (len(data) + 1) for at in cuts), len(data)]
    return [data[low:high] for low, high in pairwise(bounds)]


@given(message_lists, st.lists(st.integers(min_value=0), max_size=12))
def test_messages_are_the_same_however_the_bytes_are_split(sent, cuts):
    data = b"".join(encode(*message) for message in sent)
    received = decode(*split(data, cuts))
    assert [(m.headers, bytes(m.payload)) for m in received] == sent
    assert sum(m.wire_length for m in received) == len(data)


@given(message_lists.filter(bool), st.integers(min_value=0), st.lists(st.integers(min_value=0), max_size=4))
def test_a_flipped_bit_never_yields_a_wrong_message(sent, bit, cuts):
    data = b"".join(encode(*message) for message in sent)
    damaged = bytearray(data)
    damaged[bit // 8 % len(data)] ^= 1 << bit % 8
    decoder = EventStreamDecoder()
    received = []
    with pytest.raises((ChecksumError, FrameError)):  # noqa: PT012 - the messages before the error are checked too
        for piece in split(bytes(damaged), cuts):
            decoder.receive_data(piece)
            received += ((m.headers, bytes(m.payload)) for m in decoder.messages())
    frames = [encode(*message) for message in sent]
    intact = next(n for n in range(len(frames)) if bit // 8 % len(data) < len(b"".join(frames[: n + 1])))
    assert received == sent[:intact]


@given(message_lists)
def test_botocore_decodes_encoded_messages(sent):
    buffer = botocore.eventstream.EventStreamBuffer()
    buffer.add_data(b"".join(encode(*message) for message in sent))
    assert [(m.headers, m.payload) for m in buffer] == sent


def test_only_an_incomplete_message_is_buffered():
    decoder = EventStreamDecoder()
    data = b"".join(frame(payload=bytes(1000)) for _ in range(50))
    for at in range(0, len(data), 777):
        decoder.receive_data(data[at : at + 777])
        list(decoder.messages())
        assert decoder.pending < 1016
    assert decoder.pending == 0


@pytest.mark.parametrize("damage", [b"", b"\0\0\0\x11" + bytes(12)], ids=["after the last message", "after damage"])
def test_received_bytes_are_not_kept(damage):
    decoder, received = EventStreamDecoder(), bytearray(frame(payload=b"0") + frame(payload=b"1") + damage)
    decoder.receive_data(memoryview(received))
    assert [bytes(decoder.next_message().payload) for _ in range(2)] == [b"0", b"1"]
    if damage:
        with pytest.raises(ChecksumError):
            decoder.next_message()
    received.clear()  # raises BufferError while a view of it exists


def test_a_message_that_is_too_long_is_rejected_and_not_buffered():
    decoder = EventStreamDecoder()
    decoder.receive_data(prelude(MAX_MESSAGE_LENGTH + 1, 0) + bytes(1000))
    with pytest.raises(FrameError):
        list(decoder.messages())
    decoder.receive_data(bytes(1000))
    assert decoder.pending == 0
