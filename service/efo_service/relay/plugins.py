"""Sinks of other packages: found by entry points of the group `efo.sinks`, checked in what they return and raise.

An entry point names an `OpenSink`. `[relay] sink` chooses it by its name, `[relay.options]` are its options.

Its exceptions become SinkError's or SinkDefectError, without their text. A position that is none, or that does not
follow the commits, would lose records (rule R12). A step that holds up the event loop costs leases (rule R10), so it
is reported.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from types import coroutine
from typing import Any, Final, NamedTuple, Protocol

import structlog
import trio

from efo.checks import shown
from efo.errors import ConfigurationError, class_name_of
from efo.model import Checkpoint, Record, checkpoint_of
from efo_service.relay.destination import defects
from efo_service.relay.errors import SinkDefectError
from efo_service.relay.mapping import Extractor
from efo_service.relay.sink import Part, ShardSink, Sink, identify

GROUP: Final = "efo.sinks"
BUILT_IN: Final = ("log", "jsonl", "kafka")
"""The sinks that come with efo. An entry point cannot take their names."""

Options = Mapping[str, str | int | float | bool]
"""The content of [relay.options]."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What efo tells a sink. `stream`, `application`: what is relayed. `topic`: where to write it, of [relay] topic.

    `worker_id`: of this process, unique within the application. `extract`: the function of [relay] trace_extractor, for
    `RecordMapping`.
    """

    stream: str
    application: str
    topic: str
    worker_id: str
    extract: Extractor | None = None


class OpenSink(Protocol):
    """A function of an entry point. It may have an attribute `owns_positions`, see `owns_positions`."""

    def __call__(self, options: Options, context: SinkContext) -> AbstractAsyncContextManager[Sink]:
        """Return the sink, to be entered once for each run of a stream.

        Raises ConfigurationError, in the call, for wrong options. Entering raises SinkError or another EfoError.
        """
        ...


def installed_sinks() -> tuple[str, ...]:
    """Return the names of all sinks: those of efo, then those of other packages."""
    return (*BUILT_IN, *sorted({point.name for point in entry_points(group=GROUP)} - set(BUILT_IN)))


def check_sink(name: str) -> None:
    """Raise ConfigurationError, with the names of the installed sinks, if there is none of this name, or several."""
    if name not in BUILT_IN:
        _find(name)


def load_sink(name: str) -> OpenSink:
    """Return the function of a sink of another package. Raises ConfigurationError."""
    point = _find(name)
    try:
        found = point.load()
    except Exception as error:
        # Without the text of any other exception: the package may have read credentials.
        why = str(error) if isinstance(error, ImportError | AttributeError) else class_name_of(error)
        raise ConfigurationError(f"the sink {name!r} of {_package(point)} cannot be loaded: {why}") from error
    if not callable(found):
        raise ConfigurationError(f"the sink {name!r} of {_package(point)} is no function: see docs/sinks.md")
    sink: OpenSink = found
    return sink


def open_plugin(name: str, options: Options, context: SinkContext) -> AbstractAsyncContextManager[Sink]:
    """Return a sink of another package, not entered. Raises EfoError."""
    open_sink = load_sink(name)
    with defects(f"the stream {context.stream}"):
        opening: object = open_sink(options, context)
    if isinstance(opening, AbstractAsyncContextManager):
        return open_checked(opening, name, context.stream)
    if isinstance(opening, Coroutine):
        opening.close()  # it is never awaited
    raise ConfigurationError(
        f"the sink {name!r} of {_package(_find(name))} returned no async context manager but a"
        f" {type(opening).__name__}: is @asynccontextmanager missing? See docs/sinks.md"
    )


def owns_positions(name: str) -> bool:
    """Return whether a sink of another package keeps the positions of shards itself, which then win (rule R12)."""
    return bool(getattr(load_sink(name), "owns_positions", False))


def _find(name: str) -> EntryPoint:
    found = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not found:
        raise ConfigurationError(
            f"{name!r} is not an installed sink: install its package, or choose one of {', '.join(installed_sinks())}"
        )
    if len(found) > 1:
        raise ConfigurationError(f"{name!r} is a sink of several packages: {', '.join(map(_package, found.values()))}")
    return next(iter(found.values()))


def _package(point: EntryPoint) -> str:
    return f"the package {point.dist.name}" if point.dist is not None else point.value


BLOCKS_AFTER: Final = 0.5
"""Seconds. Leases are lost after some more; a commit of efo's own sinks takes a hundredth in the loop."""
_TELL_EVERY: Final = 60.0


@asynccontextmanager
async def open_checked(opening: AbstractAsyncContextManager[Sink], name: str, stream: str) -> AsyncIterator[Sink]:
    """Open the sink `name` for a stream. Raises EfoError."""
    where, watch = f"the stream {stream}", _Watch(name)
    with defects(where):
        sink = await opening.__aenter__()
    try:
        yield PluginSink(sink, watch)
    except BaseException as error:
        with defects(where):
            await opening.__aexit__(type(error), error, error.__traceback__)
        raise
    with defects(where):
        await opening.__aexit__(None, None, None)


