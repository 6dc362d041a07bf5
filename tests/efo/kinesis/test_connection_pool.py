"""The connection pool: it opens as few connections as the limits allow, and replaces closed ones."""

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
def events():
    return []


@pytest.fixture
async def start(nursery, events):
    """Return a function that makes a running pool; its argument opens a byte stream."""

    async def start(connect):
        pool = ConnectionPool(connect, address="peer:443", observer=events.append)
        await nursery.start(pool.run)
        return pool

    return start


async def test_requests_share_a_connection(server, start, events, autojump_clock):
    pool = await start(server.connect)
    responses = [await pool.open(HEADERS, b"") for _ in range(STREAMS_PER_CONNECTION)]
    assert len(server.peers) == 1
    assert {response.stream_id for response in responses} == set(range(1, 2 * STREAMS_PER_CONNECTION, 2))
    assert events == [ConnectionOpened("peer:443")]


async def test_a_connection_with_too_many_streams_is_not_used_for_more(server, start, autojump_clock):
    pool = await start(server.connect)
    for _ in range(STREAMS_PER_CONNECTION + 1):
        await pool.open(HEADERS, b"")
    assert len(server.peers) == 2


async def test_the_stream_limit_of_the_peer_is_respected(server, start, autojump_clock):
    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 2}
    pool = await start(server.connect)
    responses = [await pool.open(HEADERS, b"") for _ in range(5)]
    assert len(server.peers) == 3
    responses[0].close()
    await pool.open(HEADERS, b"")
    await pool.open(HEADERS, b"")
    assert len(server.peers) == 3


async def test_a_request_uses_the_connection_with_the_fewest_streams(server, start, autojump_clock):
    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 4}
    pool = await start(server.connect)
    responses = [await pool.open(HEADERS, b"") for _ in range(8)]
    for response in responses[:3]:
        response.close()
    loads = [(await pool.open(HEADERS, b""))._connection for _ in range(3)]
    assert {id(connection) for connection in loads} == {id(responses[0]._connection)}


async def test_requests_at_the_same_time_wait_for_one_connection(server, start, nursery, autojump_clock):
    pool = await start(server.connect)
    async with trio.open_nursery() as requests:
        for _ in range(20):
            requests.start_soon(pool.open, HEADERS, b"")
    assert len(server.peers) == 1


async def test_requests_at_the_same_time_open_as_few_connections_as_the_limit_allows(server, start, autojump_clock):
    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 3}
    pool = await start(server.connect)
    async with trio.open_nursery() as requests:
        for _ in range(9):
            requests.start_soon(pool.open, HEADERS, b"")
    assert len(server.peers) == 3


async def test_requests_that_waited_for_a_connection_are_sent_in_the_same_round_of_the_scheduler(
    start, server, nursery, autojump_clock
):
    """Beside busy shards a round takes some 30 ms."""
    rounds, sent_in = 0, []

    async def count_rounds():
        nonlocal rounds
        while True:
            await trio.lowlevel.checkpoint()
            rounds += 1

    async def request():
        await pool.open(HEADERS, b"")
        sent_in.append(rounds)

    pool = await start(server.connect)
    nursery.start_soon(count_rounds)
    async with trio.open_nursery() as requests:
        for _ in range(STREAMS_PER_CONNECTION):
            requests.start_soon(request)
    assert max(sent_in) - min(sent_in) <= 2


async def test_a_thousand_streams_are_spread_within_the_peers_limit(server, start, autojump_clock):
    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 64}
    pool = await start(server.connect)
    responses = []

    async def request():
        responses.append(await pool.open(HEADERS, b""))

    async with trio.open_nursery() as requests:
        for _ in range(1000):
            requests.start_soon(request)
    assert len(server.peers) == 16
    loads = collections.Counter(id(response._connection) for response in responses)
    assert max(loads.values()) <= 64
    for response in responses:
        response.close()
    assert sum(connection.open_streams for connection in pool._connections) == 0


async def test_a_closed_connection_is_reported_and_replaced(server, start, events, autojump_clock):
    pool = await start(server.connect)
    await pool.open(HEADERS, b"")
    server.peers[0].close()
    await trio.testing.wait_all_tasks_blocked()
    assert events[1:] == [ConnectionClosed("peer:443", "transport", "peer:443 closed the connection")]
    await pool.open(HEADERS, b"")
    assert len(server.peers) == 2


async def test_a_reset_by_the_peer_is_reported_with_its_error_code(server, start, events, autojump_clock):
    pool = await start(server.connect)
    responses = [await pool.open(HEADERS, b"") for _ in range(3)]
    await trio.testing.wait_all_tasks_blocked()
    peer = server.peers[0]
    peer.h2.reset_stream(responses[0].stream_id, ErrorCodes.REFUSED_STREAM)
    peer.h2.reset_stream(responses[1].stream_id, 0xBEEF)
    peer.flush()
    responses[2].close()  # resets the stream from this side, which is not reported
    await trio.testing.wait_all_tasks_blocked()
    assert events[1:] == [StreamReset("peer:443", "REFUSED_STREAM"), StreamReset("peer:443", "unknown")]


