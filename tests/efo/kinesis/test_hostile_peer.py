"""A peer that floods the connection with frames: the loop turns all the time, and the connection ends with a reason."""

from __future__ import annotations

import struct

import hpack
import pytest
import trio
import trio.testing

from efo.kinesis.http2 import Http2
from efo.protocol.frame_meter import MAX_STEP
from tests.efo.kinesis.test_connection import HEADERS, open_response
from tests.step_meter import BOUND, slowest_step

READ = 256 * 1024


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream_id: int = 0) -> bytes:
    return struct.pack(">BHBBI", len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream_id) + payload


def a_read_of(one: bytes) -> bytes:
    return one * (READ // len(one))


def settings(count: int, start: int = 0) -> bytes:
    return frame(4, b"".join(struct.pack(">HI", 1000 + start + n, 1) for n in range(count)))


INFORMATIONAL = hpack.Encoder().encode([(":status", "103")])
FLOODS = {
    "distinct settings": (b"".join(settings(2730, 2730 * n) for n in range(16)), "settings in a frame"),
    "small settings": (b"".join(settings(1, n) for n in range(READ // 15)), "SETTINGS frames"),
    "PING": (a_read_of(frame(6, bytes(8))), "PING frames"),
    "acks of PING": (a_read_of(frame(6, bytes(8), flags=1)), "PING frames"),
    "unknown": (a_read_of(frame(77)), "unknown frames"),
    "PRIORITY": (a_read_of(frame(2, bytes(5), stream_id=7)), "PRIORITY frames"),
    "WINDOW_UPDATE": (a_read_of(frame(8, b"\0\0\0\1")), "WINDOW_UPDATE frames"),
    "RST_STREAM": (a_read_of(frame(3, bytes(4), stream_id=1)), "RST_STREAM frames"),
    "GOAWAY": (a_read_of(frame(7, struct.pack(">II", 99, 0))), "GOAWAY frames"),
    "empty DATA": (a_read_of(frame(0, stream_id=1)), "empty DATA frames"),
    "small DATA": (a_read_of(frame(0, b"x", stream_id=1)), None),
    "padded DATA": (a_read_of(frame(0, b"\1x\0", flags=8, stream_id=1)), None),
    "informational responses": (a_read_of(frame(1, INFORMATIONAL, flags=4, stream_id=3)), "HEADERS frames"),
    "a header block": (frame(1, bytes(16_384), stream_id=3) + a_read_of(frame(9, bytes(16_384), stream_id=3)), "block"),
}


class Meter(trio.abc.Instrument):
    """How many frames the connection gave to h2 in one step of a task, at most."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.now = 0

    def handled(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            at += 9 + int.from_bytes(data[at : at + 3])
            self.now += 1
        self.all += self.now
        self.most = max(self.most, self.now)


@pytest.fixture
def meter(monkeypatch) -> Meter:
    meter = Meter()
    real = Http2.receive_data

    def receive_data(self, data):
        meter.handled(bytes(data))
        return real(self, data)

    monkeypatch.setattr(Http2, "receive_data", receive_data)
    return meter


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_of_frames_is_handled_in_small_steps_or_ends_the_connection(
    make_connection, meter, flood, autojump_clock
):
    data, reason = FLOODS[flood]
    connection, peer = await make_connection()
    response = await open_response(connection, peer)  # stream 1
    await connection.request(HEADERS, b"")  # stream 3
    await peer.settle()
    trio.lowlevel.add_instrument(meter)
    try:
        for _ in range(3):
            if connection.closed_by is None:
                peer.send_raw(data)
            await trio.testing.wait_all_tasks_blocked()
    finally:
        trio.lowlevel.remove_instrument(meter)
    assert meter.most <= 2 * MAX_STEP
    if reason is None:
        assert connection.closed_by is None
        assert response.buffered > 0
    else:
        assert reason in str(connection.closed_by)
        assert meter.all < 12_000


@pytest.mark.parametrize("flood", FLOODS)
async def test_no_step_under_a_flood_takes_long(make_connection, flood, autojump_clock):
    async def scenario(meter):
        connection, peer = await make_connection()
        await open_response(connection, peer)
        await connection.request(HEADERS, b"")
        await peer.settle()
        with meter.measure():
            for _ in range(3):
                if connection.closed_by is None:
                    peer.send_raw(FLOODS[flood][0])
                await trio.testing.wait_all_tasks_blocked()

    slowest = await slowest_step(scenario)
    assert slowest.seconds <= BOUND, slowest


async def test_replies_to_a_flood_do_not_grow_memory(make_connection, autojump_clock):
    """The peer does not read: the steps of a read wait as reads do."""
    connection, peer = await make_connection()
    for _ in range(100):
        peer.send_raw(frame(6, bytes(8)) * 400)
        await trio.sleep(1.1)
    assert connection.closed_by is None
    assert connection.unsent < 256 * 1024
