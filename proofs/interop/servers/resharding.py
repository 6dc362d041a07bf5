"""What efo is put through on each server: shards that are split and merged.

A server that never tells the end of a closed shard is no place to read its children: efo holds them back, since to
begin them on a guess would risk the order (rules R1 and R2). That counts as right, and their records as not to be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from efo.events import EventReceived, ShardFinished, ShardGone, SubscriptionEnded
from proofs.interop.servers.findings import OK, TIMED_OUT, Finding, Subject
from proofs.interop.servers.stream import BATCH

_EMPTY_EVENTS: Final = 3
"""Events of a closed, drained shard after which its end is not to be expected: AWS tells it in the first."""
_RESTARTS: Final = 2
"""The same, where the server ends the stream of such a shard without a word, again and again."""


async def split(subject: Subject) -> Finding:
    """Split a shard, and put records that go to its children."""
    if not await subject.caught_up():  # some servers forget a closed shard's records at once
        return Finding("failed", "records are missing before it")
    parent, children = await subject.stream.split()
    return await _follow(subject, [parent], children)


async def merge(subject: Subject) -> Finding:
    """Merge two shards, and put records that go to their child."""
    if not await subject.caught_up():
        return Finding("failed", "records are missing before it")
    parents, child = await subject.stream.merge()
    return await _follow(subject, parents, child)


async def _follow(subject: Subject, parents: Sequence[str], children: Sequence[str]) -> Finding:
    """Put records, and see that `main` reads the children after their parents, or, without an end, not at all."""
    main = subject.main
    events, ends = main.count(EventReceived, parents), main.count(SubscriptionEnded, parents)

    def has_ended() -> bool:
        return {finished.shard_id for finished in main.told(ShardFinished)} >= set(parents)

    def is_endless() -> bool:
        later_events, later_ends = main.count(EventReceived, parents), main.count(SubscriptionEnded, parents)
        return any(
            shard in subject.unread
            or later_events[shard] - events[shard] >= _EMPTY_EVENTS
            or later_ends[shard] - ends[shard] >= _RESTARTS
            for shard in parents
        )

    if not await main.until(lambda: has_ended() or is_endless()):
        return TIMED_OUT
    if not has_ended():
        subject.unread.update(children)
    await subject.stream.put(3 * BATCH)
    if not await subject.caught_up():
        return Finding("failed", "records of the children are missing")
    if not has_ended():
        return Finding("lacking", "it never tells a shard's end; its children are held back")
    if {gone.shard_id for gone in main.told(ShardGone)} & set(parents):
        return Finding("ok", "the shard is gone at once; its children are found by ListShards")
    return OK
