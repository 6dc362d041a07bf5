"""The work that a peer's frames cause is bounded: the size of a step, and the frames of each type within a second."""

from __future__ import annotations

import random
import re
import struct

import pytest

from efo.errors import TransportError
from efo.protocol.frame_meter import (
    _NAMES,
    LIMITS,
    MAX_HEADER_BLOCK,
    MAX_SETTINGS,
    MAX_SETTINGS_IN_ALL,
    MAX_STEP,
    OTHER_LIMIT,
    FrameMeter,
)
from tests.paths import ROOT

DATA, HEADERS, SETTINGS, PING, CONTINUATION, UNKNOWN = 0, 1, 4, 6, 9, 77
END_STREAM = 0x1


def frame(kind: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">BHBBI", len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, 1) + payload


@pytest.fixture
def meter() -> FrameMeter:
    return FrameMeter("peer:443")


def steps(meter: FrameMeter, data: bytes, now: float = 0.0) -> list[bytes]:
    return [bytes(step) for step in meter.steps(data, now)]


class TestSteps:
    @pytest.mark.parametrize("data", [b"", b"x", frame(DATA, bytes(16_384)) * 16, frame(PING, bytes(8)) * 10])
    def test_a_usual_read_is_one_step_and_not_copied(self, meter, data):
        [step] = meter.steps(data, 0.0)
        assert step is data

    def test_a_read_of_small_frames_is_cut_between_frames(self, meter):
        one = frame(DATA, b"x")
        found = steps(meter, one * 1000)
        assert found == [one * MAX_STEP] * 3 + [one * (1000 - 3 * MAX_STEP)]

    def test_a_step_ends_with_the_frame_that_makes_it_full_however_much_of_that_is_here(self, meter):
        one, last = frame(DATA, b"x"), frame(DATA, bytes(100))
        whole = one * (MAX_STEP - 1) + last
        assert steps(meter, whole) == [whole]
        assert steps(meter, whole[:-1]) == [whole[:-1]]
        assert steps(meter, whole[-1:] + one * MAX_STEP + b"x") == [whole[-1:] + one * MAX_STEP, b"x"]

    @pytest.mark.parametrize("cut", range(31))
    def test_what_passed_elsewhere_changes_nothing_of_what_comes_after_it(self, cut):
        whole, partial, later = frame(DATA, b"x" * 5), frame(DATA, b"x" * 21), [frame(PING, bytes(8))] * LIMITS[PING]
        rest = partial[cut:] + b"".join(later)
        read, passed = FrameMeter("p"), FrameMeter("p")
        assert steps(read, whole + partial[:cut]) == [whole + partial[:cut]]
        passed.passed(partial[:cut])
        assert steps(passed, rest) == steps(read, rest)
        for meter in (read, passed):
            with pytest.raises(TransportError, match="PING"):
                steps(meter, frame(PING, bytes(8)))

    @pytest.mark.parametrize(
        "one", [frame(PING, bytes(8)), frame(DATA, flags=END_STREAM), frame(SETTINGS), frame(DATA)]
    )
    def test_a_frame_without_headers_is_one_frame_of_work(self, one):
        count = min(MAX_STEP, LIMITS[one[3]])
        more = frame(DATA, b"x") * (MAX_STEP - count)
        assert steps(FrameMeter("p"), one * count + more + b"x") == [one * count + more, b"x"]

    def test_header_blocks_count_more(self, meter):
        one = frame(HEADERS, bytes(100))
        assert steps(meter, one * 40) == [one * 16, one * 16, one * 8]

    def test_a_frame_of_headers_counts_as_sixteen_others(self):
        headers, other = frame(HEADERS, bytes(100)), frame(DATA, b"x")
        assert steps(FrameMeter("p"), other * 16 + headers * 15 + other) == [other * 16 + headers * 15, other]
        assert steps(FrameMeter("p"), other * 15 + headers * 15 + other) == [other * 15 + headers * 15 + other]

    @pytest.mark.parametrize("seed", range(20))
    def test_any_cut_of_the_bytes_keeps_them_and_their_frames(self, seed):
        rng = random.Random(seed)
        frames = [frame(rng.choice([DATA, UNKNOWN]), bytes(rng.choice([1, 8, 300, 20_000]))) for _ in range(900)]
        data, whole, cut = b"".join(frames), FrameMeter("p"), FrameMeter("p")
        assert b"".join(steps(whole, data)) == data
        found, at = [], 0
        while at < len(data):
            end = at + rng.choice([1, 5, 9, 10_000, 200_000])
            found += steps(cut, data[at:end])
            at = end
        assert b"".join(found) == data
        assert whole._counts == cut._counts
        assert max(count_headers(step) for step in steps(FrameMeter("p"), data)) <= MAX_STEP


