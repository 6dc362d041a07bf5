"""Cancelled at any await (R14): a call, a reader, the gate, the pool, at their first await, and so on to the last.

After each time all is as good as new: no stream is left, no credit of a window is lost, no task remains, no turn taken.
"""

import ssl
from contextlib import suppress

import trio
import trio.lowlevel
import trio.testing
import trustme
from h2.settings import SettingCodes

from efo.kinesis.aws.connector import Connector
from efo.kinesis.connection import CONNECTION_WINDOW
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.subscribe_limiter import SubscribeLimiter
from efo.model import Position
from proofs.benchmarks.subscribed import STREAM, open_subscribed

SHARD = "shardId-000000000000"


class CancelAtAwait(trio.abc.Instrument):
    """Cancels a scope as soon as its task has yielded for the n-th time."""

    def __init__(self, task, scope, n):
        self._task = task
        self._scope = scope
        self._left = n

    def after_task_step(self, task):
        if task is self._task:
            self._left -= 1
            if not self._left:
                self._scope.cancel()


async def cancelled_at(n, operation):
    """Run the operation, cancelled at its n-th await; tell whether it came to that."""
    with trio.CancelScope() as scope:
        instrument = CancelAtAwait(trio.lowlevel.current_task(), scope, n)
        trio.lowlevel.add_instrument(instrument)
        try:
            await operation()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return scope.cancelled_caught


def check_unharmed(pool, tasks):
    [connection] = pool._connections
    assert connection.open_streams == 0
    assert connection.is_usable
    # Nothing is forgotten: what is not credited yet is counted, by h2 where it came late for a stream that was reset.
    late = connection._h2._inbound_flow_control_window_manager._bytes_processed
    assert connection._h2.inbound_flow_control_window + connection._received + late == CONNECTION_WINDOW
    # Those of the pool's nursery: the connection's, no more.
    assert trio.lowlevel.current_statistics().tasks_living <= tasks


async def test_a_call_at_each_of_its_awaits(autojump_clock):
    async with open_subscribed(1, 20.0) as one:
        for _ in range(100):
            one.put(0, b"x" * 2000)
        read = []

        async def call():
            read.clear()
            async with await one.caller.call(SHARD, Position.trim_horizon()) as events:
                while len(read) < 100:
                    event, _ = await events.receive()
                    read.extend(event.records)

        await call()
        await trio.sleep(6)
        tasks = trio.lowlevel.current_statistics().tasks_living
        n = 1
        while await cancelled_at(n, call):
            await trio.sleep(6)  # the service's interval between two calls
            check_unharmed(one.pool, tasks)
            n += 1
        assert n > 3
        assert len(read) == 100


async def test_a_call_that_makes_the_connection_at_each_of_its_awaits(autojump_clock):
    n, was_cancelled = 0, True
    while was_cancelled:
        n += 1
        async with open_subscribed(1, 20.0) as one:

            async def call(one=one):
                async with await one.caller.call(SHARD, Position.trim_horizon()) as events:
                    await events.receive()

            was_cancelled = await cancelled_at(n, call)
            await trio.sleep(6)
            await call()
            await trio.sleep(6)
            assert len(one.pool._connections) == 1
            check_unharmed(one.pool, trio.lowlevel.current_statistics().tasks_living)
    assert n > 3


async def test_a_reader_at_each_of_its_awaits_loses_nothing(autojump_clock):
    n, was_cancelled = 0, True
    while was_cancelled:
        n += 1
        async with open_subscribed(1, 20.0, event_records=3) as one:
            for _ in range(20):
                one.put(0)
            subscription = one.make(0, SHARD)
            read = []

            async def receive(subscription=subscription, read=read):
                while len(read) < 20:
                    event = await subscription.receive()
                    read += [record.sequence_number for record in event.records]

            was_cancelled = await cancelled_at(n, receive)
            await receive()
            assert read == [record.sequence_number for record in one.fake.records(STREAM)[SHARD]]
    assert n > 3


async def test_the_gate_at_each_of_its_awaits_gives_nobodys_turn_away(autojump_clock):
    n, was_cancelled = 0, True
    while was_cancelled:
        n += 1
        async with trio.open_nursery() as nursery:
            gate = SubscribeLimiter(2.0)
            await nursery.start(gate.run)

            async def acquire(limiter=gate):
                for _ in range(3):
                    await limiter.acquire("a", renewal=False)

            was_cancelled = await cancelled_at(n, acquire)
            assert not gate._granted
            assert not gate._pacer._waiting
            # Of a budget of two in a second the shard's own calls took one at most, since each waits for a second.
            assert await gate.acquire("b", renewal=False) == 0.0
            assert await gate.acquire("a", renewal=True) <= 1.0
            nursery.cancel_scope.cancel()
    assert n > 3


HEADERS = [(":method", "POST"), (":scheme", "https"), (":authority", "peer"), (":path", "/")]


async def test_a_pool_that_makes_a_connection_at_each_of_its_awaits(server, nursery, autojump_clock):
    """The second stream needs a second connection, over which there is more than one await."""

    async def connect():
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        return await server.connect()

    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 1}
    pool = ConnectionPool(connect, address="peer:443")
    await nursery.start(pool.run)
    first = await pool.open(HEADERS, b"ask")
    await trio.testing.wait_all_tasks_blocked()
    tasks = trio.lowlevel.current_statistics().tasks_living
    n, was_cancelled = 0, True
    while was_cancelled:
        n += 1
        known = len(server.peers)

        async def ask():
            (await pool.open(HEADERS, b"ask")).close()

        was_cancelled = await cancelled_at(n, ask)
        await trio.testing.wait_all_tasks_blocked()
        assert [connection.open_streams for connection in pool._connections][:1] == [1]
        # What came up is there to be used; what did not is gone, at both ends.
        assert len(pool._connections) - 1 <= len(server.peers) - known
        again = await pool.open(HEADERS, b"ask")
        again.close()
        assert len(pool._connections) == 2
        (_, second) = pool._connections
        second.close()
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert n > 5
    assert not first.is_over


async def test_a_tls_handshake_at_each_of_its_awaits_leaves_no_socket(tmp_path):
    """Over a real socket: whenever it is given up, the server's end hears of it."""
    authority, ca_file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    context.set_alpn_protocols(["h2"])
    begun, ended = [], []
    changed = trio.Event()

    async def handle(stream):
        begun.append(stream)
        tls = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        with suppress(trio.BrokenResourceError):
            await tls.receive_some()
        await trio.aclose_forcefully(stream)
        ended.append(stream)
        changed.set()

    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    connector = Connector("127.0.0.1", listener.socket.getsockname()[1], ca_file=str(ca_file))

    async def connect():
        await trio.aclose_forcefully(await connector.connect())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        n, was_cancelled = 0, True
        while was_cancelled:
            n += 1
            was_cancelled = await cancelled_at(n, connect)
        assert n > 3
        # The last one was served, so all before it were accepted.
        with trio.fail_after(60):
            while len(ended) < len(begun):
                await changed.wait()
                changed = trio.Event()
        assert 1 <= len(ended) <= n
        nursery.cancel_scope.cancel()
