"""GOAWAY and the DATA of known streams are split off, however the bytes are cut; all other bytes pass unchanged."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from efo.protocol.frame_splitter import MAX_JOINED, Data, FrameSplitter, GoAwayFrame
from efo.protocol.native import STEP

DATA, HEADERS, SETTINGS, PUSH_PROMISE, PING, GOAWAY, CONTINUATION = 0, 1, 4, 5, 6, 7, 9
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
KNOWN = {1, 3}


def frame(kind, payload=b"", *, stream_id=0, flags=0):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream_id.to_bytes(4) + payload


def goaway(last_stream_id, code=0, debug=b"", **header):
    return frame(GOAWAY, last_stream_id.to_bytes(4) + code.to_bytes(4) + debug, **header)


def read(*pieces, known=frozenset()):
    """Return the output of the splitter for these pieces: adjacent bytes, and adjacent DATA of a stream, are joined."""
    splitter = FrameSplitter(known)
    return joined(item for piece in pieces for item in split(splitter, piece))


def split(splitter, piece):
    """Yield what a connection gets of a piece: by the native step if it is there, as far as it splits it."""
    at = 0
    while at < len(piece) and (found := splitter.data_alone(piece, at, 3)) is not None:
        streams, at = found
        for stream_id, size, chunks in streams:
            assert size == sum(map(len, chunks))
            yield from (Data(stream_id, chunk) for chunk in chunks)
    yield from splitter.receive_data(piece[at:])


def joined(items):
    out = []
    for item in items:
        match item, out[-1:]:
            case bytes(), [bytes() as last]:
                out[-1] = last + item
            case Data(stream_id, content), [Data(same, last)] if same == stream_id:
                out[-1] = Data(stream_id, last + content)
            case _:
                out.append(item)
    return out


def one_by_one(data):
    return [bytes([byte]) for byte in data]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (goaway(5), [GoAwayFrame(5, 0)]),
        (goaway(2**31 - 1, 11, b"calm down"), [GoAwayFrame(2**31 - 1, 11)]),
        (goaway(2**32 - 1), [GoAwayFrame(2**31 - 1, 0)]),  # the highest bit is reserved
        (goaway(5, flags=0xFF), [GoAwayFrame(5, 0)]),
        (goaway(9) + goaway(7), [GoAwayFrame(9, 0), GoAwayFrame(7, 0)]),
        (
            frame(SETTINGS) + goaway(5) + frame(DATA, b"x" * 100, stream_id=1),
            [frame(SETTINGS), GoAwayFrame(5, 0), frame(DATA, b"x" * 100, stream_id=1)],
        ),
        # The payload of another frame may look like a GOAWAY, also in a frame whose length needs all three bytes.
        (
            frame(PING, bytes(100) + goaway(5) + bytes(0x10000 - len(goaway(5)))),
            [frame(PING, bytes(100) + goaway(5) + bytes(0x10000 - len(goaway(5))))],
        ),
        (frame(DATA, goaway(5), stream_id=1), [frame(DATA, goaway(5), stream_id=1)]),
        (frame(GOAWAY, bytes(16_384)), [GoAwayFrame(0, 0)]),
    ],
)
def test_goaway_is_removed_from_the_stream(data, expected):
    assert read(data) == expected
    assert read(*one_by_one(data)) == expected


@pytest.mark.parametrize(
    "malformed",
    [
        frame(GOAWAY, bytes(7)),
        frame(GOAWAY),
        frame(GOAWAY, bytes(16_385)),
        goaway(5, stream_id=1),
    ],
    ids=["too short", "empty", "too long", "on a stream"],
)
def test_a_malformed_goaway_is_passed_to_h2(malformed):
    assert read(malformed + frame(PING, bytes(8))) == [malformed + frame(PING, bytes(8))]


def test_bytes_of_an_incomplete_other_frame_are_passed_at_once():
    data = frame(DATA, b"x" * 100, stream_id=1)
    assert b"".join(FrameSplitter().receive_data(data[:50])) == data[:50]


def test_an_incomplete_goaway_is_buffered():
    assert read(goaway(5, debug=b"x" * 1000)[:-1]) == []


class TestData:
    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (frame(DATA, b"content", stream_id=1), [Data(1, b"content")]),
            (frame(DATA, b"a", stream_id=1) + frame(DATA, b"b", stream_id=1), [Data(1, b"ab")]),
            (frame(DATA, b"a", stream_id=1) + frame(DATA, b"b", stream_id=3), [Data(1, b"a"), Data(3, b"b")]),
            (frame(DATA, b"x" * 16_384, stream_id=3), [Data(3, b"x" * 16_384)]),
            (frame(DATA, b"content", stream_id=2**31 + 1), [Data(1, b"content")]),  # the highest bit is reserved
            (frame(DATA, b"content", stream_id=1, flags=0xF6), [Data(1, b"content")]),  # flags without a meaning
            (
                frame(PING, bytes(8)) + frame(DATA, b"a", stream_id=1) + frame(PING, bytes(8)),
                [frame(PING, bytes(8)), Data(1, b"a"), frame(PING, bytes(8))],
            ),
            (
                frame(DATA, b"a", stream_id=1) + goaway(5) + frame(DATA, b"b", stream_id=1),
                [Data(1, b"a"), GoAwayFrame(5, 0), Data(1, b"b")],
            ),
            (
                frame(HEADERS, b"h", stream_id=3, flags=END_HEADERS) + frame(DATA, b"a", stream_id=1),
                [frame(HEADERS, b"h", stream_id=3, flags=END_HEADERS), Data(1, b"a")],
            ),
            (
                frame(HEADERS, b"h", stream_id=3)
                + frame(CONTINUATION, b"h", stream_id=3, flags=END_HEADERS)
                + frame(DATA, b"a", stream_id=1),
                [
                    frame(HEADERS, b"h", stream_id=3) + frame(CONTINUATION, b"h", stream_id=3, flags=END_HEADERS),
                    Data(1, b"a"),
                ],
            ),
            (  # the end of the stream is not the end of its header block
                frame(HEADERS, b"h", stream_id=3, flags=END_STREAM) + frame(DATA, b"a", stream_id=1),
                [frame(HEADERS, b"h", stream_id=3, flags=END_STREAM) + frame(DATA, b"a", stream_id=1)],
            ),
        ],
    )
    def test_the_data_of_known_streams_is_split_off(self, data, expected):
        assert read(data, known=KNOWN) == expected
        assert read(*one_by_one(data), known=KNOWN) == expected
        assert read(bytearray(data), known=KNOWN) == expected

    @pytest.mark.parametrize(
        "data",
        [
            frame(DATA, b"content", stream_id=5),
            frame(DATA, b"content"),
            frame(DATA, b"content", stream_id=1, flags=END_STREAM),
            frame(DATA, b"\x03content" + bytes(3), stream_id=1, flags=PADDED),
            frame(DATA, bytes(16_385), stream_id=1),
            frame(HEADERS, b"h", stream_id=3) + frame(DATA, b"content", stream_id=1),
            frame(PUSH_PROMISE, b"h", stream_id=3) + frame(DATA, b"content", stream_id=1),
            frame(HEADERS, b"h", stream_id=3)
            + frame(CONTINUATION, b"h", stream_id=3)
            + frame(DATA, b"content", stream_id=1),
        ],
        ids=[
            "unknown stream", "stream 0", "END_STREAM", "padding", "too long", "after HEADERS", "after PUSH_PROMISE",
            "after CONTINUATION",
        ],
    )  # fmt: skip
    def test_other_data_is_passed_to_h2(self, data):
        assert read(data, known=KNOWN) == [data]
        assert read(*one_by_one(data), known=KNOWN) == [data]

    def test_the_data_of_each_stream_is_joined_up_to_a_limit(self):
        wire = b"".join(
            frame(DATA, bytes([n]) * 16_384, stream_id=1) + frame(DATA, bytes([n]) * 100, stream_id=3)
            for n in range(10)
        )
        out = list(FrameSplitter(KNOWN).receive_data(wire))
        assert [len(item.content) for item in out if item.stream_id == 1] == [MAX_JOINED, MAX_JOINED, 2 * 16_384]
        assert [len(item.content) for item in out if item.stream_id == 3] == [1000]
        for stream_id, size in ((1, 16_384), (3, 100)):
            got = b"".join(item.content for item in out if item.stream_id == stream_id)
            assert got == b"".join(bytes([n]) * size for n in range(10))

    def test_an_incomplete_frame_of_a_known_stream_is_kept(self):
        data = frame(DATA, b"content", stream_id=1)
        assert read(data[:-1], known=KNOWN) == []
        assert read(data[:-1], data[-1:], known=KNOWN) == [Data(1, b"content")]

    @pytest.mark.parametrize("cut", range(17))
    def test_a_stream_that_ends_before_its_frame_is_complete_is_left_to_h2(self, cut):
        data = frame(DATA, b"content", stream_id=1)
        known = {1}
        splitter = FrameSplitter(known)
        out = list(split(splitter, data[:cut]))
        known.clear()
        out += split(splitter, data[cut:])
        assert b"".join(out) == data if cut < len(data) else out == [Data(1, b"content")]

    def test_a_stream_that_ends_by_the_bytes_before_is_left_to_h2(self):
        ended, late = frame(SETTINGS, b"123456"), frame(DATA, b"late", stream_id=1)
        known = {1, 3}
        out = []
        for item in FrameSplitter(known).receive_data(frame(DATA, b"1", stream_id=1) + ended + late):
            out.append(item)
            if item == ended:
                known.remove(1)
        assert out == [Data(1, b"1"), ended, late]

    def test_a_stream_that_starts_by_the_bytes_before_may_be_left_to_h2(self):
        started, data = frame(SETTINGS, b"123456"), frame(DATA, b"1", stream_id=1)
        known = set()
        splitter = FrameSplitter(known)
        assert list(splitter.receive_data(started + data)) == [started + data]
        known.add(1)
        assert list(splitter.receive_data(data)) == [Data(1, b"1")]


class TestOnlyData:
    WHOLE = frame(DATA, b"content", stream_id=1)

    @pytest.mark.parametrize("size", [0, 1, 16_384])
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_the_whole_of_one_frame_of_a_known_stream_is_its_content(self, size, kind):
        content = b"x" * size
        splitter = FrameSplitter(KNOWN)
        assert splitter.only_data(kind(frame(DATA, content, stream_id=3))) == Data(3, content)
        assert splitter.partial == b""

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            WHOLE[:8],
            WHOLE[:-1],
            WHOLE + b"x",
            b"\1" + WHOLE[1:],  # longer by 64 KiB than what is here
            WHOLE + frame(DATA, b"content", stream_id=1),
            frame(DATA, bytes(16_385), stream_id=1),
            frame(DATA, b"content", stream_id=5),
            frame(DATA, b"content", stream_id=1, flags=END_STREAM),
            frame(DATA, b"content", stream_id=1, flags=PADDED),
            frame(PING, bytes(8)),
            frame(HEADERS, b"content", stream_id=1),
            goaway(5),
        ],
    )
    def test_anything_else_changes_nothing(self, data):
        splitter = FrameSplitter(KNOWN)
        assert splitter.only_data(data) is None
        assert list(splitter.receive_data(self.WHOLE)) == [Data(1, b"content")]

    @pytest.mark.parametrize("before", [WHOLE[:3], frame(PING, bytes(8))[:-1], frame(HEADERS, b"h", stream_id=3)])
    def test_it_is_something_else_within_another_frame_or_a_header_block(self, before):
        splitter = FrameSplitter(KNOWN)
        list(splitter.receive_data(before))
        assert splitter.only_data(self.WHOLE) is None


class FakeStep:
    """A native step that has one answer. `asked`: the arguments of each call."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def split_data(self, *arguments):
        self.asked.append(arguments)
        return self.answer


