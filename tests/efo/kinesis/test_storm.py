"""A storm of resets by both sides, beside a stream that gets every byte; no credit of any window is lost (R9)."""

import random

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from efo.errors import StreamResetError
from proofs.fuzz.peer import check_window

HEADERS = [(":method", "POST"), (":scheme", "https"), (":authority", "peer"), (":path", "/")]
STREAMS = 600
AT_ONCE = 40
STREAM_WINDOW = 32 * 1024
CONNECTION_WINDOW = 256 * 1024


async def read_on(stream):
    while await stream.receive():
        pass


class Storm:
    """Streams that come and go, each in its way; what ends them is told by `ends`."""

    def __init__(self, connection, peer, seed):
        self.connection = connection
        self.peer = peer
        self.rng = random.Random(seed)
        self.open = []
        self.ends = []

    async def step(self):
        """Open a stream, let some data come on any of them, read some, and end one when there are many."""
        answer = await self.connection.request(HEADERS, b"ask")
        await self.peer.settle()
        self.peer.respond(answer.stream_id)
        self.open.append(answer)
        for _ in range(3):
            stream = self.rng.choice(self.open)
            self.peer.send(stream.stream_id, bytes(self.rng.randrange(12_000)))
        await self.peer.settle()
        for stream in self.open:
            if stream.buffered and self.rng.random() < 0.3:
                await stream.receive()
        if len(self.open) >= AT_ONCE:
            await self.end(self.open.pop(self.rng.randrange(len(self.open))))

    async def end(self, stream):
        how = self.rng.choice([self.given_up, self.given_up_with_data_on_its_way, self.reset, self.ended, self.both])
        self.ends.append(how.__name__)
        await how(stream)
        stream.close()
        await self.peer.settle()

    async def given_up(self, stream):
        stream.close()

    async def given_up_with_data_on_its_way(self, stream):
        stream.close()
        self.peer.send(stream.stream_id, bytes(5000))  # the reset has not arrived there

    async def reset(self, stream):
        self.peer.send(stream.stream_id, b"before")
        self.peer.h2.reset_stream(stream.stream_id, ErrorCodes.INTERNAL_ERROR)
        await self.peer.settle()
        with pytest.raises(StreamResetError):
            await read_on(stream)

    async def ended(self, stream):
        self.peer.h2.end_stream(stream.stream_id)
        await self.peer.settle()
        await read_on(stream)

    async def both(self, stream):
        """Both sides reset it, and neither knows of the other's yet."""
        stream.close()
        self.peer.h2.reset_stream(stream.stream_id, ErrorCodes.CANCEL)


@pytest.mark.parametrize("seed", range(3))
async def test_a_sibling_gets_every_byte(make_connection, seed, autojump_clock):
    connection, peer = await make_connection(
        {SettingCodes.MAX_CONCURRENT_STREAMS: AT_ONCE + 10},
        stream_window=STREAM_WINDOW,
        connection_window=CONNECTION_WINDOW,
    )
    sibling = await connection.request(HEADERS, b"sibling")
    await peer.settle()
    peer.respond(sibling.stream_id)
    storm = Storm(connection, peer, seed)
    for n in range(STREAMS):
        sent = b"%d " % n * 200
        assert peer.send(sibling.stream_id, sent) == len(sent), "the sibling's peer is held up by its neighbours"
        await storm.step()
        got = b""
        while len(got) < len(sent):
            got += await sibling.receive()
        assert got == sent
        check_window(connection, CONNECTION_WINDOW)
    assert min(storm.ends.count(how) for how in set(storm.ends)) > 50
    assert len(set(storm.ends)) == 5
    while storm.open:
        await storm.end(storm.open.pop())
    assert connection.open_streams == 1
    assert connection.closed_by is None
    check_window(connection, CONNECTION_WINDOW)
    # The peer's books agree: what it may send is the window but for what we have counted and not yet credited.
    owed = connection._received + connection._h2._inbound_flow_control_window_manager._bytes_processed
    assert peer.h2.outbound_flow_control_window == CONNECTION_WINDOW - owed
    assert peer.send(sibling.stream_id, b"the end", end=True) == 7
    await peer.settle()
    assert await sibling.receive() == b"the end"
    assert await sibling.receive() == b""
