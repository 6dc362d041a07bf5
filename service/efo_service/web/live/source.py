"""Takes the snapshot of a worker for the page: of what its consumer knows anyway, its events, and what has changed."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import Final, Protocol

import msgspec
import trio

from efo.consumer.status import ConsumerStatus
from efo.events import Event, EventReceived, RecordsProcessed, ShardFinished, ShardStopped, WorkerStarted
from efo.model import Lease, Shard
from efo.telemetry.combined import FREQUENT, nothing_held
from efo.telemetry.log import LoggingObserver
from efo_service.version import VERSION
from efo_service.web.live.shard_map import Live, Place, Rate, live, places
from efo_service.web.status import ReportsProblems


class ShowsShards(Protocol):
    """The part of a consumer that the page shows."""

    def status(self) -> ConsumerStatus:
        """Return a snapshot of the consumer's state."""
        ...

    def lineage(self) -> tuple[Sequence[Shard], Mapping[str, Lease]]:
        """Return the listed shards, and all leases by shard id."""
        ...


class StreamSource:
    """Views of one stream. `consumer` is None until it is open. As an observer, it follows traffic and events."""

    def __init__(self, identity: Mapping[str, str], health: ReportsProblems) -> None:
        self.consumer: ShowsShards | None = None
        self.recent = RecentEvents()
        self._identity = identity
        self._health = health
        self._traffic = Traffic()
        self._lineage: tuple[Sequence[Shard], frozenset[str]] = ((), frozenset())
        self._places: tuple[Place, ...] = ()
        self._drain: Callable[[], None] = nothing_held

    def observes(self, event_type: type) -> bool:
        """Whether an event of this type is counted, or may become a sentence (see `combine_observers`)."""
        return event_type in FREQUENT or self.recent.observes(event_type)

    def __call__(self, event: Event) -> None:
        """Follow one event."""
        self._traffic(event)
        self.recent(event)

    def observe_many(self, events: Sequence[Event]) -> None:
        """Follow events that were held back (see `efo.telemetry.combined`)."""
        for event in events:
            self(event)

    def held_by(self, drain: Callable[[], None]) -> None:
        """Call `drain` before each view: it passes on the events that are held back."""
        self._drain = drain

    def view(self) -> StreamView:
        """Return the view of now."""
        self._drain()
        found: tuple[Place, ...] = ()
        shards: tuple[Live, ...] = ()
        worker_id, lease_table = self._identity.get("worker_id", ""), "unknown"
        if self.consumer is not None:
            status = self.consumer.status()
            worker_id = status.worker_id
            lease_table = "unknown" if status.leases is None else "known"
            listed, leases = self.consumer.lineage()
            found = self._placed(listed, leases)
            shards = live(found, leases, status, self._traffic.sample(trio.current_time()))
        return StreamView(
            stream=self._identity.get("stream", ""),
            application=self._identity.get("application", ""),
            topic=self._identity.get("topic", ""),
            worker_id=worker_id,
            version=VERSION,
            draining=self._health.draining,
            lease_table=lease_table,
            problems=self._health.problems(),
            workers=workers_of(shards, worker_id),
            events=self.recent.sentences(),
            places=found,
            live=shards,
        )

    def _placed(self, listed: Sequence[Shard], leases: Mapping[str, Lease]) -> tuple[Place, ...]:
        """Return the places, computed again only after a listing or if leases came or went."""
        lineage = (listed, frozenset(leases))
        if self._lineage[0] is not listed or self._lineage[1] != lineage[1]:
            self._lineage, self._places = lineage, places(listed, leases)
        return self._places


_SAMPLES: Final = 6
"""A rate is measured over this many samples at most, so that the events of an idle shard do not make it jump."""
_MEMORY: Final = 30.0
"""Seconds after which a sample is too old: nobody has looked for some time."""


class Traffic:
    """An observer that counts the processed records and the received bytes of each shard that is being read."""

    def __init__(self) -> None:
        self._records: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._samples: deque[tuple[float, dict[str, int], dict[str, int]]] = deque(maxlen=_SAMPLES)

    def __call__(self, event: Event) -> None:
        """Count one event. The frequent ones go first."""
        if isinstance(event, EventReceived):
            self._bytes[event.shard_id] = self._bytes.get(event.shard_id, 0) + event.wire_bytes
        elif isinstance(event, RecordsProcessed):
            self._records[event.shard_id] = self._records.get(event.shard_id, 0) + event.records
        elif isinstance(event, ShardFinished | ShardStopped):
            self._records.pop(event.shard_id, None)
            self._bytes.pop(event.shard_id, None)

    def sample(self, now: float) -> Mapping[str, Rate]:
        """Return the rates since the oldest sample that is kept, and keep one of now. Empty at the first call."""
        while self._samples and self._samples[0][0] < now - _MEMORY:
            self._samples.popleft()
        rates: dict[str, Rate] = {}
        if self._samples and (seconds := now - self._samples[0][0]) > 0:
            _, records, received = self._samples[0]
            for shard_id, total in self._bytes.items():
                processed = self._records.get(shard_id, 0)
                # A total that fell: the shard was read anew meanwhile.
                rates[shard_id] = Rate(
                    max(0, processed - records.get(shard_id, 0)) / seconds,
                    max(0, total - received.get(shard_id, 0)) / seconds,
                )
        self._samples.append((now, dict(self._records), dict(self._bytes)))
        return rates