class TestDataAlone:
    """What the connection does with what a native step has split. A frame of one byte of content has ten bytes."""

    SPLIT = ((1, 2, [b"a", b"b"]),)
    WIRE = frame(DATA, b"a", stream_id=1) + frame(DATA, b"b", stream_id=1)

    def test_the_start_of_a_frame_after_the_others_is_kept_for_the_next_call(self):
        step = FakeStep((self.SPLIT, 4, False))
        splitter = FrameSplitter(KNOWN, step)
        assert splitter.data_alone(b"before" + self.WIRE + b"rest", 6, 7) == (self.SPLIT, 30)
        assert splitter.partial == b"rest"
        splitter.data_alone(self.WIRE, 0, 8)
        assert step.asked == [
            (b"before" + self.WIRE + b"rest", 6, b"", KNOWN, MAX_JOINED, 7),
            (self.WIRE, 0, b"rest", KNOWN, MAX_JOINED, 8),
        ]

    def test_frames_beyond_the_limit_are_left_for_the_next_call(self):
        splitter = FrameSplitter(KNOWN, FakeStep((self.SPLIT, 10, True)))
        assert splitter.data_alone(self.WIRE, 0, 1) == (self.SPLIT, 10)
        assert splitter.partial == b""

    def test_a_read_without_a_partial_frame_at_its_end_is_split_to_its_end(self):
        splitter = FrameSplitter(KNOWN, FakeStep((self.SPLIT, 0, False)))
        assert splitter.data_alone(self.WIRE, 0, 9) == (self.SPLIT, 20)
        assert splitter.partial == b""

    def test_what_the_step_does_not_split_changes_nothing(self):
        splitter = FrameSplitter(KNOWN, FakeStep(None))
        list(splitter.receive_data(self.WIRE[:4]))
        assert splitter.data_alone(self.WIRE[4:], 0, 9) is None
        assert splitter.partial == self.WIRE[:4]

    @pytest.mark.parametrize(
        ("before", "data"),
        [
            (b"", bytearray(WIRE)),
            (frame(PING, bytes(8))[:-1], WIRE),  # the rest of another frame has not arrived
            (frame(HEADERS, b"h", stream_id=3), WIRE),  # a header block goes on
        ],
    )
    def test_the_step_is_not_asked_where_the_bytes_are_not_data_alone(self, before, data):
        step = FakeStep((self.SPLIT, 0, False))
        splitter = FrameSplitter(KNOWN, step)
        list(splitter.receive_data(before))
        assert splitter.data_alone(data, 0, 9) is None
        assert step.asked == []


