"""The HTTP/2 connection with a peer that sends any frames: it stays open, or ends with one of efo's errors (R9, R14).

proofs/fuzz/peer.py defines the properties, and runs scripts. The scripts are here: random ones of Hypothesis, and
fixed ones.
"""

import pytest
from hypothesis import given, strategies as st

from efo.errors import GoAwayError, TransportError
from efo.kinesis import connection as http2
from efo.kinesis.response_stream import ResponseStream
from efo.protocol.frame_meter import LIMITS, OTHER_LIMIT
from proofs.fuzz import connection, peer
from proofs.fuzz.connection import CONTINUATION, GOAWAY, PING, PUSH_PROMISE, RST_STREAM, WINDOW_UPDATE
from proofs.fuzz.peer import DATA, END_HEADERS, HEADERS_FRAME, SETTINGS, SIBLING, STATUS_200, Act, Frame, Script, run

OTHER_STREAMS = st.sampled_from([3, 5, 7, 9, 2, 1001])
NUMBERS = st.sampled_from([0, 1, 10, 0xFFFF, 2**31 - 1, 2**32 - 1]).map(lambda number: number.to_bytes(4))
FLAGS = st.sampled_from([0, 1, END_HEADERS, 5, 8, 9, 0x20, 0x2D, 0xFF])
HEADER_BLOCKS = st.sampled_from(
    [STATUS_200, b"", b"\x40\x01a\x01b", STATUS_200 + b"\x40\x01a\x01b", b"\x82", b"\xbe"]
) | (st.binary(max_size=20))
SETTING_NAMES = st.sampled_from([1, 2, 3, 4, 5, 6, 0, 99]).map(lambda name: name.to_bytes(2))
SETTINGS_PAYLOADS = st.lists(st.tuples(SETTING_NAMES, NUMBERS).map(b"".join), max_size=3).map(b"".join)
PAYLOADS = st.binary(max_size=30) | st.integers(0, 70_000).map(bytes)

SIBLING_DATA = st.binary(max_size=100).map(lambda data: Frame(DATA, 0, SIBLING, data))
FRAMES = st.one_of(
    st.builds(Frame, st.just(DATA), FLAGS, OTHER_STREAMS, PAYLOADS),
    st.builds(Frame, st.just(HEADERS_FRAME), FLAGS, OTHER_STREAMS, HEADER_BLOCKS),
    st.builds(Frame, st.just(RST_STREAM), FLAGS, OTHER_STREAMS, NUMBERS),
    st.builds(Frame, st.just(SETTINGS), st.sampled_from([0, 1]), st.just(0), SETTINGS_PAYLOADS),
    st.builds(Frame, st.just(PUSH_PROMISE), FLAGS, OTHER_STREAMS, st.tuples(NUMBERS, HEADER_BLOCKS).map(b"".join)),
    st.builds(Frame, st.just(PING), st.sampled_from([0, 1]), st.just(0), st.just(bytes(8))),
    st.builds(Frame, st.just(GOAWAY), FLAGS, st.just(0), st.tuples(NUMBERS, NUMBERS).map(b"".join)),
    st.builds(Frame, st.just(WINDOW_UPDATE), FLAGS, st.just(0) | OTHER_STREAMS, NUMBERS),
    st.builds(Frame, st.just(CONTINUATION), FLAGS, OTHER_STREAMS, HEADER_BLOCKS),
    st.builds(Frame, st.integers(0, 20), FLAGS, st.just(0) | OTHER_STREAMS, st.binary(max_size=40)),
)
# Valid frames, so that a script does not end with an error at once.
VALID_FRAMES = st.sampled_from(
    [
        Frame(HEADERS_FRAME, END_HEADERS, 3, STATUS_200),
        Frame(HEADERS_FRAME, END_HEADERS, 5, STATUS_200),
        Frame(DATA, 0, 3, b"data"),
        Frame(DATA, 0, 5, bytes(10_000)),
        Frame(DATA, 8, 3, b"\x09" + bytes(20)),
        Frame(DATA, 1, 3, b"the end"),
        Frame(RST_STREAM, 0, 5, (8).to_bytes(4)),
        Frame(SETTINGS, 0, 0, b"\0\x04" + (10).to_bytes(4)),
        Frame(PING, 0, 0, b"12345678"),
        Frame(WINDOW_UPDATE, 0, 0, (1000).to_bytes(4)),
    ]
)
ACTS = st.builds(Act, st.sampled_from(["request", "close"]), st.integers(0, 5))
STEPS = st.lists(SIBLING_DATA | VALID_FRAMES | VALID_FRAMES | ACTS | FRAMES, max_size=20).map(tuple)
CUTS = st.integers(0, 20)


@given(st.builds(Script, STEPS, reads=st.booleans(), closes=st.booleans(), cuts=CUTS))
def test_any_frames_in_any_order_keep_the_properties(script):
    run(script)


