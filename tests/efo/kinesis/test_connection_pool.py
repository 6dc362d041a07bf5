"""The pool: as few connections as the peers' limits allow, and none that is dead or going away."""

import collections

import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from efo.errors import GoAwayError, NotHttp2Error, TransportError
from efo.events import ConnectionClosed, ConnectionOpened, StreamReset
from efo.kinesis.connection_pool import CONNECT_TIMEOUT, STREAMS_PER_CONNECTION, ConnectionPool

HEADERS = [(":method", "POST"), (":scheme", "https"), (":authority", "peer"), (":path", "/")]


@pytest.fixture
def told():
    return []


@pytest.fixture
async def start(nursery, told):
    """Return a function that makes a running pool over a way to connect."""

    async def start(connect):
        pool = ConnectionPool(connect, address="peer:443", observer=told.append)
        await nursery.start(pool.run)
        return pool

    return start


async def test_requests_share_a_connection(server, start, told, autojump_clock):
    pool = await start(server.connect)
    answers = [await pool.open(HEADERS, b"") for _ in range(STREAMS_PER_CONNECTION)]
    assert len(server.peers) == 1
    assert {answer.stream_id for answer in answers} == set(range(1, 2 * STREAMS_PER_CONNECTION, 2))
    assert told == [ConnectionOpened("peer:443")]


async def test_a_full_connection_makes_another(server, start, autojump_clock):
    pool = await start(server.connect)
    for _ in range(STREAMS_PER_CONNECTION + 1):
        await pool.open(HEADERS, b"")
    assert len(server.peers) == 2


async def test_the_peers_limit_counts(server, start, autojump_clock):
    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 2}
    pool = await start(server.connect)
    answers = [await pool.open(HEADERS, b"") for _ in range(5)]
    assert len(server.peers) == 3
    answers[0].close()
    await pool.open(HEADERS, b"")
    await pool.open(HEADERS, b"")
    assert len(server.peers) == 3


async def test_the_least_loaded_is_taken(server, start, autojump_clock):
    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 4}
    pool = await start(server.connect)
    answers = [await pool.open(HEADERS, b"") for _ in range(8)]
    for answer in answers[:3]:
        answer.close()
    loads = [(await pool.open(HEADERS, b""))._connection for _ in range(3)]
    assert {id(connection) for connection in loads} == {id(answers[0]._connection)}


async def test_many_at_once_wait_for_one_connection(server, start, nursery, autojump_clock):
    pool = await start(server.connect)
    async with trio.open_nursery() as askers:
        for _ in range(20):
            askers.start_soon(pool.open, HEADERS, b"")
    assert len(server.peers) == 1


async def test_many_at_once_open_no_more_than_they_need(server, start, autojump_clock):
    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 3}
    pool = await start(server.connect)
    async with trio.open_nursery() as askers:
        for _ in range(9):
            askers.start_soon(pool.open, HEADERS, b"")
    assert len(server.peers) == 3


async def test_a_thousand_streams_are_spread_within_the_peers_limit(server, start, autojump_clock):
    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 64}
    pool = await start(server.connect)
    answers = []

    async def ask():
        answers.append(await pool.open(HEADERS, b""))

    async with trio.open_nursery() as askers:
        for _ in range(1000):
            askers.start_soon(ask)
    assert len(server.peers) == 16
    loads = collections.Counter(id(answer._connection) for answer in answers)
    assert max(loads.values()) <= 64
    for answer in answers:
        answer.close()
    assert sum(connection.open_streams for connection in pool._connections) == 0


async def test_a_dead_connection_is_replaced(server, start, told, autojump_clock):
    pool = await start(server.connect)
    await pool.open(HEADERS, b"")
    server.peers[0].hang_up()
    await trio.testing.wait_all_tasks_blocked()
    assert told[1:] == [ConnectionClosed("peer:443", "transport", "peer:443 closed the connection")]
    await pool.open(HEADERS, b"")
    assert len(server.peers) == 2


async def test_a_stream_that_the_peer_resets_is_told(server, start, told, autojump_clock):
    pool = await start(server.connect)
    answers = [await pool.open(HEADERS, b"") for _ in range(3)]
    await trio.testing.wait_all_tasks_blocked()
    peer = server.peers[0]
    peer.h2.reset_stream(answers[0].stream_id, ErrorCodes.REFUSED_STREAM)
    peer.h2.reset_stream(answers[1].stream_id, 0xBEEF)
    peer.flush()
    answers[2].close()  # by ourselves: no reset of the peer's
    await trio.testing.wait_all_tasks_blocked()
    assert told[1:] == [StreamReset("peer:443", "REFUSED_STREAM"), StreamReset("peer:443", "error code 48879")]


