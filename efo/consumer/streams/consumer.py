"""The consumer of many streams: which it reads, and what it does with each. `efo.consumer.streams.opening` opens it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Final, Literal

import trio

from efo.checks import check_async
from efo.consumer.consumer import Consumer
from efo.consumer.ending import CLOSED, TWO_READERS, drain_after, failure_of
from efo.consumer.handlers.misuse import check_no_handler, check_surface
from efo.consumer.shard_task import ShardReader
from efo.consumer.status import ConsumerStatus
from efo.consumer.streams.config import (
    StreamConfig,
    StreamLike,
    StreamTracker,
    check_one_balance,
    stream_config,
    stream_configs,
)
from efo.errors import (
    ConfigurationError,
    ConsumerNotActiveError,
    ConsumerNotFoundError,
    EfoError,
    ServiceError,
    StreamRecreatedError,
    TransportError,
)
from efo.events import Observer, StreamIsolated, StreamRestored
from efo.exception_groups import collapse_groups, shorten
from efo.settings import ConsumerSettings, OnServiceError
from efo.telemetry.combined import HeldBack

StreamState = Literal["opening", "reading", "leaving", "isolated", "complete"]
"""`opening`: its fan-out consumer, its leases and its shards are looked up. `leaving`: it is drained, because it was
removed or changed. `isolated`: the service rejects it, and it is tried again later. `complete`: it was read up to
where the consumer is to end."""

_OF_THE_STREAM = (ServiceError, TransportError, ConsumerNotActiveError, ConsumerNotFoundError, StreamRecreatedError)
"""The errors that `on_service_error="isolate"` keeps to their stream."""
MAX_PAUSE: Final = 600.0
"""The longest pause before a stream is tried again that waits for an operator: each pause is twice the one before."""


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The state of one stream. `error`: why it is isolated. `consumer`: None unless it is being read or left."""

    state: StreamState
    error: EfoError | None
    consumer: ConsumerStatus | None


class _Stream:
    """One stream that is read, or is being left. `wanted`: how it is to be read; None once it is removed.

    `refused_since`: when it was first refused as another stream than its leases are of (trio's clock), None while it is
    not. `refusals`: how often since then.
    """

    def __init__(self, wanted: StreamConfig) -> None:
        self.wanted: StreamConfig | None = wanted
        self.consumer: Consumer | None = None
        self.opening: trio.CancelScope | None = None
        self.error: EfoError | None = None
        self.woken = trio.Event()
        self.refused_since: float | None = None
        self.refusals = 0
        self.was_caught_up: bool | None = None  # when it was complete

    @property
    def is_complete(self) -> bool:
        """Whether everything was delivered up to where the consumer is to end."""
        return self.was_caught_up is not None or (self.consumer is not None and self.consumer.is_complete)

    @property
    def is_caught_up(self) -> bool:
        """Whether everything was acked up to there, or up to the tip."""
        if self.was_caught_up is not None:
            return self.was_caught_up
        return self.consumer is not None and self.consumer.caught_up()

    def leave(self) -> None:
        """Stop what runs: finish what was delivered, or give up what is not open yet."""
        self.woken.set()
        if self.consumer is not None:
            self.consumer.drain()
        elif self.opening is not None:
            self.opening.cancel()


Open = Callable[[StreamConfig, Callable[[Observer], Observer]], AbstractAsyncContextManager[Consumer]]
"""Opens the consumer of one stream. The function returns what observes it, for the stream's observer."""


