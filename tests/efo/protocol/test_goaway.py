"""GOAWAY frames are removed from the byte stream, however it is split; all other bytes pass unchanged."""

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
    """Return the output of the filter for these pieces, with adjacent bytes joined."""
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
        (goaway(2**32 - 1), [GoAway(2**31 - 1, 0)]),  # the highest bit is reserved
        (goaway(5, flags=0xFF), [GoAway(5, 0)]),
        (goaway(9) + goaway(7), [GoAway(9, 0), GoAway(7, 0)]),
        (
            frame(SETTINGS) + goaway(5) + frame(DATA, b"x" * 100, stream_id=1),
            [frame(SETTINGS), GoAway(5, 0), frame(DATA, b"x" * 100, stream_id=1)],
        ),
        # The payload of another frame may look like a GOAWAY.
        (frame(DATA, goaway(5), stream_id=1), [frame(DATA, goaway(5), stream_id=1)]),
        (frame(GOAWAY, bytes(16_384)), [GoAway(0, 0)]),
    ],
)
def test_goaway_is_removed_from_the_stream(data, expected):
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
def test_a_malformed_goaway_is_passed_to_h2(malformed):
    assert read(malformed + frame(PING, bytes(8))) == [malformed + frame(PING, bytes(8))]


def test_bytes_of_an_incomplete_other_frame_are_passed_at_once():
    data = frame(DATA, b"x" * 100, stream_id=1)
    assert b"".join(GoAwayFilter().receive_data(data[:50])) == data[:50]


def test_an_incomplete_goaway_is_buffered():
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
def test_the_output_is_the_same_however_the_bytes_are_split(data, cuts):
    bounds = [0, *sorted(at % (len(data) + 1) for at in cuts), len(data)]
    pieces = [data[low:high] for low, high in pairwise(bounds)]
    assert read(*pieces) == read(data)


@given(st.lists(frames, max_size=8))
def test_only_valid_goaway_frames_are_removed(sent):
    expected = [
        GoAway(int.from_bytes(f[9:13]) & 0x7FFF_FFFF, int.from_bytes(f[13:17])) for f in sent if is_valid_goaway(f)
    ]
    out = read(b"".join(sent))
    assert [item for item in out if isinstance(item, GoAway)] == expected
    assert b"".join(item for item in out if isinstance(item, bytes)) == b"".join(
        f for f in sent if not is_valid_goaway(f)
    )


def is_valid_goaway(data):
    return data[3] == GOAWAY and len(data) >= 17