async def test_one_that_goes_away_takes_nothing_new_but_finishes(server, start, told, autojump_clock):
    pool = await start(server.connect)
    answer = await pool.open(HEADERS, b"")
    await trio.testing.wait_all_tasks_blocked()
    old = server.peers[0]
    old.goaway(answer.stream_id)
    await trio.testing.wait_all_tasks_blocked()
    await pool.open(HEADERS, b"")
    assert len(server.peers) == 2
    old.respond(answer.stream_id)
    old.send(answer.stream_id, b"rest", end=True)
    old.flush()
    assert await answer.receive() == b"rest"
    answer.close()
    await trio.testing.wait_all_tasks_blocked()
    assert [type(event) for event in told] == [ConnectionOpened, ConnectionOpened, ConnectionClosed]
    assert told[-1].error_type == GoAwayError.error_type


class TestFailures:
    """A connection that never came up is its caller's error; nobody is told that one was closed."""

    async def test_connecting_fails(self, start, told, autojump_clock):
        async def connect():
            raise TransportError("no route")

        pool = await start(connect)
        for _ in range(2):
            with pytest.raises(TransportError, match="no route"):
                await pool.open(HEADERS, b"")
        assert told == []

    async def test_connecting_takes_too_long(self, start, told, autojump_clock):
        pool = await start(trio.sleep_forever)
        with pytest.raises(TransportError, match="within 10 s"):
            await pool.open(HEADERS, b"")
        assert trio.current_time() == pytest.approx(CONNECT_TIMEOUT)
        assert told == []

    async def test_the_peer_says_nothing(self, start, told, autojump_clock):
        ends = []

        async def connect():
            ours, theirs = trio.testing.memory_stream_pair()
            ends.append(theirs)
            return ours

        pool = await start(connect)
        with pytest.raises(TransportError, match="within 10 s"):
            await pool.open(HEADERS, b"")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BrokenResourceError):
            await ends[0].send_all(b"anybody there?")
        assert told == []

    async def test_the_peer_hangs_up_before_it_greets(self, start, told, autojump_clock):
        async def connect():
            ours, theirs = trio.testing.memory_stream_pair()
            await theirs.aclose()
            return ours

        pool = await start(connect)
        with pytest.raises(TransportError, match=r"closed|broke"):
            await pool.open(HEADERS, b"")
        await trio.testing.wait_all_tasks_blocked()
        assert told == []

    async def test_the_peer_greets_and_hangs_up(self, server, start, told, autojump_clock):
        async def connect():
            stream = await server.connect()
            server.peers[-1].hang_up()
            return stream

        pool = await start(connect)
        with pytest.raises(TransportError):
            await (await pool.open(HEADERS, b"")).response()
        await trio.testing.wait_all_tasks_blocked()
        assert [type(event) for event in told] in ([], [ConnectionOpened, ConnectionClosed])  # as the tasks run


async def test_who_gives_up_connecting_leaves_it_to_the_next(server, start, nursery, told, autojump_clock):
    waiting = trio.Event()

    async def connect():
        if not waiting.is_set():
            waiting.set()
            await trio.sleep_forever()
        return await server.connect()

    pool = await start(connect)
    answers = []

    async def ask():
        answers.append(await pool.open(HEADERS, b""))

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as first:
            first.start_soon(pool.open, HEADERS, b"")
            await waiting.wait()
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert len(answers) == 1
    assert told == [ConnectionOpened("peer:443")]


async def test_when_the_pool_ends_so_do_its_connections(server, told, autojump_clock):
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(server.connect, address="peer:443", observer=told.append)
        await nursery.start(pool.run)
        answer = await pool.open(HEADERS, b"")
        nursery.cancel_scope.cancel()
    with pytest.raises(TransportError, match="was closed"):
        await answer.response()
    assert [type(event) for event in told] == [ConnectionOpened, ConnectionClosed]


async def test_a_host_that_lost_its_http2_is_tried_again_once_there_was_one(server, start, autojump_clock):
    answers = ["http1", "http2", "http1", "http2"]

    async def connect():
        await trio.lowlevel.checkpoint()
        if answers.pop(0) == "http1":
            raise NotHttp2Error("peer:443 does not offer HTTP/2")
        return await server.connect()

    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 1}
    pool = await start(connect)
    with pytest.raises(NotHttp2Error):
        await pool.open(HEADERS, b"")
    await pool.open(HEADERS, b"")
    with pytest.raises(TransportError) as caught:
        await pool.open(HEADERS, b"")
    assert caught.value.retryable
    await pool.open(HEADERS, b"")
