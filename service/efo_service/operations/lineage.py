"""The shards of a stream as a tree, with the state of each shard's lease. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal

from efo.model import Checkpoint, FanOutConsumer, Lease, Position, Shard
from efo.protocol.lineage import is_startable

State = Literal["finished", "consuming", "handing_over", "ready", "waiting_parent", "no_lease"]
"""consuming: a worker holds the lease. ready: no worker holds it, and the shard may start. waiting_parent: the shard
may not start yet (rule R1). no_lease: the end of its parents will create the lease, or nobody reads the shard."""


@dataclass(frozen=True, slots=True)
class ShardNode:
    """A shard of the tree. `is_listed`: whether ListShards still returns it; if not, only its lease exists.

    `depth`: generations below the oldest shard. `parents`: the child of a merge is below the first of them.
    """

    shard_id: str
    depth: int
    state: State
    is_open: bool
    is_listed: bool
    parents: tuple[str, ...] = ()
    owner: str | None = None
    checkpoint: Checkpoint | None = None
    starts_at: float | None = None


def shard_tree(shards: Sequence[Shard], leases: Mapping[str, Lease]) -> list[ShardNode]:
    """Return all shards that are listed or leased, each below its first parent that is also in the tree."""
    listed = {shard.shard_id: shard for shard in shards}
    parents = {key: lease.parents for key, lease in leases.items()} | {
        key: shard.parents for key, shard in listed.items()
    }
    children: dict[str | None, list[str]] = {}
    for key in sorted(parents):
        first = next((parent for parent in parents[key] if parent in parents), None)
        children.setdefault(first, []).append(key)
    nodes: list[ShardNode] = []
    stack = [(key, 0) for key in reversed(children.get(None, []))]
    while stack:
        key, depth = stack.pop()
        nodes.append(_node(key, depth, listed.get(key), leases, parents[key]))
        stack += [(child, depth + 1) for child in reversed(children.get(key, []))]
    return nodes


def position_of(node: ShardNode) -> Position | None:
    """Return the position after the shard's checkpoint, to request its lag; None if the shard has no lag."""
    checkpoint = node.checkpoint
    if checkpoint is None or node.state == "finished" or not node.is_listed:
        return None
    if checkpoint == Checkpoint.TRIM_HORIZON:
        return Position.trim_horizon()
    if not checkpoint.is_sentinel:
        return Position.after(checkpoint.sequence_number)
    if node.starts_at is not None:
        return Position.at_timestamp(node.starts_at)
    return Position.latest() if checkpoint == Checkpoint.LATEST else None


def _node(
    key: str, depth: int, shard: Shard | None, leases: Mapping[str, Lease], parents: tuple[str, ...]
) -> ShardNode:
    lease = leases.get(key)
    node = ShardNode(
        key,
        depth,
        "no_lease" if lease is None else _state(lease, leases),
        is_open=shard is not None and shard.is_open,
        is_listed=shard is not None,
        parents=parents,
    )
    if lease is None:
        return node
    return ShardNode(
        key, depth, node.state, node.is_open, node.is_listed, parents, lease.holder, lease.checkpoint, lease.latest_at
    )


def _state(lease: Lease, leases: Mapping[str, Lease]) -> State:
    if lease.is_finished:
        return "finished"
    if lease.checkpoint_owner is not None:
        return "handing_over"
    if not is_startable(lease, leases):
        return "waiting_parent"
    return "ready" if lease.owner is None else "consuming"


DAY: Final = 86_400.0


def stale(
    consumers: Iterable[FanOutConsumer], *, match: str, older_than: float, now: float, own: str
) -> list[FanOutConsumer]:
    """Return the consumers whose name matches and that are old enough, except `own` and those being deleted.

    `match`: a shell pattern. `older_than`: days. `now`: seconds since the epoch. Kinesis does not report whether a
    consumer is in use, so name and age are the only criteria.
    """
    return [
        consumer
        for consumer in consumers
        if consumer.status != "DELETING"
        and consumer.name != own
        and fnmatchcase(consumer.name, match)
        and now - consumer.created_at >= older_than * DAY
    ]