KEPT: Final = 200


class Sentence(msgspec.Struct, frozen=True):
    """An event. `number`: grows with each one of a worker. `at`: seconds since the epoch. `level`: as in the log."""

    number: int
    at: float
    level: str
    text: str
    worker: str = ""


class RecentEvents:
    """An observer that keeps the last events that an operator should see. Sentences have neither data nor keys."""

    def __init__(self, *, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._kept: deque[Sentence] = deque(maxlen=KEPT)
        self._count = 0
        self._worker = ""
        # Not by getLogger: nothing else writes to it, it has no parent, and another service has another one.
        logger = logging.Logger(__name__, logging.INFO)  # noqa: LOG001
        logger.addHandler(_Handler(self._add))
        self._observe = LoggingObserver(logger)

    def observes(self, event_type: type) -> bool:
        """Whether an event of this type may become a sentence (see `combine_observers`)."""
        return self._observe.observes(event_type)

    def __call__(self, event: Event) -> None:
        """Keep one event, if it is worth a sentence."""
        if isinstance(event, WorkerStarted):
            self._worker = event.worker_id  # in a field of its own, instead of at the beginning of each sentence
        else:
            self._observe(event)

    def sentences(self) -> tuple[Sentence, ...]:
        """Return the last events, the oldest first."""
        return tuple(self._kept)

    def note(self, level: str, text: str) -> None:
        """Keep a sentence that is no event of a consumer: what an operator did."""
        self._count += 1
        self._kept.append(Sentence(self._count, round(self._clock(), 3), level, text, self._worker))

    def _add(self, record: logging.LogRecord) -> None:
        self.note(record.levelname.lower(), record.getMessage())


class _Handler(logging.Handler):
    def __init__(self, add: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._add = add

    def emit(self, record: logging.LogRecord) -> None:
        self._add(record)


class WorkerView(msgspec.Struct, frozen=True):
    """A worker, and how many leases it holds. `answers`: whether this snapshot has what it knows of its shards."""

    id: str
    shards: int
    answers: bool = True


class StreamView(msgspec.Struct, frozen=True):
    """One stream. `problems`: what is wrong, in sentences with their remedies. `places`, `live`: in the same order."""

    stream: str
    application: str
    topic: str
    worker_id: str
    version: str
    draining: bool
    lease_table: str
    problems: tuple[str, ...]
    workers: tuple[WorkerView, ...]
    events: tuple[Sentence, ...]
    places: tuple[Place, ...]
    live: tuple[Live, ...]


class Snapshot(msgspec.Struct, frozen=True):
    """All streams of the service."""

    streams: tuple[StreamView, ...]

    def with_problems(self, texts: tuple[str, ...]) -> Snapshot:
        """Return it with problems of the process, which each stream shows first."""
        if not texts:
            return self
        replace = msgspec.structs.replace
        return Snapshot(tuple(replace(view, problems=(*texts, *view.problems)) for view in self.streams))


def workers_of(live: Sequence[Live], worker_id: str) -> tuple[WorkerView, ...]:
    """Return the holders of leases, this worker among them."""
    counted = Counter(shard.worker for shard in live if shard.worker and shard.state != "finished")
    counted.setdefault(worker_id, 0)
    return tuple(WorkerView(name, count, name == worker_id) for name, count in sorted(counted.items()) if name)


def changes(before: Snapshot, after: Snapshot) -> Snapshot | None:
    """Return the second snapshot with nothing but what changed; None if the page has to draw its map anew.

    A stream without changed places has none; `live` has only the shards that changed, `events` only the new ones.
    """
    if len(before.streams) != len(after.streams):
        return None
    if any(a.places != b.places or a.stream != b.stream for a, b in zip(before.streams, after.streams, strict=True)):
        return None
    return Snapshot(tuple(map(_changed, before.streams, after.streams)))


def _changed(before: StreamView, after: StreamView) -> StreamView:
    known = {(event.worker, event.number) for event in before.events}
    return msgspec.structs.replace(
        after,
        places=(),
        live=tuple(new for old, new in zip(before.live, after.live, strict=True) if old != new),
        events=tuple(event for event in after.events if (event.worker, event.number) not in known),
    )