frames = st.one_of(
    st.builds(
        frame,
        st.just(DATA),
        st.binary(max_size=40) | st.sampled_from([bytes(16_384), bytes(16_385)]),
        stream_id=st.sampled_from([1, 3, 5]),
        flags=st.sampled_from([0, 0, 0, END_STREAM, PADDED, 0x40]),
    ),
    st.builds(
        frame,
        st.integers(0, 10).filter(lambda kind: kind != GOAWAY),
        st.binary(max_size=40),
        stream_id=st.integers(0, 9),
    ),
    st.builds(goaway, st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=20)),
    st.builds(frame, st.just(GOAWAY), st.binary(max_size=7)),
)


@given(st.lists(frames, max_size=8).map(b"".join), st.lists(st.integers(min_value=0), max_size=10))
def test_the_output_is_the_same_however_the_bytes_are_split(data, cuts):
    bounds = [0, *sorted(at % (len(data) + 1) for at in cuts), len(data)]
    pieces = [data[low:high] for low, high in pairwise(bounds)]
    assert read(*pieces) == read(data)
    assert by_stream(read(*pieces, known=KNOWN)) == by_stream(read(data, known=KNOWN))


def by_stream(items):
    """Return the DATA of each known stream between other frames: the order of two streams' DATA may change."""
    out = [{}]
    for item in items:
        if isinstance(item, Data):
            out[-1][item.stream_id] = out[-1].get(item.stream_id, b"") + item.content
        else:
            out += [item, {}]
    return out


