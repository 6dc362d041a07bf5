"""Cancellation at each await (R14): of a call, a shard subscription, the subscribe limiter, the pool, a TLS handshake.

Each test cancels an operation at its first await, then at its second, and so on. Afterwards no stream is open, no
window has shrunk, no task remains, and no call of the subscribe budget is used up.
"""

import ssl
import time
from contextlib import suppress

import trio
import trio.lowlevel
import trio.testing
import trustme
from h2.settings import SettingCodes

import efo
from efo.events import ConsumerDeregistered
from efo.kinesis.aws.connector import Connector
from efo.kinesis.connection import CONNECTION_WINDOW
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.pacing import SubscribePacer
from efo.model import Position
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.server.listener import environment
from proofs.benchmarks.subscribed import STREAM, open_subscribed

SHARD = "shardId-000000000000"


class CancelAtAwait(trio.abc.Instrument):
    """Cancels a scope after the n-th step of its task."""

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
    """Run the operation and cancel it at its n-th await. Return whether it was cancelled before it ended."""
    with trio.CancelScope() as scope:
        instrument = CancelAtAwait(trio.lowlevel.current_task(), scope, n)
        trio.lowlevel.add_instrument(instrument)
        try:
            await operation()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return scope.cancelled_caught


def check_unchanged(pool, tasks):
    [connection] = pool._connections
    assert connection.open_streams == 0
    assert connection.is_usable
    # Bytes without a WINDOW_UPDATE are counted: by the connection, and by h2 if they arrived late for a reset stream.
    late = connection._h2._inbound_flow_control_window_manager._bytes_processed
    assert connection._h2.inbound_flow_control_window + connection._received + late == CONNECTION_WINDOW
    # Only the tasks of the pool's nursery run: those of the connection.
    assert trio.lowlevel.current_statistics().tasks_living <= tasks


async def test_a_call_can_be_cancelled_at_each_await(autojump_clock):
    async with open_subscribed(1, 20.0) as subscribed:
        for _ in range(100):
            subscribed.put(0, b"x" * 2000)
        read = []

        async def call():
            read.clear()
            async with await subscribed.caller.call(SHARD, Position.trim_horizon()) as events:
                while len(read) < 100:
                    event, _ = await events.receive()
                    read.extend(event.records)

        await call()
        await trio.sleep(6)
        tasks = trio.lowlevel.current_statistics().tasks_living
        n = 1
        while await cancelled_at(n, call):
            await trio.sleep(6)  # the service rejects a second call within five seconds
            check_unchanged(subscribed.pool, tasks)
            n += 1
        assert n > 3
        assert len(read) == 100


async def test_a_call_that_opens_a_connection_can_be_cancelled_at_each_await(autojump_clock):
    n, was_cancelled = 0, True
    while was_cancelled:
        n += 1
        async with open_subscribed(1, 20.0) as subscribed:

            async def call(subscribed=subscribed):
                async with await subscribed.caller.call(SHARD, Position.trim_horizon()) as events:
                    await events.receive()

            was_cancelled = await cancelled_at(n, call)
            await trio.sleep(6)
            await call()
            await trio.sleep(6)
            assert len(subscribed.pool._connections) == 1
            check_unchanged(subscribed.pool, trio.lowlevel.current_statistics().tasks_living)
    assert n > 3


async def test_a_shard_subscription_loses_no_record_when_cancelled_at_each_await(autojump_clock):
    n, was_cancelled = 0, True
    while was_cancelled:
        n += 1
        async with open_subscribed(1, 20.0, event_records=3) as subscribed:
            for _ in range(20):
                subscribed.put(0)
            subscription = subscribed.make(0, SHARD)
            read = []

            async def receive(subscription=subscription, read=read):
                while len(read) < 20:
                    event = await subscription.receive()
                    read += [record.sequence_number for record in event.records]

            was_cancelled = await cancelled_at(n, receive)
            await receive()
            assert read == [record.sequence_number for record in subscribed.fake.records(STREAM)[SHARD]]
    assert n > 3


async def test_the_subscribe_limiter_loses_no_call_when_cancelled_at_each_await(autojump_clock):
    n, was_cancelled = 0, True
    while was_cancelled:
        n += 1
        async with trio.open_nursery() as nursery:
            limiter = SubscribePacer(2.0)
            await nursery.start(limiter.run)

            async def acquire(limiter=limiter):
                for _ in range(3):
                    await limiter.acquire("a", renewal=False)

            was_cancelled = await cancelled_at(n, acquire)
            assert not limiter._granted
            assert not limiter._pacer._waiting
            # The shard used at most one of two calls per second, since each of its calls waits for a second.
            assert await limiter.acquire("b", renewal=False) == 0.0
            assert await limiter.acquire("a", renewal=True) <= 1.0
            nursery.cancel_scope.cancel()
    assert n > 3


HEADERS = [(":method", "POST"), (":scheme", "https"), (":authority", "peer"), (":path", "/")]


async def test_a_pool_that_opens_a_connection_can_be_cancelled_at_each_await(server, nursery, autojump_clock):
    """The second stream needs a second connection, which takes several awaits to open."""

    async def connect():
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        return await server.connect()

    server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 1}
    pool = ConnectionPool(connect, address="peer:443")
    await nursery.start(pool.run)
    first = await pool.open(HEADERS, b"body")
    await trio.testing.wait_all_tasks_blocked()
    tasks = trio.lowlevel.current_statistics().tasks_living
    n, was_cancelled = 0, True
    while was_cancelled:
        n += 1
        known = len(server.peers)

        async def request():
            (await pool.open(HEADERS, b"body")).close()

        was_cancelled = await cancelled_at(n, request)
        await trio.testing.wait_all_tasks_blocked()
        assert [connection.open_streams for connection in pool._connections][:1] == [1]
        # An opened connection stays usable. One that was not opened is closed on both sides.
        assert len(pool._connections) - 1 <= len(server.peers) - known
        again = await pool.open(HEADERS, b"body")
        again.close()
        assert len(pool._connections) == 2
        (_, second) = pool._connections
        second.close()
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert n > 5
    assert not first.is_over


async def test_a_tls_handshake_that_is_cancelled_at_each_await_leaves_no_socket_open(tmp_path):
    """The sockets are real. The server's end of each cancelled handshake must be closed."""
    ca, ca_file = trustme.CA(), tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    context.set_alpn_protocols(["h2"])
    started, ended = [], []
    changed = trio.Event()

    async def handle(stream):
        started.append(stream)
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
        # The server accepted the last connection, so it has accepted all earlier ones.
        with trio.fail_after(60):
            while len(ended) < len(started):
                await changed.wait()
                changed = trio.Event()
        assert 1 <= len(ended) <= n
        nursery.cancel_scope.cancel()


async def test_clean_up_that_is_shielded_can_call_when_the_block_of_the_client_is_cancelled(monkeypatch):
    settings = FakeSettings(consumer_creating=0.0)
    async with FakeKinesis(settings=settings, clock=time.time) as fake, fake.serve() as address:
        fake.create_stream(STREAM)
        fake.put(STREAM, "key", b"data")
        for name, value in environment(address).items():
            monkeypatch.setenv(name, value)
        seen = []
        with trio.CancelScope() as scope:

            async def cancel(_batch):
                scope.cancel()

            ephemeral = efo.ConsumerSettings(ephemeral=True)
            options = {"application": "app", "leases": "memory:", "observer": seen.append}
            await efo.consume(STREAM, cancel, settings=ephemeral, **options)
        assert scope.cancelled_caught
        assert [event.error_type for event in seen if isinstance(event, ConsumerDeregistered)] == [None]