def count_headers(step: bytes) -> int:
    """Return how many frames begin in a step that begins with one."""
    at = count = 0
    while at < len(step):
        at += 9 + int.from_bytes(step[at : at + 3])
        count += 1
    return count


class TestLimits:
    @pytest.mark.parametrize(("kind", "limit"), [*LIMITS.items(), (UNKNOWN, OTHER_LIMIT)])
    def test_a_type_of_frame_has_a_limit_within_a_second(self, meter, kind, limit):
        for second in range(3):
            steps(meter, frame(kind) * limit, now=float(second))
        with pytest.raises(TransportError, match=rf"peer:443 sent more than {limit} .* frames within a second"):
            steps(meter, frame(kind), now=2.9)

    def test_unknown_types_share_a_limit(self, meter):
        with pytest.raises(TransportError, match="unknown frames"):
            steps(meter, b"".join(frame(kind) for kind in range(50, 200)) * 10)

    def test_data_with_content_has_no_limit_since_windows_bound_it(self, meter):
        steps(meter, frame(DATA, b"x") * 20_000 + frame(DATA, flags=END_STREAM) * 20_000)

    @pytest.mark.parametrize(
        ("one", "name"),
        [
            (frame(PING, bytes(8)), "PING"),
            (frame(PING, bytes(8), flags=END_STREAM), "PING"),  # of a PING, this flag is an acknowledgement
            (frame(SETTINGS), "SETTINGS"),
        ],
    )
    def test_a_frame_that_arrives_byte_by_byte_counts_once(self, meter, one, name):
        for byte in one * LIMITS[one[3]]:
            steps(meter, bytes([byte]))
        with pytest.raises(TransportError, match=name):
            steps(meter, one)

    def test_frames_of_data_whose_headers_arrive_in_parts_count_if_they_are_empty(self, meter):
        content, ending, empty = frame(DATA, b"x" * 300), frame(DATA, flags=END_STREAM), frame(DATA)
        for one, counted in ((content, {}), (ending, {}), (empty, {DATA: 1})):
            steps(meter, one[:8])
            steps(meter, one[8:])
            assert meter._counts == counted

    def test_settings_are_limited_in_a_frame_and_in_all(self, meter):
        most = frame(SETTINGS, bytes(6 * MAX_SETTINGS))
        with pytest.raises(TransportError, match=f"{MAX_SETTINGS + 1} settings in a frame"):
            steps(FrameMeter("p"), frame(SETTINGS, bytes(6 * (MAX_SETTINGS + 1))))
        for second in range(MAX_SETTINGS_IN_ALL // MAX_SETTINGS):
            steps(meter, most, now=float(second))
        rest = MAX_SETTINGS_IN_ALL % MAX_SETTINGS
        steps(meter, frame(SETTINGS, bytes(6 * rest + 5)), now=50.0)  # a part of a setting is none
        with pytest.raises(TransportError, match=f"1 settings in a frame and {MAX_SETTINGS_IN_ALL + 1} in all"):
            steps(meter, frame(SETTINGS, bytes(6)), now=100.0)

    def test_a_header_block_is_limited_over_its_frames(self, meter):
        piece = bytes(MAX_HEADER_BLOCK // 4)
        for _ in range(3):
            steps(meter, frame(HEADERS, piece) + frame(CONTINUATION, piece) * 3)
        with pytest.raises(TransportError, match="header block"):
            steps(meter, frame(CONTINUATION, b"x"))
        steps(FrameMeter("p"), frame(CONTINUATION, piece * 4))  # out of place, which h2 tells


def test_the_limits_of_what_frames_hold() -> None:
    assert (MAX_HEADER_BLOCK, MAX_SETTINGS, MAX_SETTINGS_IN_ALL) == (65_536, 64, 1000)


def test_the_page_tells_the_limits() -> None:
    rows = re.findall(r"^\| ([\w ]+) \| (\d+) \|$", (ROOT / "docs/read-modes.md").read_text(), re.MULTILINE)
    reported = {name: int(limit) for name, limit in rows}
    assert reported == {
        **{_NAMES[kind]: limit for kind, limit in LIMITS.items()},
        "all of unknown types together": OTHER_LIMIT,
    }
