"""DATA that is split off before h2 has the same outcome as DATA that passes through h2 (rule R9)."""

import h2.exceptions
import hyperframe.frame
import pytest
from hypothesis import given, settings, strategies as st

from efo.errors import TransportError
from efo.kinesis.connection import Connection
from efo.kinesis.http2 import Http2
from efo.protocol.frame_splitter import FrameSplitter
from proofs.fuzz.cursor import cut

REQUEST = [(":method", "POST"), (":scheme", "https"), (":authority", "peer"), (":path", "/")]
STREAM_WINDOW = 20_000
CONNECTION_WINDOW = 70_000
STREAMS = (1, 3, 5)
STATUS_200 = b"\x88"
LENGTH_OF_30 = STATUS_200 + b"\x0f\x0d\x0230"
DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE = 0, 1, 3, 4, 8
END_STREAM, END_HEADERS, PADDED = 1, 4, 8


def frame(kind, payload=b"", *, stream_id=0, flags=0):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream_id.to_bytes(4) + payload


def call(coroutine):
    """Return the result of a call that does not wait."""
    with pytest.raises(StopIteration) as returned:
        coroutine.send(None)
    return returned.value.value


class Client:
    """A connection without a byte stream, with open streams. `splits`: whether DATA is split off before h2."""

    def __init__(self, *, splits, stream_window=STREAM_WINDOW, connection_window=CONNECTION_WINDOW):
        self.connection = Connection(
            None, address="peer", stream_window=stream_window, connection_window=connection_window
        )
        self.h2 = self.connection._h2
        if not splits:
            self.connection._splitter = FrameSplitter()
        self.h2.initiate_connection()
        self.streams = {response.stream_id: response for response in (self.request() for _ in STREAMS)}
        self.got = dict.fromkeys(STREAMS, b"")
        self.error = None
        self.receive(frame(SETTINGS))
        self.sent()

    def request(self):
        return call(self.connection.request(REQUEST, b""))

    def receive(self, data):
        if self.error is None:
            try:
                call(self.connection._receive(data))
            except TransportError as error:
                self.error = str(error)
                self.connection._close(error)  # as `run` does

    def act(self, what, stream_id):
        stream = self.streams[stream_id]
        if self.error is not None:
            return
        if what == "close":
            stream.close()
        elif stream.buffered:
            while stream.buffered:
                self.got[stream_id] += call(stream.receive())

    def sent(self):
        """Return the bytes that the connection has sent since the last call."""
        sent = bytes(self.connection._outgoing) + self.h2.data_to_send()
        self.connection._outgoing.clear()
        return sent

    def state(self):
        """Return everything that can be observed but the bytes that are buffered, which `take_all` returns."""
        return (
            self.error,
            [(stream.status, stream.is_over, str(stream._error)) for stream in self.streams.values()],
            self.connection.open_streams,
            self.connection._received,
            self.h2.inbound_flow_control_window,
            [self.stream_window(stream_id) for stream_id in STREAMS],
        )

    def stream_window(self, stream_id):
        try:
            return self.h2.remote_flow_control_window(stream_id)
        except h2.exceptions.ProtocolError as error:
            return type(error)

    def take_all(self):
        for stream_id, stream in self.streams.items():
            while stream.buffered:
                self.got[stream_id] += call(stream.receive())
        return self.got


def data_frame(stream_id, payload, flags):
    return frame(DATA, bytes(payload) if isinstance(payload, int) else payload, stream_id=stream_id, flags=flags)


FRAMES = st.one_of(
    st.builds(
        data_frame,
        st.sampled_from([*STREAMS, *STREAMS, 7]),
        st.binary(max_size=40) | st.integers(0, 16_385),
        st.sampled_from([0, 0, 0, 0, 0x40, END_STREAM, PADDED]),
    ),
    st.builds(
        lambda stream_id, block, flags: frame(HEADERS, block, stream_id=stream_id, flags=flags),
        st.sampled_from(STREAMS),
        st.sampled_from([STATUS_200, STATUS_200, LENGTH_OF_30]),
        st.sampled_from([END_HEADERS, END_HEADERS, END_HEADERS | END_STREAM, 0]),
    ),
    st.builds(lambda stream_id: frame(RST_STREAM, bytes(4), stream_id=stream_id), st.sampled_from(STREAMS)),
    st.builds(
        lambda stream_id, size: frame(WINDOW_UPDATE, size.to_bytes(4), stream_id=stream_id),
        st.sampled_from(STREAMS),
        st.sampled_from([1, 2**31 - 1]),
    ),
)
ACTS = st.tuples(st.sampled_from(["read", "read", "close"]), st.sampled_from(STREAMS))
ANSWERS = b"".join(frame(HEADERS, STATUS_200, stream_id=stream_id, flags=END_HEADERS) for stream_id in STREAMS)


