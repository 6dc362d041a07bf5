"""GOAWAY frames are taken out of the stream, however it is cut; everything else goes on untouched."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from efo.protocol.goaway import GoAway, GoAwayFilter

DATA, SETTINGS, PING, GOAWAY = 0, 4, 6, 7


def frame(kind, payload=b"", *, stream_id=0, flags=0):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream_id.to_bytes(4) + payload


def goaway(last_stream_id, code=0, debug=b"", **header):
    return frame(GOAWAY, last_stream_id.to_bytes(4) + code.to_bytes(4) + debug, **header)


def read(*pieces):
    """What comes out, with neighbouring runs of bytes put together."""
    goaway_filter = GoAwayFilter()
    out = []
    for piece in pieces:
        for item in goaway_filter.receive_data(piece):
            if isinstance(item, bytes) and out and isinstance(out[-1], bytes):
                out[-1] += item
            else:
                out.append(item)
    return out


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (goaway(5), [GoAway(5, 0)]),
        (goaway(2**31 - 1, 11, b"calm down"), [GoAway(2**31 - 1, 11)]),
        (goaway(2**32 - 1), [GoAway(2**31 - 1, 0)]),  # the first bit is reserved
        (goaway(5, flags=0xFF), [GoAway(5, 0)]),
        (goaway(9) + goaway(7), [GoAway(9, 0), GoAway(7, 0)]),
        (
            frame(SETTINGS) + goaway(5) + frame(DATA, b"x" * 100, stream_id=1),
            [frame(SETTINGS), GoAway(5, 0), frame(DATA, b"x" * 100, stream_id=1)],
        ),
        # What looks like a GOAWAY within another frame is none.
        (frame(DATA, goaway(5), stream_id=1), [frame(DATA, goaway(5), stream_id=1)]),
        (frame(GOAWAY, bytes(16_384)), [GoAway(0, 0)]),
    ],
)
def test_goaway_is_taken_out(data, expected):
    assert read(data) == expected
    assert read(*(bytes([byte]) for byte in data)) == expected


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
def test_a_malformed_goaway_is_left_to_h2(malformed):
    assert read(malformed + frame(PING, bytes(8))) == [malformed + frame(PING, bytes(8))]


def test_bytes_of_other_frames_are_not_held_back():
    data = frame(DATA, b"x" * 100, stream_id=1)
    assert b"".join(GoAwayFilter().receive_data(data[:50])) == data[:50]


def test_an_unfinished_goaway_is_held():
    assert read(goaway(5, debug=b"x" * 1000)[:-1]) == []


frames = st.one_of(
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
def test_any_cut_reads_the_same(data, cuts):
    bounds = [0, *sorted(at % (len(data) + 1) for at in cuts), len(data)]
    pieces = [data[low:high] for low, high in pairwise(bounds)]
    assert read(*pieces) == read(data)


@given(st.lists(frames, max_size=8))
def test_nothing_but_goaway_is_taken_out(sent):
    expected = [GoAway(int.from_bytes(f[9:13]) & 0x7FFF_FFFF, int.from_bytes(f[13:17])) for f in sent if is_sound(f)]
    out = read(b"".join(sent))
    assert [item for item in out if isinstance(item, GoAway)] == expected
    assert b"".join(item for item in out if isinstance(item, bytes)) == b"".join(f for f in sent if not is_sound(f))


def is_sound(data):
    return data[3] == GOAWAY and len(data) >= 17
