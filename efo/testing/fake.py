"""FakeKinesis: everything put together, behind a friendly API for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import trio

from efo.errors import TransportError
from efo.kinesis.client import Kinesis
from efo.model import FanOutConsumer, Record
from efo.testing.control_plane import FakeControlPlane
from efo.testing.faults.injection import Faults
from efo.testing.faults.script import FaultScript
from efo.testing.load.http2 import serve_load_connection
from efo.testing.load.settings import Load
from efo.testing.load.subscriptions import LoadSubscriptions
from efo.testing.memory_stream import memory_connection
from efo.testing.recording.capture import Capture, Player, recording
from efo.testing.server import listener as server
from efo.testing.server.background import background
from efo.testing.server.dispatch import Service
from efo.testing.server.http2 import serve_http2
from efo.testing.settings import FakeSettings
from efo.testing.state.core import Core
from efo.testing.state.encryption import KMS_ERRORS
from efo.testing.state.retention import trim
from efo.testing.state.scaling import scale
from efo.testing.state.subscriptions import SubscriptionCounts, Subscriptions


class FakeKinesis:
    """A Kinesis in this process, which does SubscribeToShard over HTTP/2 as AWS does.

        async with FakeKinesis() as fake:
            fake.create_stream("orders", shards=2)
            fake.put("orders", "key", b"data")
            kinesis = fake.kinesis("orders")  # in memory, for efo itself
            async with fake.serve() as address:  # on a port, for any client
                ...

    `clock` gives the wall clock, seconds since the epoch. Without one, time starts at `settings.epoch` and goes
    with trio's clock, so that it is deterministic under a virtual one. To serve real clients pass `time.time`.
    Methods that do what an operation of Kinesis does raise FakeError where that operation would fail.
    `faults`: what goes wrong and when; faults can be added to it at any time, and it tells what fired.
    `load`: streams to begin with, which give as many records as a benchmark takes; `serve` is then made for speed.
    """

    def __init__(
        self,
        *,
        settings: FakeSettings | None = None,
        clock: Callable[[], float] | None = None,
        faults: FaultScript | None = None,
        load: Load | None = None,
    ) -> None:
        self.settings = settings if settings is not None else FakeSettings()
        self._wall_clock = clock
        self._started_at = 0.0
        self.faults = faults if faults is not None else FaultScript()
        self._core = Core(self.settings, self.clock)
        self._faults = Faults(self.faults, lambda: trio.current_time() - self._started_at)
        self._core.listing = lambda stream: self._faults.listing(stream, self._core.millis)
        self._load = load
        self._subscriptions = Subscriptions(self._core) if load is None else LoadSubscriptions(self._core, load)
        self._service = Service(self._core, self._subscriptions, self._faults)
        self._running = AsyncExitStack()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Self:
        self._started_at = trio.current_time()
        for name, shards in self._load.shards.items() if self._load else ():
            self.create_stream(name, shards)
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
        """Return the fake's wall clock, seconds since the epoch."""
        if self._wall_clock is not None:
            return self._wall_clock()
        return self.settings.epoch + trio.current_time() - self._started_at

    # --- the stream's content ------------------------------------------------------------------------------

    def create_stream(self, name: str, shards: int = 1) -> str:
        """Create a stream, ACTIVE at once, and return its ARN."""
        return self._core.create_stream(name, shards).arn

    def put(
        self, stream: str, partition_key: str, data: bytes, explicit_hash_key: str | None = None
    ) -> tuple[str, str]:
        """Put one record; return the ids of its shard and its sequence number."""
        shard, record = self._core.stream(stream).put(partition_key, data, self._core.millis, explicit_hash_key)
        return shard.id, record.sequence_number

    def put_many(self, stream: str, records: Iterable[tuple[str, bytes]]) -> int:
        """Put (partition key, data) pairs in order, as if they arrived at one moment; return how many."""
        return self._core.stream(stream).put_many(records, self._core.millis)

    def records(self, stream: str) -> dict[str, list[Record]]:
        """Return all records of a stream in order, by shard id."""
        shards = self._core.stream(stream).shards.values()
        return {shard.id: [record.as_record() for record in shard.records] for shard in shards}

    # --- the stream's shards -------------------------------------------------------------------------------

    def split(self, stream: str, shard_id: str, at: int | None = None) -> tuple[str, str]:
        """Split a shard; the second child starts at hash key `at`, the middle without it. Return the children's ids."""
        lower, upper = self._core.stream(stream).split(shard_id, at, self._core.millis)
        return lower.id, upper.id

    def merge(self, stream: str, shard_id: str, adjacent_shard_id: str) -> str:
        """Merge two adjacent shards; return the child's id."""
        return self._core.stream(stream).merge(shard_id, adjacent_shard_id, self._core.millis).id

    def open_shards(self, stream: str) -> Sequence[str]:
        """Return the ids of the shards that take records, in the order of their hash keys."""
        return [shard.id for shard in self._core.stream(stream).open_shards]

    def scale(self, stream: str, shards: int) -> Sequence[str]:
        """Split and merge until the stream has so many shards of equal size; return their ids (UpdateShardCount)."""
        scale(self._core.stream(stream), shards, self.clock())
        return self.open_shards(stream)

    # --- the stream itself ---------------------------------------------------------------------------------

    def delete_stream(self, stream: str) -> None:
        """Delete a stream, as somebody else would: its consumers go, and their subscriptions end."""
        self._core.delete_stream(self._core.stream(stream))

    def retain(self, stream: str, hours: float) -> None:
        """Keep what was put in the last `hours`, any number of them; what is older is trimmed, now and later."""
        state = self._core.stream(stream)
        state.retention_hours = hours
        trim(state, self.clock())

    def encrypt(self, stream: str, key_id: str = "alias/aws/kinesis") -> None:
        """Encrypt what is put from now on: its EncryptionType is KMS."""
        self._core.stream(stream).encryption.start(key_id)

    def fail_key(self, stream: str, error: str | None) -> None:
        """Let every use of an encrypted stream's key meet this error of KMS; None makes the key work again.

        `error` is one of `state.encryption.KMS_ERRORS`. Live subscriptions end with it at once; new ones are
        accepted and end with it, since SubscribeToShard has these errors within its stream only.
        Raises ValueError for another name.
        """
        if error is not None and error not in KMS_ERRORS:
            raise ValueError(f"{error!r} is none of KMS' errors: expected one of {', '.join(KMS_ERRORS)}")
        state = self._core.stream(stream)
        state.encryption.failing = error
        for shard in state.shards.values():
            shard.notify()

    # --- consumers and subscriptions -----------------------------------------------------------------------

    def register(self, stream: str, name: str) -> FanOutConsumer:
        """Register a consumer; it is ACTIVE after `settings.consumer_creating` seconds."""
        consumer = self._core.register(self._core.stream(stream).arn, name)
        return FanOutConsumer(consumer.name, consumer.arn, consumer.status(self.clock()))

    def deregister(self, consumer_arn: str) -> None:
        """Deregister a consumer, as somebody else would: its subscriptions end."""
        self._core.deregister(*self._core.consumer(consumer_arn))

    def subscriptions(self, stream: str, shard_id: str) -> SubscriptionCounts:
        """Return the counters of a shard's subscriptions, a live object."""
        return self._subscriptions.counts(stream, shard_id)

    # --- captures ------------------------------------------------------------------------------------------

    @contextmanager
    def record(self, path: Path) -> Iterator[None]:
        """Write all that SubscribeToShard sends to a file, while the context is open (`efo.testing.recording.capture`).

        Raises ConfigurationError: the file cannot be written.
        """
        before = self._service.open_body
        with recording(path, self._core, before) as recorder:
            self._service.open_body = recorder.open_body
            try:
                yield
            finally:
                self._service.open_body = before

    def replay(self, path: Path, *, speed: float = 1.0) -> Sequence[str]:
        """Serve a capture from now on, at `speed` times its pace; make its streams, and return their names.

        `math.inf`: as fast as it goes. Raises ConfigurationError: the file is no capture.
        """
        capture = Capture.read(path)
        self._service.open_body = Player(capture, self._core, speed).open_body
        return tuple(capture.streams)

    # --- ways in -------------------------------------------------------------------------------------------

    def kinesis(self, stream: str) -> Kinesis:
        """Return what efo needs to read a stream: connections in memory, the control plane answered directly."""
        return Kinesis(
            stream=stream,
            control=FakeControlPlane(self._core, stream, self._faults),
            connect=self._connect,
            sign=_sign_nothing,
            authority=f"kinesis.{self.settings.region}.fake",
            scheme="http",
            clock=self.clock,
        )

    def serve(self, *, port: int = 0, tls: bool = True) -> AbstractAsyncContextManager[server.Address]:
        """Listen on 127.0.0.1 while the context is open: HTTP/2 and HTTP/1.1. Raises OSError: the port is taken."""
        return server.serve(
            self._service,
            port=port,
            tls=tls,
            max_concurrent_streams=self.settings.max_concurrent_streams,
            serve_connection=server.serve_connection if self._load is None else serve_load_connection,
        )

    async def _connect(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if self._nursery is None:
            raise TransportError("connection refused: the fake is not running")
        ours, theirs = memory_connection(self.settings.memory_stream_bytes)
        limit = self.settings.max_concurrent_streams
        answer = partial(self._service.answer, trusted=True)
        self._nursery.start_soon(partial(serve_http2, ours, answer, max_concurrent_streams=limit))
        return theirs


async def _sign_nothing(_target: str, _body: bytes) -> Sequence[tuple[str, str]]:
    await trio.lowlevel.checkpoint()
    return ()