READS = st.lists(FRAMES, min_size=1, max_size=4).map(b"".join)


@settings(max_examples=150)
@given(st.booleans(), st.lists(FRAMES | READS | ACTS, max_size=25), st.integers(0, 20))
def test_the_outcome_is_that_of_h2(answers, steps, cuts):
    split, whole = Client(splits=True), Client(splits=False)
    for step in [ANSWERS, *steps] if answers else steps:
        if isinstance(step, tuple):
            for client in (split, whole):
                client.act(*step)
        else:
            for piece in cut(step, cuts):
                split.receive(piece)
                whole.receive(piece)
        if whole.error is not None:
            break
        assert split.state() == whole.state()
        assert split.sent() == whole.sent()
    assert split.error == whole.error
    # An error discards what h2 returned for the same read, but not what was split off.
    for got, of_h2 in zip(split.take_all().values(), whole.take_all().values(), strict=True):
        assert got.startswith(of_h2)
        assert got == of_h2 or whole.error is not None


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([frame(DATA, bytes(10_001), stream_id=1)] * 2, "FlowControlError"),
        (
            [frame(DATA, bytes(16_000), stream_id=stream_id) for stream_id in STREAMS] * 2,
            "FlowControlError",
        ),
    ],
    ids=["stream window", "connection window"],
)
def test_a_violation_is_the_error_of_h2(frames, message):
    clients = [Client(splits=splits) for splits in (True, False)]
    for client in clients:
        client.receive(ANSWERS)
        for piece in frames:
            client.receive(piece)
    assert clients[0].error == clients[1].error
    assert message in clients[0].error


@pytest.mark.parametrize("size", [29, 30, 31])
@pytest.mark.parametrize("splits", [True, False])
def test_split_data_counts_against_the_content_length(size, splits):
    client = Client(splits=splits)
    client.receive(frame(HEADERS, LENGTH_OF_30, stream_id=1, flags=END_HEADERS))
    client.receive(frame(DATA, bytes(size - 10), stream_id=1))
    client.receive(frame(DATA, bytes(10), stream_id=1))
    client.receive(frame(DATA, b"", stream_id=1, flags=END_STREAM))
    assert (client.error is None) == (size == 30)
    if size != 30:
        assert "InvalidBodyLengthError" in client.error


def test_split_data_of_an_unread_stream_is_limited_by_its_window():
    client = Client(splits=True)
    client.receive(ANSWERS)
    client.receive(frame(DATA, bytes(10_000), stream_id=1) * 2)
    assert client.error is None
    assert client.streams[1].buffered == STREAM_WINDOW
    client.receive(frame(DATA, b"x", stream_id=1))
    assert "FlowControlError" in client.error


def test_more_than_4_gib_pass_over_one_connection_and_one_stream():
    size, window = 64 * 2**20, 2**31 - 1
    client = Client(splits=True, stream_window=window, connection_window=window)
    client.receive(ANSWERS)
    content = bytes(size)
    granted = {0: window, 1: window}
    total = 0
    while total <= 2**32 + window:
        # A frame has 16 KiB at most. This is the content of 4096 frames: only their accounting is of interest.
        client.connection._on_data(1, size, (content,))
        client.connection._receive_data(b"")
        total += len(call(client.streams[1].receive()))
        for stream_id, increment in updates(client.sent()):
            granted[stream_id] += increment
            assert granted[stream_id] - total <= window, "the window is larger than allowed"
        assert granted[0] - total == client.h2.inbound_flow_control_window > 0
        assert min(granted.values()) - total == client.h2.remote_flow_control_window(1) > 0
    assert granted[0] > 2**32
    assert granted[1] > 2**32


def updates(sent):
    """Return stream id and increment of all frames, which are WINDOW_UPDATE frames."""
    while sent:
        update, length = hyperframe.frame.Frame.parse_frame_header(memoryview(sent[:9]))
        update.parse_body(memoryview(sent[9 : 9 + length]))
        yield update.stream_id, update.window_increment
        sent = sent[9 + length :]


def test_data_of_an_ended_stream_is_an_error_of_h2():
    http2 = Http2(stream_window=STREAM_WINDOW, connection_window=CONNECTION_WINDOW)
    http2.initiate_connection()
    http2.send_headers(1, REQUEST, end_stream=True)
    with pytest.raises(h2.exceptions.ProtocolError, match="cannot receive data before headers"):
        http2.receive_split_data(1, 18)