async def test_a_connection_with_goaway_finishes_its_streams_and_gets_no_new_ones(
    server, start, events, autojump_clock
):
    pool = await start(server.connect)
    response = await pool.open(HEADERS, b"")
    await trio.testing.wait_all_tasks_blocked()
    old = server.peers[0]
    old.goaway(response.stream_id)
    await trio.testing.wait_all_tasks_blocked()
    await pool.open(HEADERS, b"")
    assert len(server.peers) == 2
    old.respond(response.stream_id)
    old.send(response.stream_id, b"rest", end=True)
    old.flush()
    assert await response.receive() == b"rest"
    response.close()
    await trio.testing.wait_all_tasks_blocked()
    assert [type(event) for event in events] == [ConnectionOpened, ConnectionOpened, ConnectionClosed]
    assert events[-1].error_type == GoAwayError.error_type


class TestFailures:
    """A connection that could not be opened is an error of the request, and is not reported to the observer."""

    async def test_a_failure_to_connect_is_raised(self, start, events, autojump_clock):
        async def connect():
            raise TransportError("no route")

        pool = await start(connect)
        for _ in range(2):
            with pytest.raises(TransportError, match="no route"):
                await pool.open(HEADERS, b"")
        assert events == []

    async def test_connecting_has_a_timeout(self, start, events, autojump_clock):
        pool = await start(trio.sleep_forever)
        with pytest.raises(TransportError, match="within 10 s"):
            await pool.open(HEADERS, b"")
        assert trio.current_time() == pytest.approx(CONNECT_TIMEOUT)
        assert events == []

    async def test_a_peer_that_sends_no_settings_is_an_error_after_the_timeout(self, start, events, autojump_clock):
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
            await ends[0].send_all(b"data")
        assert events == []

    async def test_a_peer_that_closes_before_its_settings_is_an_error(self, start, events, autojump_clock):
        async def connect():
            ours, theirs = trio.testing.memory_stream_pair()
            await theirs.aclose()
            return ours

        pool = await start(connect)
        with pytest.raises(TransportError, match=r"closed|broke"):
            await pool.open(HEADERS, b"")
        await trio.testing.wait_all_tasks_blocked()
        assert events == []

    async def test_a_peer_that_closes_after_its_settings_is_an_error(self, server, start, events, autojump_clock):
        async def connect():
            stream = await server.connect()
            server.peers[-1].close()
            return stream

        pool = await start(connect)
        with pytest.raises(TransportError):
            await (await pool.open(HEADERS, b"")).response()
        await trio.testing.wait_all_tasks_blocked()
        # It depends on the scheduling whether the connection counts as opened.
        assert [type(event) for event in events] in ([], [ConnectionOpened, ConnectionClosed])


async def test_after_a_cancelled_connect_the_next_request_connects(server, start, nursery, events, autojump_clock):
    waiting = trio.Event()

    async def connect():
        if not waiting.is_set():
            waiting.set()
            await trio.sleep_forever()
        return await server.connect()

    pool = await start(connect)
    responses = []

    async def request():
        responses.append(await pool.open(HEADERS, b""))

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as first:
            first.start_soon(pool.open, HEADERS, b"")
            await waiting.wait()
            nursery.start_soon(request)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert len(responses) == 1
    assert events == [ConnectionOpened("peer:443")]


async def test_after_a_failed_connect_each_request_that_waited_tries_once(server, start, autojump_clock):
    failures = 3

    async def connect():
        nonlocal failures
        await trio.sleep(1)
        failures -= 1
        if failures >= 0:
            raise TransportError("no route")
        return await server.connect()

    pool = await start(connect)
    failed, responses = [], []

    async def request():
        try:
            responses.append(await pool.open(HEADERS, b""))
        except TransportError as error:
            failed.append(str(error))

    async with trio.open_nursery() as requests:
        for _ in range(20):
            requests.start_soon(request)
    assert failed == ["no route"] * 3
    assert len(responses) == 17
    assert len(server.peers) == 1


async def test_a_request_that_waited_finds_a_stream_that_became_free(server, start, nursery, autojump_clock):
    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 2}
    may_fail = trio.Event()

    async def connect():
        if server.peers:
            await may_fail.wait()
            raise TransportError("no route")
        return await server.connect()

    pool = await start(connect)
    first = [await pool.open(HEADERS, b"") for _ in range(2)]
    responses = []

    async def request():
        try:
            responses.append(await pool.open(HEADERS, b""))
        except TransportError:
            responses.append(None)

    for _ in range(3):
        nursery.start_soon(request)
    await trio.testing.wait_all_tasks_blocked()
    for response in first:
        response.close()
    may_fail.set()
    await trio.testing.wait_all_tasks_blocked()
    assert responses.count(None) == 1  # the one that connected
    assert len(responses) == 3


async def test_the_end_of_the_pool_closes_its_connections(server, events, autojump_clock):
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(server.connect, address="peer:443", observer=events.append)
        await nursery.start(pool.run)
        response = await pool.open(HEADERS, b"")
        nursery.cancel_scope.cancel()
    with pytest.raises(TransportError, match="was closed"):
        await response.response()
    assert [type(event) for event in events] == [ConnectionOpened, ConnectionClosed]


async def test_missing_http2_is_retryable_after_the_first_connection(server, start, autojump_clock):
    protocols = ["http1", "http2", "http1", "http2"]

    async def connect():
        await trio.lowlevel.checkpoint()
        if protocols.pop(0) == "http1":
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