class _Watch:
    """Tells when the sink `name` holds up the event loop, once a minute at most."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._silent_until = float("-inf")

    @contextmanager
    def step(self, method: str) -> Iterator[None]:
        """Measure a step of a method."""
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            if seconds > BLOCKS_AFTER and trio.current_time() >= self._silent_until:
                self._silent_until = trio.current_time() + _TELL_EVERY
                structlog.get_logger().warning(
                    "sink_blocks",
                    sink=self._name,
                    method=method,
                    seconds=round(seconds, 3),
                    remedy="what blocks belongs into trio.to_thread.run_sync: no lease is renewed meanwhile",
                )


class PluginSink:
    """Opens the sink of a package for shards; see Sink."""

    def __init__(self, sink: Sink, watch: _Watch) -> None:
        self._sink = sink
        self._watch = watch
        self._created_at: float | None = None

    def identify(self, created_at: float | None) -> None:
        """Note when the stream was created, see `Identified`. The sink learns it before each opening."""
        self._created_at = created_at

    def open(
        self, stream: str, shard_id: str, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AbstractAsyncContextManager[ShardSink]:
        """Open the sink for a shard. Entering raises SinkError."""
        return self._open(stream, shard_id, checkpoint)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str, checkpoint: Checkpoint) -> AsyncIterator[ShardSink]:
        with defects(shard_id), self._watch.step("identify"):
            identify(self._sink, self._created_at)
        with defects(shard_id):
            opening = self._sink.open(stream, shard_id, checkpoint)
            shard_sink = await _stepwise(opening.__aenter__(), self._watch, "open")
        try:
            yield PluginShardSink(shard_sink, shard_id, self._watch)
        finally:
            with defects(shard_id):
                await opening.__aexit__(None, None, None)  # it is no commit, whatever ends the block


class _Prepared(NamedTuple):
    """What a sink has prepared. `last`: the position of its last record."""

    part: Part
    last: Checkpoint


class PluginShardSink:
    """A sink of a package, opened for one shard; see ShardSink."""

    def __init__(self, sink: ShardSink, shard_id: str, watch: _Watch) -> None:
        self._sink = sink
        self._shard_id = shard_id
        self._watch = watch
        self._has_position = self.position is not None

    @property
    def position(self) -> Checkpoint | None:
        """The position, which is None or a place in the shard. Raises SinkDefectError."""
        with self._call("position"):
            found: object = self._sink.position
        if found is None or (isinstance(found, Checkpoint) and not found.is_sentinel):
            return found
        raise self._defect("position", found, "None, or the Checkpoint of the last durable record")

    @property
    def refusal(self) -> Callable[[Record], str | None] | None:
        """The method that returns why a record can never be written. Raises SinkDefectError."""
        with self._call("refusal"):
            found: object = self._sink.refusal
        if found is None:
            return None
        if callable(found):
            return partial(self._refusal, found)
        raise self._defect("refusal", found, "None, or a method")

    def _refusal(self, refusal: Callable[[Record], object], record: Record) -> str | None:
        with self._call("refusal"):
            found = refusal(record)
        if found is None or isinstance(found, str):
            return found
        raise self._defect("refusal", found, "None, or a text")

    def prepare(self, records: Sequence[Record]) -> Part:
        """Return records as the sink writes them. Raises SinkDefectError."""
        with self._call("prepare"):
            found: object = self._sink.prepare(records)
        if not isinstance(found, Part):
            raise self._defect("prepare", found, "a Part")
        size: object = found.size
        if not isinstance(size, int) or size < 0:
            raise self._defect("prepare", size, "a Part with a size of 0 or more")
        return Part(_Prepared(found, checkpoint_of(records[-1])), size)

    async def commit(self, parts: Sequence[Part]) -> None:
        """Commit parts. Raises SinkDefectError if the position has not followed."""
        prepared: list[_Prepared] = [part.content for part in parts]
        with defects(self._shard_id):
            await _stepwise(self._sink.commit([one.part for one in prepared]), self._watch, "commit")
        last, found = prepared[-1].last, self.position
        self._has_position = self._has_position or found is not None
        if self._has_position and (found is None or found < last):
            raise self._defect("position", found, f"{last}, which was committed")

    @contextmanager
    def _call(self, method: str) -> Iterator[None]:
        with defects(self._shard_id), self._watch.step(method):
            yield

    def _defect(self, method: str, found: object, expected: str) -> SinkDefectError:
        what = shown(found) if isinstance(found, int | Checkpoint | None) else f"a {type(found).__name__}"
        return SinkDefectError(
            f"{self._shard_id}: {method} of its sink is {what}: expected {expected}; this is a defect of the sink's"
            " package, and nothing that was not committed was acked"
        )


@coroutine
def _stepwise(work: Awaitable[Any], watch: _Watch, method: str) -> Generator[Any, Any, Any]:
    """Await something, and measure each of its steps."""
    steps: Any = work.__await__()
    send, value = steps.send, None
    while True:
        try:
            with watch.step(method):
                waits_for = send(value)
        except StopIteration as end:
            return end.value
        try:
            send, value = steps.send, (yield waits_for)
        except BaseException as error:  # noqa: BLE001 - for the coroutine, such as a cancellation
            send, value = steps.throw, error
