"""FakeKinesis: the fake's API for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import trio

from efo.errors import TransportError
from efo.kinesis.client import KinesisClient
from efo.model import FanOutConsumer, Record
from efo.testing.control_plane import FakeControlPlane
from efo.testing.faults.injection import FaultInjector
from efo.testing.faults.script import FaultScript
from efo.testing.memory_stream import memory_connection
from efo.testing.recording.file import Recording
from efo.testing.recording.recorder import record_to
from efo.testing.recording.replay import Replay
from efo.testing.server import listener as server
from efo.testing.server.background import background
from efo.testing.server.dispatch import Service
from efo.testing.server.http2 import serve_http2
from efo.testing.settings import FakeSettings
from efo.testing.state.core import Core
from efo.testing.state.retention import trim
from efo.testing.state.scaling import count_scaling, scale
from efo.testing.state.streams import DistributionStrategy, StreamState
from efo.testing.state.subscriptions import SubscriptionCounts, Subscriptions
from efo.testing.state.tags import KMS_ERRORS


class FakeKinesis:
    """A fake Kinesis in this process. It serves SubscribeToShard over HTTP/2 as AWS does.

        async with FakeKinesis() as fake:
            fake.create_stream("orders", shards=2)
            fake.put("orders", "key", b"data")
            kinesis = fake.kinesis("orders")  # in memory, for efo itself
            async with fake.serve() as address:  # on a port, for any client
                ...

    `clock` returns the wall-clock time in seconds since the epoch. By default, time starts at `settings.epoch` and
    follows trio's clock: under a virtual clock it is deterministic. To serve real clients, pass `time.time`.
    `faults`: the fault script. Faults can be added to it at any time; it records which faults fired.
    A method that corresponds to a Kinesis operation raises FakeError where the operation fails.
    """

    def __init__(
        self,
        *,
        settings: FakeSettings | None = None,
        clock: Callable[[], float] | None = None,
        faults: FaultScript | None = None,
    ) -> None:
        self.settings = settings if settings is not None else FakeSettings()
        self._wall_clock = clock
        self._started_at = 0.0
        self.faults = faults if faults is not None else FaultScript()
        self._core = Core(self.settings, self.clock)
        self._faults = FaultInjector(self.faults, lambda: trio.current_time() - self._started_at)
        self._core.after = self._after
        self._core.listing = lambda stream: self._faults.listing(stream, self._core.millis)
        self._subscriptions = self._make_subscriptions(self._core)
        self._service = Service(self._core, self._subscriptions, self._faults)
        self._serve_connection: server.ServeConnection = server.serve_connection
        self._running = AsyncExitStack()
        self._recordings = ExitStack()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Self:
        self._started_at = trio.current_time()
        self._running.enter_context(self._recordings)  # closed after the tasks that read them have ended
        self._nursery = await self._running.enter_async_context(background())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._nursery = None
        return await self._running.__aexit__(kind, error, traceback)

    def clock(self) -> float:
        """Return the fake's wall-clock time in seconds since the epoch."""
        if self._wall_clock is not None:
            return self._wall_clock()
        return self.settings.epoch + trio.current_time() - self._started_at

    def take_over(self, ended: FakeKinesis) -> None:
        """Have the streams, their records and their fan-out consumers of another fake, which has ended.

        Its clock must not be ahead of this one's.
        """
        self._core.take_over(ended._core)

    # --- records -------------------------------------------------------------------------------------------

    def create_stream(self, name: str, shards: int = 1, *, distribution: DistributionStrategy | None = None) -> str:
        """Create a stream that is ACTIVE at once. Return its ARN.

        `distribution`: the record distribution strategy of a stream in ON_DEMAND mode; with AUTO, records need no
        partition key. None: a stream in PROVISIONED mode, whose records have their keys' shards.
        """
        stream = self._core.create_stream(name, shards)
        if distribution is not None:
            stream.mode = "ON_DEMAND"
            stream.distribute(distribution)
        return stream.arn

    def put(
        self, stream: str, partition_key: str | None, data: bytes, explicit_hash_key: str | None = None
    ) -> tuple[str, str]:
        """Put one record. Return its shard id and its sequence number."""
        shard, record = self._core.stream(stream).put(partition_key, data, self._core.millis, explicit_hash_key)
        return shard.id, record.sequence_number

    def put_many(self, stream: str, records: Iterable[tuple[str | None, bytes]]) -> int:
        """Put (partition key, data) pairs in order, all at the same time. Return their number."""
        return self._core.stream(stream).put_many(records, self._core.millis)

    def records(self, stream: str) -> dict[str, list[Record]]:
        """Return all records of a stream in order, by shard id."""
        shards = self._core.stream(stream).shards.values()
        return {shard.id: [record.as_record() for record in shard.records] for shard in shards}

    # --- shards --------------------------------------------------------------------------------------------

    def split(self, stream: str, shard_id: str, at: int | None = None) -> tuple[str, str]:
        """Split a shard. Return the ids of its children.

        `at`: the first hash key of the second child; None: the middle of the shard.
        """
        lower, upper = self._reshardable(stream).split(shard_id, at, self._core.millis)
        return lower.id, upper.id

    def merge(self, stream: str, shard_id: str, adjacent_shard_id: str) -> str:
        """Merge two adjacent shards, the lower one first. Return the id of their child."""
        return self._reshardable(stream).merge(shard_id, adjacent_shard_id, self._core.millis).id

    def open_shards(self, stream: str) -> Sequence[str]:
        """Return the ids of the open shards, in the order of their hash keys."""
        return [shard.id for shard in self._core.stream(stream).open_shards]

    def scale(self, stream: str, shards: int) -> Sequence[str]:
        """Reshard the stream to `shards` open shards (AWS: UpdateShardCount). Return their ids."""
        state = self._reshardable(stream)
        count_scaling(state, shards, self.clock())
        scale(state, shards, self._core.millis)
        return self.open_shards(stream)

    def _reshardable(self, stream: str) -> StreamState:
        """Return a stream. A reshard that was requested before takes effect first."""
        state = self._core.stream(stream)
        state.end_update(self.clock())
        return state

    # --- streams -------------------------------------------------------------------------------------------

    def delete_stream(self, stream: str) -> None:
        """Delete a stream. Its consumers are deregistered, and their subscriptions end."""
        self._core.delete_stream(self._core.stream(stream))

    def distribute(self, stream: str, strategy: DistributionStrategy) -> None:
        """Set how records are distributed from now on (AWS: UpdateStreamRecordDistributionStrategy).

        The stream must be in ON_DEMAND mode, as `create_stream` makes it with a `distribution`.
        """
        self._core.stream(stream).distribute(strategy)

    def retain(self, stream: str, hours: float) -> None:
        """Set the retention period to any number of hours. Older records are trimmed, now and later."""
        state = self._core.stream(stream)
        state.retention_hours = hours
        trim(state, self.clock())

    def encrypt(self, stream: str, key_id: str = "alias/aws/kinesis") -> None:
        """Encrypt records that are put from now on: their EncryptionType is KMS."""
        self._core.stream(stream).encryption.start(key_id)

    def fail_key(self, stream: str, error: str | None) -> None:
        """Make every use of an encrypted stream's key fail with this KMS error; None: the key works again.

        `error` is one of `state.encryption.KMS_ERRORS`. Live subscriptions end with it at once. A new subscription
        is accepted and then ends with it, because SubscribeToShard has these errors only in its event stream.
        Raises ValueError for any other name.
        """
        if error is not None and error not in KMS_ERRORS:
            raise ValueError(f"unknown KMS error {error!r}: expected one of {', '.join(KMS_ERRORS)}")
        state = self._core.stream(stream)
        state.encryption.failing = error
        for shard in state.shards.values():
            shard.notify()

    # --- consumers and subscriptions -----------------------------------------------------------------------

    def register(self, stream: str, name: str) -> FanOutConsumer:
        """Register a fan-out consumer. It is ACTIVE after `settings.consumer_creating` seconds."""
        consumer = self._core.register(self._core.stream(stream).arn, name)
        return FanOutConsumer(consumer.name, consumer.arn, consumer.status(self.clock()))

    def deregister(self, consumer_arn: str) -> None:
        """Deregister a fan-out consumer. Its subscriptions end."""
        self._core.deregister(*self._core.consumer(consumer_arn))

    def tags(self, arn: str) -> dict[str, str]:
        """Return the tags of a stream or a fan-out consumer."""
        return {tag["Key"]: tag["Value"] for tag in self._core.tags(arn).listed()}

    def subscriptions(self, stream: str, shard_id: str) -> SubscriptionCounts:
        """Return the subscription counters of a shard. The object is updated while the fake runs."""
        return self._subscriptions.counts(stream, shard_id)

    # --- recordings ----------------------------------------------------------------------------------------

    @contextmanager
    def record(self, path: Path) -> Iterator[None]:
        """Record everything that SubscribeToShard sends while the context is open (`efo.testing.recording.file`).

        Raises ConfigurationError: the file cannot be written.
        """
        original = self._service.open_body
        with record_to(path, self._core, original) as recorder:
            self._service.open_body = recorder.open_body
            try:
                yield
            finally:
                self._service.open_body = original

    def replay(self, path: Path, *, speed: float = 1.0) -> Sequence[str]:
        """Create the streams of a recording and serve it from now on. Return the names of the streams.

        `speed`: relative to the original timing; `math.inf`: without waiting. The file is read as it is replayed, and
        closed at the end of the fake.
        Raises ConfigurationError: the file cannot be read, or is not a recording.
        """
        recording = self._recordings.enter_context(Recording.open(path))
        self._service.open_body = Replay(recording, self._core, speed).open_body
        return tuple(recording.streams)

    # --- connections ---------------------------------------------------------------------------------------

    def kinesis(self, stream: str) -> KinesisClient:
        """Return what efo needs to read a stream: in-memory connections and an in-memory control plane."""
        return KinesisClient(
            stream=stream,
            control_plane=FakeControlPlane(self._core, stream, self._faults),
            connect=self._connect,
            sign=_sign_nothing,
            authority=f"kinesis.{self.settings.region}.fake",
            scheme="http",
            clock=self.clock,
        )

    def serve(self, *, port: int = 0, tls: bool = True) -> AbstractAsyncContextManager[server.Address]:
        """Serve HTTP/2 and HTTP/1.1 on 127.0.0.1 while the context is open. Raises OSError: the port is in use."""
        return server.serve(
            self._service,
            port=port,
            tls=tls,
            max_concurrent_streams=self.settings.max_concurrent_streams,
            serve_connection=self._serve_connection,
        )

    def _make_subscriptions(self, core: Core) -> Subscriptions:
        return Subscriptions(core)

    def _after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call a function after some seconds, if the fake is still running then."""

        async def call_later() -> None:
            await trio.sleep(seconds)
            call()

        if self._nursery is not None:
            self._nursery.start_soon(call_later)

    async def _connect(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if self._nursery is None:
            raise TransportError("connection refused: the fake is not running")
        server_end, client_end = memory_connection(self.settings.memory_stream_bytes)
        limit = self.settings.max_concurrent_streams
        respond = partial(self._service.respond, trusted=True)
        self._nursery.start_soon(partial(serve_http2, server_end, respond, max_concurrent_streams=limit))
        return client_end


async def _sign_nothing(_target: str, _body: bytes) -> Sequence[tuple[str, str]]:
    await trio.lowlevel.checkpoint()
    return ()