@given(st.lists(frames, max_size=8))
def test_only_valid_goaway_frames_are_removed(sent):
    expected = [
        GoAwayFrame(int.from_bytes(f[9:13]) & 0x7FFF_FFFF, int.from_bytes(f[13:17])) for f in sent if is_valid_goaway(f)
    ]
    out = read(b"".join(sent))
    assert [item for item in out if isinstance(item, GoAwayFrame)] == expected
    assert b"".join(item for item in out if isinstance(item, bytes)) == b"".join(
        f for f in sent if not is_valid_goaway(f)
    )


def is_valid_goaway(data):
    return data[3] == GOAWAY and len(data) >= 17


@given(st.lists(frames, max_size=8).map(b"".join), st.lists(st.integers(min_value=0), max_size=10))
@pytest.mark.skipif(STEP is None, reason="efo-native is not installed")
def test_the_native_step_splits_what_the_python_step_splits(data, cuts):
    bounds = [0, *sorted(at % (len(data) + 1) for at in cuts), len(data)]
    pieces = [data[low:high] for low, high in pairwise(bounds)]
    reference = FrameSplitter(KNOWN, None)
    expected = joined(item for piece in pieces for item in reference.receive_data(piece))
    assert by_stream(read(*pieces, known=KNOWN)) == by_stream(expected)


@pytest.mark.skipif(STEP is None, reason="efo-native is not installed")
@pytest.mark.parametrize("sizes", [(16_384,) * 9, (5, 16_384) * 6, (16_384, 5) * 6, (100,) * 9])
def test_the_native_step_returns_the_same_chunks_in_the_same_order(sizes):
    wire = b"".join(frame(DATA, bytes([n]) * size, stream_id=1 + 2 * (n % 2)) for n, size in enumerate(sizes))
    expected = list(FrameSplitter(KNOWN, None).receive_data(wire))
    streams, end = FrameSplitter(KNOWN).data_alone(wire, 0, 100)
    assert end == len(wire)
    assert [id_ for id_, _, _ in streams] == list(dict.fromkeys(item.stream_id for item in expected))
    for stream_id, _, chunks in streams:
        assert chunks == [item.content for item in expected if item.stream_id == stream_id]