@given(st.lists(SIBLING_DATA | VALID_FRAMES | ACTS, max_size=30).map(tuple), CUTS)
def test_valid_frames_in_any_order_never_cost_the_sibling_a_byte(steps, cuts):
    outcome = run(Script(steps, cuts=cuts))
    if outcome.closed_by is None:
        assert outcome.sibling == Script(steps).sibling_data


@given(STEPS, st.integers(min_value=0), st.booleans())
def test_frames_that_end_at_any_byte_keep_the_properties(steps, at, closes):
    wire = b"".join(bytes(step) for step in steps if isinstance(step, Frame))
    run(Script((wire[: at % (len(wire) + 1)],), closes=closes))


@given(st.binary(max_size=200), st.booleans(), CUTS)
def test_random_bytes_keep_the_properties(data, sends_settings, cuts):
    run(Script((data,), sends_settings=sends_settings, cuts=cuts))


@given(STEPS, CUTS)
def test_frames_before_the_peers_settings_keep_the_properties(steps, cuts):
    run(Script(steps, sends_settings=False, cuts=cuts))


def test_the_seeds_of_the_fuzzer_keep_the_properties():
    seeds = list(connection.seeds())
    assert len(seeds) > 50
    for seed in seeds:
        connection.check(seed)


ZERO_WINDOW = Frame(SETTINGS, 0, 0, b"\0\x04" + bytes(4))
FLOODS = {
    "PING": Frame(PING, 0, 0, bytes(8)),
    "SETTINGS": Frame(SETTINGS, 0, 0),
    "SETTINGS with a window of 0": ZERO_WINDOW,
    "empty DATA": Frame(DATA, 0, 3),
    "DATA for a stream that is not read": Frame(DATA, 0, 5, b"x"),
    "padding": Frame(DATA, 8, 3, b"\xff" + bytes(255)),
    "WINDOW_UPDATE": Frame(WINDOW_UPDATE, 0, 0, (1).to_bytes(4)),
    "RST_STREAM": Frame(RST_STREAM, 0, 3, bytes(4)),
    "PRIORITY": Frame(2, 0, 3, bytes(5)),
    "GOAWAY": Frame(GOAWAY, 0, 0, (2**31 - 1).to_bytes(4) + bytes(4)),
    "a frame of an unknown type": Frame(99, 0, 3, bytes(100)),
    "informational responses": Frame(HEADERS_FRAME, END_HEADERS, 3, b"\x48\x03103"),
}


@pytest.mark.parametrize("reads", [True, False], ids=["replies are read", "replies are not read"])
@pytest.mark.parametrize("frame", FLOODS.values(), ids=FLOODS)
def test_a_flood_of_frames_has_a_memory_limit_and_does_not_disturb_the_sibling(frame, reads):
    opened = [Frame(HEADERS_FRAME, END_HEADERS, 5, STATUS_200)]
    if frame.kind == DATA:
        opened.append(Frame(HEADERS_FRAME, END_HEADERS, 3, STATUS_200))
    # As many as a peer may send within a second: see test_hostile_peer.py for more. The script sends a few itself.
    count = 1000 if frame.kind == DATA else min(1000, LIMITS.get(frame.kind, OTHER_LIMIT)) - 10
    steps = (*opened, Frame(DATA, 0, SIBLING, b"before"), *[frame] * count, Frame(DATA, 0, SIBLING, b"after"))
    outcome = run(Script(steps, reads=reads, cuts=7))
    assert outcome.closed_by is None
    assert outcome.sibling == b"beforeafter"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([Frame(HEADERS_FRAME, 0, 3, STATUS_200), *[Frame(CONTINUATION, 0, 3, b"")] * 3000], "broke"),
        ([Frame(HEADERS_FRAME, 0, 3, STATUS_200), *[Frame(CONTINUATION, 0, 3, bytes(16_000))] * 70], "header block"),
        ([Frame(HEADERS_FRAME, 0, 3, STATUS_200), Frame(PING, 0, 0, bytes(8))], "broke"),
        ([Frame(WINDOW_UPDATE, 0, 0, bytes(4))], "broke"),
        ([Frame(WINDOW_UPDATE, 0, 0, (2**31 - 1).to_bytes(4))], "broke"),
        ([Frame(RST_STREAM, 0, 0, bytes(4))], "broke"),
        ([Frame(DATA, 0, 5, bytes(16_385))], "broke"),
        ([Frame(DATA, 0, 1001, b"unknown stream")], "broke"),
        ([Frame(DATA, 8, 3, b"\x09")], "broke"),
        ([Frame(SETTINGS, 0, 0, b"\0\x04" + (2**31).to_bytes(4))], "broke"),
        ([Frame(SETTINGS, 0, 0, b"\0\x05" + bytes(4))], "broke"),
        ([Frame(SETTINGS, 0, 3)], "broke"),
        ([Frame(PING, 0, 0, bytes(7))], "broke"),
        ([Frame(PUSH_PROMISE, END_HEADERS, 3, (2).to_bytes(4) + STATUS_200)], "broke"),
        ([Frame(HEADERS_FRAME, END_HEADERS, 3, b"\x3f\xe1\xff\xff\xff\x0f")], "broke"),
    ],
    ids=[
        "many empty CONTINUATION frames", "headers that are too large", "a frame between HEADERS and CONTINUATION",
        "WINDOW_UPDATE of 0", "window overflow", "RST_STREAM of stream 0", "a frame that is too large",
        "DATA of an unknown stream", "padding longer than the frame", "a window setting that is too large",
        "a frame size setting of 0", "SETTINGS on a stream", "a short PING", "PUSH_PROMISE", "an HPACK table too large",
    ],
)  # fmt: skip
def test_a_violation_of_the_protocol_ends_the_connection_with_a_transport_error(steps, message):
    valid = Frame(DATA, 0, SIBLING, b"data before it")
    outcome = run(Script((valid, Act("request"), *steps), cuts=5))
    assert type(outcome.closed_by) is TransportError
    assert message in str(outcome.closed_by)
    assert outcome.sibling == b"data before it"


