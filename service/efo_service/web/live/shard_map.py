"""The shard map: the lineage of a stream's shards as places over hash keys and generations, with their state. Pure.

A shard takes the rectangle of its hash-key range and of its generations. Its children begin where it ends, so the
rectangles fill the plane: a split is two narrower rectangles behind one, a merge is the reverse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from efo.consumer.status import ConsumerStatus, ShardStatus
from efo.health import ActiveReadMode, Condition
from efo.model import HashKeyRange, Lease, Shard
from efo.protocol.lineage import is_startable

ShardState = Literal[
    Condition, "other_worker", "handing_over", "ready", "waiting_parent", "finished", "no_lease_yet"
]  # fmt: skip
"""The condition of a shard that this worker reads; of the others what the lease table shows. `other_worker`: another
worker holds the lease. `ready`: it may start, and nobody reads it yet. `no_lease_yet`: the end of its parents creates
its lease."""

_HASH_KEYS: Final = 2**128


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a shard is on the map; it does not change until the stream is resharded.

    `low`, `high`: its share of the hash keys, 0 to 1; None if its range is not known. `generation`: 0 for the oldest.
    `until`: the generation of its first child; None if it has none. `is_open`: whether it accepts records.
    """

    id: str
    low: float | None
    high: float | None
    generation: int
    until: int | None
    parents: tuple[str, ...]
    is_open: bool


class Live(msgspec.Struct, frozen=True, omit_defaults=True):
    """What changes all the time. Times in seconds, rates per second; None while unknown, or if another worker reads it.

    `worker`: the holder of the lease.
    """

    id: str
    state: ShardState
    worker: str | None = None
    subscription: str | None = None
    read_mode: ActiveReadMode | None = None
    checkpoint: str | None = None
    lag: float | None = None
    records: float | None = None
    bytes: float | None = None
    event_age: float | None = None
    saved_age: float | None = None
    error: str | None = None


class Rate(msgspec.Struct, frozen=True):
    """Records and bytes per second."""

    records: float
    bytes: float


def places(shards: Sequence[Shard], leases: Mapping[str, Lease]) -> tuple[Place, ...]:
    """Return the place of each shard that is listed or has a lease, in the order of generation and hash keys."""
    listed = {shard.shard_id: shard for shard in shards}
    parents = {key: lease.parents for key, lease in leases.items()} | {key: s.parents for key, s in listed.items()}
    parents = {key: tuple(p for p in found if p in parents and p != key) for key, found in parents.items()}
    generations = _generations(parents)
    until: dict[str, int] = {}
    for key, found in parents.items():
        for parent in found:
            until[parent] = min(until.get(parent, generations[key]), generations[key])
    made = [
        Place(
            key,
            *_range(listed[key].hash_key_range if key in listed else leases[key].hash_key_range),
            generations[key],
            until.get(key),
            parents[key],
            key in listed and listed[key].is_open,
        )
        for key in parents
    ]
    return tuple(sorted(made, key=lambda place: (place.generation, place.low or 0.0, place.id)))


def live(
    found: Iterable[Place],
    leases: Mapping[str, Lease],
    status: ConsumerStatus,
    rates: Mapping[str, Rate],
) -> tuple[Live, ...]:
    """Return the state of each of these shards."""
    read = {shard.shard_id: shard for shard in status.shards}
    isolated = {shard.shard_id: shard.error_type for shard in status.isolated}
    return tuple(
        _of_reader(read[place.id], leases.get(place.id), rates.get(place.id), isolated.get(place.id), status.worker_id)
        if place.id in read
        else _of_lease(place.id, leases, isolated.get(place.id), status.worker_id)
        for place in found
    )


def _of_reader(shard: ShardStatus, lease: Lease | None, rate: Rate | None, error: str | None, worker_id: str) -> Live:
    gone = shard.condition in {"no_lease", "isolated"}
    holder = lease.holder if lease is not None else None
    return Live(
        shard.shard_id,
        shard.condition,
        holder if gone else worker_id,
        shard.state,
        shard.read_mode,
        str(shard.checkpoint),
        _rounded(shard.lag),
        None if rate is None else round(rate.records, 1),
        None if rate is None else round(rate.bytes, 1),
        _rounded(shard.last_event_age),
        _rounded(shard.saved_age),
        error,
    )


def _of_lease(key: str, leases: Mapping[str, Lease], error: str | None, worker_id: str) -> Live:
    lease = leases.get(key)
    if lease is None:
        return Live(key, "no_lease_yet")
    return Live(key, _state(lease, leases, worker_id), lease.holder, checkpoint=str(lease.checkpoint), error=error)


def _state(lease: Lease, leases: Mapping[str, Lease], worker_id: str) -> ShardState:
    if lease.is_finished:
        return "finished"
    if lease.checkpoint_owner is not None:
        return "handing_over"
    if not is_startable(lease, leases):
        return "waiting_parent"
    return "ready" if lease.owner in {None, worker_id} else "other_worker"


def _generations(parents: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Return the generation of each shard: one more than the newest of its parents. Damaged rows may form circles."""
    found: dict[str, int] = {}
    for start in parents:
        stack, path = [start], set[str]()
        while stack:
            key = stack[-1]
            missing = [p for p in parents[key] if p not in found and p not in path]
            if key in found or not missing:
                found.setdefault(key, 1 + max((found.get(p, -1) for p in parents[key]), default=-1))
                path.discard(key)
                stack.pop()
            else:
                path.add(key)
                stack += missing
    return found


def _range(keys: HashKeyRange | None) -> tuple[float | None, float | None]:
    if keys is None:
        return None, None
    return int(keys.starting_hash_key) / _HASH_KEYS, (int(keys.ending_hash_key) + 1) / _HASH_KEYS


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