class MultiStreamConsumer:
    """Reads many streams, each with its own shards, leases and fan-out consumer. Made by `open_streams`.

    Each stream is opened, drained and removed without touching the others. `settings`: those of all streams.
    `failure`: what ended it, and where; None unless an error did. `is_closed`: whether its block was left.
    """

    def __init__(
        self,
        streams: Iterable[StreamLike] | StreamTracker,
        open_stream: Open,
        *,
        settings: ConsumerSettings,
        refresh_interval: float,
        on_service_error: OnServiceError,
        retry_after: float,
        observer: Callable[[str], Observer],
        timeout: float | None = None,
    ) -> None:
        self.failure: str | None = None
        self.is_closed: bool = False
        self.on_end: Callable[[], object] = lambda: None
        self._token = trio.lowlevel.current_trio_token()
        self._observer = observer
        self._timeout = timeout
        self._is_tracked = not callable(streams)  # the tracker has named streams
        self._ended: dict[str, bool] = {}  # streams that are no longer read, and whether all of each was acked
        self._tracker: StreamTracker | None = streams if callable(streams) else None
        self._open = open_stream
        self._settings = settings
        self._refresh_interval = refresh_interval
        self._isolates = on_service_error == "isolate"
        self._retry_after = retry_after
        self._streams: dict[str, _Stream] = {}
        self._nursery: trio.Nursery | None = None
        self._reader: ShardReader | None = None
        self._draining = trio.Event()
        if not callable(streams):
            self.update(streams)

    def add(self, stream: StreamLike) -> None:
        """Read a stream too, from now on. If it is read already with another configuration, it is opened again.

        If it is being left, it is read again once it is drained. Raises ConfigurationError, also after `drain`, and if
        its settings balance leases in another way than those of the other streams: all share one balance.
        """
        self._refuse_drained("add")
        config = stream_config(stream)
        wanted = {name: stream.wanted for name, stream in self._streams.items() if stream.wanted is not None}
        check_one_balance({**wanted, config.name: config}.values(), self._settings)
        self._add(config)

    def _add(self, config: StreamConfig) -> None:
        known = self._streams.get(config.name)
        if known is None:
            known = self._streams[config.name] = _Stream(config)
            self._start(config.name, known)
        elif known.wanted != config:
            known.wanted = config
            known.leave()

    def remove(self, stream: str) -> None:
        """Read a stream no more: its shards finish what they hold, and its leases are released.

        Leases and checkpoints stay, so that a later `add` continues. `stream`: its name. Raises ConfigurationError if
        it is not read.
        """
        known = self._streams.get(stream)
        if known is None or known.wanted is None:
            raise ConfigurationError(f"the stream {stream!r} is not read: {', '.join(self.streams) or 'none'} are")
        known.wanted = None
        known.leave()
        self._ended.pop(stream, None)
        if self._nursery is None:
            del self._streams[stream]
        self._end_if_complete()

    def update(self, streams: Iterable[StreamLike]) -> None:
        """Read exactly these streams from now on. Those that stay as they are go on. Raises as `add` does."""
        self._refuse_drained("update")
        configs = stream_configs(streams)
        check_one_balance(configs.values(), self._settings)
        for name in self.streams:
            if name not in configs:
                self.remove(name)
        for config in configs.values():
            self._add(config)

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams that are to be read."""
        return tuple(name for name, stream in self._streams.items() if stream.wanted is not None)

    def consumer(self, stream: str) -> Consumer:
        """Return the consumer of one stream, to pause, seek and release its shards.

        It is another one after the stream was opened again. Raises ConfigurationError if the stream is not read now.
        """
        known = self._streams.get(stream)
        if known is None or known.consumer is None:
            raise ConfigurationError(f"the stream {stream!r} is not read now: status() has the state of each")
        return known.consumer

    def status(self) -> Mapping[str, StreamStatus]:
        """Return the state of each stream by name, those that are being left included."""
        return {name: self._status_of(stream) for name, stream in self._streams.items()}

    async def run(self, reader: ShardReader) -> None:
        """Read all streams until `drain`, each shard in a task of its own that calls `reader(shard)`.

        `shard.stream` is the stream's name. An error of a reader or of the lease store stops all streams; so does an
        error of the service, unless `on_service_error` is "isolate". Then the stream is tried again later. What was
        acked is checkpointed in any case. Raises what the reader and the tracker raise, and EfoError.
        """
        check_surface(reader, "efo")
        check_async(reader, "reader", "shard")
        check_no_handler(reader, "efo")
        if self._nursery is not None:
            raise ConfigurationError(TWO_READERS)
        if self.is_closed:
            raise ConfigurationError(CLOSED)
        self._reader = reader
        try:
            with collapse_groups():
                async with trio.open_nursery() as background:
                    if self._timeout is not None:
                        background.start_soon(drain_after, self._timeout, self)
                    async with trio.open_nursery() as self._nursery:
                        if self._tracker is not None:  # its first call may hang, and a drain must not wait for it
                            background.start_soon(self._track, self._tracker)
                        for name, stream in list(self._streams.items()):
                            self._start(name, stream)
                        await self._draining.wait()
                    background.cancel_scope.cancel()
        except Exception as error:
            if self.failure is None:
                event = failure_of(error)
                self.failure = f"{event.error_type} at {event.places[-1]}" if event.places else event.error_type
            shorten(error)
            raise
        finally:
            self._nursery = None

    def drain(self) -> None:
        """Stop all streams at the next batch of each shard: finish what was delivered, checkpoint, release.

        Any thread may call it.
        """
        if not trio.lowlevel.in_trio_run() or trio.lowlevel.current_trio_token() is not self._token:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self.drain)
            return
        self._draining.set()
        for stream in self._streams.values():
            stream.leave()
        self.on_end()

    def caught_up(self) -> bool:
        """Return whether all records of all streams that had arrived are acked: see `Consumer.caught_up`."""
        if self._nursery is None:
            return bool(self._ended) and all(self._ended.values())
        wanted = [stream for stream in self._streams.values() if stream.wanted is not None]
        return self._is_tracked and bool(wanted) and all(stream.is_caught_up for stream in wanted)

    def _end_if_complete(self) -> None:
        """End when all streams were read up to where the consumer is to end: what was delivered is still processed."""
        wanted = [stream for stream in self._streams.values() if stream.wanted is not None]
        if wanted and self._is_tracked and not self._draining.is_set() and all(stream.is_complete for stream in wanted):
            self._draining.set()
            for stream in wanted:
                stream.woken.set()
            self.on_end()

    def _refuse_drained(self, call: str) -> None:
        if self._draining.is_set():
            raise ConfigurationError(
                f"{call} has no effect after drain: this consumer stops and reads no stream again; open another one"
            )

    def _start(self, name: str, stream: _Stream) -> None:
        if self._nursery is not None and not self._draining.is_set():
            self._nursery.start_soon(self._keep, name, stream)

    async def _track(self, tracker: StreamTracker) -> None:
        while True:
            streams = await tracker()
            if self._draining.is_set():
                return
            self.update(streams)
            self._is_tracked = True
            self._end_if_complete()
            await trio.sleep(self._refresh_interval)

    async def _keep(self, name: str, stream: _Stream) -> None:
        """Read a stream until it is removed; open it again if its configuration changes, or after an error."""
        try:
            while (config := stream.wanted) is not None and not self._draining.is_set():
                stream.woken = trio.Event()
                try:
                    await self._read(config, stream)
                    if stream.was_caught_up is not None and not self._draining.is_set():
                        await stream.woken.wait()
                        stream.was_caught_up = None
                except _OF_THE_STREAM as error:
                    if not self._isolates:
                        raise
                    stream.error = error
                    with trio.move_on_after(self._isolate(name, stream, error)):
                        await stream.woken.wait()
        finally:
            del self._streams[name]

    def _isolate(self, name: str, stream: _Stream, error: EfoError) -> float:
        """Return for how long a stream is left alone that was refused, and report it.

        What waits for an operator has growing pauses, and one report until it is over.
        """
        is_known = isinstance(error, StreamRecreatedError) and stream.refused_since is not None
        pause = min(max(self._retry_after, 1.0) * 2.0 ** min(stream.refusals, 20), max(MAX_PAUSE, self._retry_after))
        if isinstance(error, StreamRecreatedError):
            stream.refusals += 1
            if stream.refused_since is None:
                stream.refused_since = trio.current_time()
        else:
            stream.refused_since, stream.refusals, pause = None, 0, self._retry_after
        if not is_known:
            detail = " ".join(str(error).split())
            self._observer(name)(StreamIsolated(name, pause, error.error_type, detail))
        return pause

    def _restored(self, name: str, stream: _Stream) -> None:
        """Note that a stream is read that was refused before."""
        if stream.refused_since is not None:
            duration, attempts = trio.current_time() - stream.refused_since, stream.refusals
            stream.error, stream.refused_since, stream.refusals = None, None, 0
            self._observer(name)(StreamRestored(name, StreamRecreatedError.error_type, duration, attempts))

    async def _read(self, config: StreamConfig, stream: _Stream) -> None:
        """Open a stream and read it until it is left."""
        reader = self._reader
        assert reader is not None  # noqa: S101 - only `run` starts streams

        def observed(observer: Observer) -> Observer:
            if stream.refused_since is None:
                return observer
            return HeldBack(observer, lambda: self._restored(config.name, stream))

        with trio.CancelScope() as opening:
            stream.opening = opening
            async with self._open(config, observed) as consumer:
                stream.consumer, stream.opening = consumer, None
                consumer.on_end = self._end_if_complete
                if stream.refused_since is None:
                    stream.error = None
                try:
                    await consumer.run(reader)
                finally:
                    is_complete = consumer.is_complete
                    stream.consumer, self._ended[config.name] = None, consumer.caught_up()
                if is_complete and stream.wanted == config:
                    stream.was_caught_up = self._ended[config.name]

    def _status_of(self, stream: _Stream) -> StreamStatus:
        is_leaving = stream.wanted is None or self._draining.is_set() or stream.woken.is_set()
        state: StreamState = "opening" if stream.consumer is None else "reading"
        if stream.was_caught_up is not None:
            state = "complete"
        if stream.error is not None:
            state = "isolated"
        if is_leaving:
            state = "leaving"
        return StreamStatus(state, stream.error, None if stream.consumer is None else stream.consumer.status())
