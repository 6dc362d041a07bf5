"""A snapshot of all that the page shows, and what changed between two of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from efo_service.web.live.recent import Sentence
from efo_service.web.live.shard_map import Live, Place


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
