"""The checks on each server: split and merge.

If a server never reports the end of a closed shard, efo does not start its children, because starting them too early
would risk the order (rules R1 and R2). That is correct, and the children's records are not expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from efo.events import EventReceived, ShardFinished, ShardGone, SubscriptionEnded
from proofs.interop.servers.results import OK, TIMED_OUT, CheckContext, Result
from proofs.interop.servers.stream import BATCH

_EMPTY_EVENTS: Final = 3
"""Events of a closed shard after which its end is no longer expected: AWS reports the end in the first."""
_RESTARTS: Final = 2
"""Subscriptions of a closed shard that end without its end, after which the end is no longer expected."""


async def split(context: CheckContext) -> Result:
    """Split a shard, and put records into its children."""
    if not await context.caught_up():  # some servers delete the records of a closed shard at once
        return Result("failed", "records are missing before the split")
    parent, children = await context.stream.split()
    return await _follow(context, [parent], children)


async def merge(context: CheckContext) -> Result:
    """Merge two shards, and put records into their child."""
    if not await context.caught_up():
        return Result("failed", "records are missing before the merge")
    parents, child = await context.stream.merge()
    return await _follow(context, parents, child)


async def _follow(context: CheckContext, parents: Sequence[str], children: Sequence[str]) -> Result:
    """Put records, and check that `main` reads the children after their parents, or not at all without an end."""
    main = context.main
    events, ends = main.count(EventReceived, parents), main.count(SubscriptionEnded, parents)

    def has_ended() -> bool:
        return {finished.shard_id for finished in main.events_of(ShardFinished)} >= set(parents)

    def is_endless() -> bool:
        later_events, later_ends = main.count(EventReceived, parents), main.count(SubscriptionEnded, parents)
        return any(
            shard in context.unread
            or later_events[shard] - events[shard] >= _EMPTY_EVENTS
            or later_ends[shard] - ends[shard] >= _RESTARTS
            for shard in parents
        )

    if not await main.until(lambda: has_ended() or is_endless()):
        return TIMED_OUT
    if not has_ended():
        context.unread.update(children)
    await context.stream.put(3 * BATCH)
    if not await context.caught_up():
        return Result("failed", "records of the children are missing")
    if not has_ended():
        return Result("lacking", "it never reports a shard's end, and efo does not start the children")
    if {gone.shard_id for gone in main.events_of(ShardGone)} & set(parents):
        return Result("ok", "the parent is gone at once, and efo finds the children by ListShards")
    return OK
