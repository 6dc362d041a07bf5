"""A sink as the relay uses it: how its failures are repeated, who gets reports, and what becomes of a shard."""

from __future__ import annotations

import random
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from efo.errors import EfoError, IsolateShardError, class_name_of, without_tracebacks
from efo.model import Checkpoint, Record
from efo.protocol.backoff import Backoff
from efo.retrying import retry
from efo_service.relay.doubt import Doubt
from efo_service.relay.errors import RecordRefusedError, SinkDefectError, SinkError, SinkFencedError
from efo_service.relay.sink import Part, ShardSink, Sink, identify
from efo_service.relay.transform import Transform
from efo_service.relay.write_buffer import RefusedRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SinkRetries:
    """How failures of a sink that may pass are repeated.

    `errors`: those that are repeated, if they are retryable. `seconds`: for how long. `initial`, `limit`, `jitter`: the
    waits, see `efo.protocol.backoff`. `isolates`: whether the shard is isolated when the time is over; otherwise the
    error is raised. `isolating_errors`: errors that end the shard on this worker, but not on another one: they isolate
    it at once. `doubt`: for how many seconds what looks like damage must stay until it is believed, see `Doubt`.
    """

    errors: tuple[type[SinkError], ...] = (SinkError,)
    seconds: float = inf
    initial: float = 0.1
    limit: float = 5.0
    jitter: float = 1.0
    isolates: bool = True
    isolating_errors: tuple[type[SinkError], ...] = ()
    doubt: float = 0.0

    def covers(self, error: EfoError) -> bool:
        """Return whether an error is one that is repeated, as long as there is time."""
        return error.retryable and isinstance(error, self.errors)


class SinkReports(Protocol):
    """Gets reports of what a sink does."""

    def retried(self, shard_id: str, error: SinkError, seconds: float) -> None:
        """Note that a shard's sink failed, and is tried again in some seconds. `shard_id`: empty before any is open."""
        ...

    def recovered(self, shard_id: str) -> None:
        """Note that a shard's sink works again, after it failed."""
        ...

    def refused(self, shard_id: str, refused: RefusedRecord) -> None:
        """Note that a record that the sink refuses was dead-lettered or skipped."""
        ...

    def commit(self, records: int) -> AbstractContextManager[object]:
        """Return a context for a commit of so many records, with its retries. An exception ends it as a failure."""
        ...


class NoReports:
    """Reports nothing. Implements SinkReports."""

    def retried(self, shard_id: str, error: SinkError, seconds: float) -> None:
        """Do nothing."""

    def recovered(self, shard_id: str) -> None:
        """Do nothing."""

    def refused(self, shard_id: str, refused: RefusedRecord) -> None:
        """Do nothing."""

    def commit(self, _records: int) -> AbstractContextManager[object]:
        """Do nothing."""
        return nullcontext()


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a stream is relayed to.

    `sink`: where its records go. `dead_letters`: where those go that the sink refuses; None: they end their shard.
    `transform`: changes and drops records before the sink gets them. `takes_old`: whether records that are too old are
    dead letters.
    `problems`: returns what is wrong beside commits that fail, in sentences with their remedies.
    """

    sink: Sink
    retries: SinkRetries = field(default_factory=SinkRetries)
    reports: SinkReports = field(default_factory=NoReports)
    dead_letters: Destination | None = None
    transform: Transform | None = None
    takes_old: bool = False
    problems: Callable[[], Iterable[str]] = tuple

    def identify(self, created_at: float | None) -> None:
        """Tell the sinks when the stream was created, see `Identified`."""
        identify(self.sink, created_at)
        if self.dead_letters is not None:
            self.dead_letters.identify(created_at)


async def repeated(
    call: Callable[[], Awaitable[T]],
    retries: SinkRetries,
    reports: SinkReports,
    shard_id: str = "",
    rng: random.Random | None = None,
) -> T:
    """Return what a call of a sink returns, as soon as it succeeds. Report its failures, and when it works again.

    `shard_id`: empty before any shard is open. `rng`: the source of jitter. Raises IsolateShardError and what the call
    raised last.
    """
    doubt, failures, since = Doubt(retries.doubt), 0, 0.0

    def may_pass(error: EfoError) -> bool:
        now = trio.current_time()
        if error.retryable:
            return retries.covers(error) and now - since < retries.seconds
        return isinstance(error, SinkError) and not doubt.is_final(error, now)

    async def attempt() -> T:
        nonlocal failures, since
        try:
            return await call()
        except SinkError:
            since = since if failures else trio.current_time()
            failures += 1
            raise

    def failed(error: EfoError, delay: float) -> None:
        assert isinstance(error, SinkError)  # noqa: S101 - nothing else is repeated
        reports.retried(shard_id, doubt.shown(without_tracebacks(error)), delay)

    rng = rng or random.Random()  # noqa: S311 - jitter is no secret
    backoff = Backoff(rng.random, initial=retries.initial, limit=retries.limit, jitter=retries.jitter)
    longest = max(retries.seconds, retries.doubt)
    try:
        result = await retry(attempt, backoff.next, seconds=longest, repeats=may_pass, on_failure=failed)
    except SinkError as error:
        if isinstance(error, retries.isolating_errors):
            raise IsolateShardError(f"{shard_id}: {error}") from error
        if not (retries.isolates and retries.covers(error)):
            raise
        raise IsolateShardError(
            f"{shard_id}: its sink has failed {failures} times in {trio.current_time() - since:.0f} s;"
            f" the last error: {error}"
        ) from error
    if failures:
        reports.recovered(shard_id)
    return result


class SkippingSink:
    """A sink for dead letters that skips them: it keeps nothing."""

    @asynccontextmanager
    async def open(
        self, _stream: str, _shard_id: str, _checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AsyncIterator[ShardSink]:
        """Open the sink for a shard."""
        yield _SkippingShardSink()


class _SkippingShardSink:
    position = None
    refusal = None

    def prepare(self, _records: Sequence[Record]) -> Part:
        return Part(None, 0)

    async def commit(self, _parts: Sequence[Part]) -> None:
        await trio.lowlevel.checkpoint()


ShardT = TypeVar("ShardT")


def isolating(
    relay: Callable[[ShardT], Awaitable[None]], *, refused_records: bool, sink_errors: bool
) -> Callable[[ShardT], Awaitable[None]]:
    """Return a reader that relays a shard and isolates it after these failures; all others are raised unchanged.

    A shard that another worker has opened since is always isolated: the sink is well, and the other worker goes on.
    `refused_records`: a record that no sink takes, and an unexpected exception of a sink, which a record may cause.
    `sink_errors`: all other errors of a sink.
    """

    async def read(shard: ShardT) -> None:
        try:
            await relay(shard)
        except (RecordRefusedError, SinkDefectError) as error:
            if not refused_records:
                raise
            record = error.record if isinstance(error, RecordRefusedError) else None
            raise IsolateShardError(str(error), record=record) from error
        except SinkFencedError as error:
            raise IsolateShardError(str(error)) from error
        except SinkError as error:
            if not sink_errors:
                raise
            raise IsolateShardError(str(error)) from error

    return read


@contextmanager
def defects(shard_id: str) -> Iterator[None]:
    """Turn an unexpected exception of a shard's sink into SinkDefectError, without its text: that may quote data."""
    try:
        yield
    except EfoError:
        raise
    except Exception as error:
        places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
        raise SinkDefectError(
            f"{shard_id}: its sink failed with {class_name_of(error)} at {' > '.join(places[-4:])}: this is a defect,"
            " please report this line; nothing that was not committed was acked"
        ) from error