@pytest.mark.parametrize(
    ("steps", "stays_open"),
    [
        ([Frame(WINDOW_UPDATE, 0, 3, bytes(4))], False),
        ([Frame(WINDOW_UPDATE, 0, 3, (2**31 - 1).to_bytes(4))], False),
        ([Frame(RST_STREAM, 0, 3, (2).to_bytes(4))], True),
        ([Frame(RST_STREAM, 0, 1001, bytes(4))], True),
        ([Act("close", 0), Frame(DATA, 0, 3, b"late"), Frame(RST_STREAM, 0, 3, bytes(4))], True),
        ([ZERO_WINDOW, Act("request", 0)], True),
        ([Frame(GOAWAY, 0, 0, (SIBLING).to_bytes(4) + bytes(4))], True),
    ],
    ids=[
        "WINDOW_UPDATE of 0",
        "stream window overflow",
        "RST_STREAM",
        "RST_STREAM of an unknown stream",
        "late DATA of a closed stream",
        "a window setting of 0",
        "GOAWAY",
    ],
)
def test_frames_for_another_stream_leave_the_sibling_complete_or_end_the_connection(steps, stays_open):
    outcome = run(Script((*steps, Frame(DATA, 0, SIBLING, b"all of it")), cuts=1))
    if stays_open:
        assert outcome.closed_by is None
    assert outcome.sibling == b"all of it" or outcome.closed_by is not None


def test_goaway_with_a_lower_last_stream_id_ends_the_sibling():
    outcome = run(Script((Frame(GOAWAY, 0, 0, bytes(8)), Act("request"), Frame(DATA, 0, SIBLING, b"lost"))))
    assert outcome.sibling == b""
    assert all(isinstance(error, GoAwayError) for error in outcome.errors)


class TestProperties:
    """Each property fails if the code breaks it."""

    def check(self, message, *steps, **options):
        with pytest.RaisesGroup(pytest.RaisesExc(AssertionError, match=message), flatten_subgroups=True):
            run(Script(steps, **options))

    def test_a_connection_that_loses_data_is_detected(self, monkeypatch):
        monkeypatch.setattr(ResponseStream, "on_data", lambda *_: None)
        self.check("the sibling got 0 of 4", Frame(DATA, 0, SIBLING, b"data"))

    def test_a_window_that_opens_before_the_data_is_read_is_detected(self, monkeypatch):
        def on_data(self, chunks, size, padding):
            original(self, chunks, size, padding)
            self._open_window(size)

        original = ResponseStream.on_data
        monkeypatch.setattr(ResponseStream, "on_data", on_data)
        opened = Frame(HEADERS_FRAME, END_HEADERS, 5, STATUS_200)
        self.check("more than its window", opened, *[Frame(DATA, 0, 5, bytes(16_000))] * 10, cuts=7)

    def test_replies_without_a_memory_limit_are_detected(self, monkeypatch):
        monkeypatch.setattr(http2, "MAX_UNSENT", 2**30)
        monkeypatch.setattr(peer, "MAX_UNSENT", 1000)
        monkeypatch.setattr(peer, "_READING", 1000)
        self.check("without bound", *[Frame(PING, 0, 0, bytes(8))] * 1000, reads=False)

    def test_an_error_that_is_not_efos_is_detected(self, monkeypatch):
        monkeypatch.setattr(http2, "_STATUS", None)
        with pytest.RaisesGroup(AttributeError, flatten_subgroups=True):
            run(Script(()))
