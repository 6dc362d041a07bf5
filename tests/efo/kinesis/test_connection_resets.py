"""Many streams that both sides reset, beside one stream that gets every byte. No window shrinks (rule R9)."""

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


async def read_to_the_end(stream):
    while await stream.receive():
        pass


class StreamChurn:
    """Opens and ends streams in random ways. `ends`: the names of these ways, in order."""

    def __init__(self, connection, peer, seed):
        self.connection = connection
        self.peer = peer
        self.rng = random.Random(seed)
        self.open = []
        self.ends = []

    async def step(self):
        """Open a stream, send data on random streams, read from some, and end one if there are many."""
        response = await self.connection.request(HEADERS, b"body")
        await self.peer.settle()
        self.peer.respond(response.stream_id)
        self.open.append(response)
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
        way = self.rng.choice([self.closed, self.closed_before_late_data, self.reset, self.ended, self.reset_by_both])
        self.ends.append(way.__name__)
        await way(stream)
        stream.close()
        await self.peer.settle()

    async def closed(self, stream):
        stream.close()

    async def closed_before_late_data(self, stream):
        stream.close()
        self.peer.send(stream.stream_id, bytes(5000))  # the peer has not received the reset yet

    async def reset(self, stream):
        self.peer.send(stream.stream_id, b"before")
        self.peer.h2.reset_stream(stream.stream_id, ErrorCodes.INTERNAL_ERROR)
        await self.peer.settle()
        with pytest.raises(StreamResetError):
            await read_to_the_end(stream)

    async def ended(self, stream):
        self.peer.h2.end_stream(stream.stream_id)
        await self.peer.settle()
        await read_to_the_end(stream)

    async def reset_by_both(self, stream):
        """Both sides reset the stream, before either receives the reset of the other."""
        stream.close()
        self.peer.h2.reset_stream(stream.stream_id, ErrorCodes.CANCEL)


@pytest.mark.parametrize("seed", range(3))
async def test_a_stream_gets_every_byte_while_many_others_are_reset(make_connection, seed, autojump_clock):
    connection, peer = await make_connection(
        {SettingCodes.MAX_CONCURRENT_STREAMS: AT_ONCE + 10},
        stream_window=STREAM_WINDOW,
        connection_window=CONNECTION_WINDOW,
    )
    sibling = await connection.request(HEADERS, b"sibling")
    await peer.settle()
    peer.respond(sibling.stream_id)
    churn = StreamChurn(connection, peer, seed)
    for n in range(STREAMS):
        sent = b"%d " % n * 200
        assert peer.send(sibling.stream_id, sent) == len(sent), "other streams have used up the connection window"
        await churn.step()
        got = b""
        while len(got) < len(sent):
            got += await sibling.receive()
        assert got == sent
        check_window(connection, CONNECTION_WINDOW)
    assert min(churn.ends.count(way) for way in set(churn.ends)) > 50
    assert len(set(churn.ends)) == 5
    while churn.open:
        await churn.end(churn.open.pop())
    assert connection.open_streams == 1
    assert connection.closed_by is None
    check_window(connection, CONNECTION_WINDOW)
    # The window that the peer knows: the connection window without the bytes that are received but not yet credited.
    uncredited = connection._received + connection._h2._inbound_flow_control_window_manager._bytes_processed
    assert peer.h2.outbound_flow_control_window == CONNECTION_WINDOW - uncredited
    assert peer.send(sibling.stream_id, b"the end", end=True) == 7
    await peer.settle()
    assert await sibling.receive() == b"the end"
    assert await sibling.receive() == b""
