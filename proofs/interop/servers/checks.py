"""The checks on each server: registration, renewal, positions and errors.

No check depends on which server it is. Whether a server supports something is decided by an event, such as a rejected
call, and not by a delay. A check fails if no such event arrives within `TIMEOUT`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

import trio

from efo.errors import ResourceInUseError, ResourceNotFoundError
from efo.events import ConsumerReady, EventReceived, ShardGone, SubscribeAttempted, SubscriptionEnded
from efo.model import Checkpoint, Lease, Position
from proofs.interop.servers.comparison import Item, compare
from proofs.interop.servers.reader import EARLY, LONG_LIFE, TIMEOUT, Reader, reading
from proofs.interop.servers.results import HTTP_500, OK, TIMED_OUT, CheckContext, Result, result_of, subscribe_fails
from proofs.interop.servers.stream import BATCH

_UNKNOWN_SHARD: Final = "shardId-00000000000"
"""Sorts before all shards of a server. For a newer id efo would assume that ListShards does not list it yet."""
_PAUSE: Final = 0.5
_LONG_PAUSE: Final = 5.0
_SUBSCRIPTION_LIFE: Final = 300.0
"""Seconds after which the service ends a subscription (AWS: SubscribeToShard)."""


async def registration(context: CheckContext) -> Result:
    """Check that the consumer is registered at the first start, and found at the second."""
    first, *later = context.main.events_of(ConsumerReady)
    if first.registered and later and not any(ready.registered or ready.arn != first.arn for ready in later):
        return OK
    return Result("failed", f"{first}, then {later}")


# --- renewal -----------------------------------------------------------------------------------------------


async def renewal(context: CheckContext, records: int) -> Result:
    """Put at least `records` records, until each shard's early renewal has succeeded or was rejected."""
    main, shards = context.main, [shard.shard_id for shard in await context.stream.open_shards()]
    if not await _put_until(
        context, lambda: context.stream.count >= records and _renewals_decided(main, shards), _PAUSE
    ):
        return TIMED_OUT
    if main.renewals:
        return Result("ok", "by take-over")
    return Result("lacking", "it rejects a take-over (ResourceInUse), and the live subscription stays active")


async def whole_life(context: CheckContext) -> Result:
    """Put records until each subscription was renewed at the usual age, or expired after five minutes."""
    main, shards = context.main, {shard.shard_id for shard in await context.stream.open_shards()}

    def renewed() -> set[str]:
        return {ended.shard_id for ended in main.events_of(SubscriptionEnded) if ended.age >= LONG_LIFE}

    if not await _put_until(context, lambda: renewed() >= shards, _LONG_PAUSE, TIMEOUT + _SUBSCRIPTION_LIFE):
        return TIMED_OUT
    return Result("ok", ", ".join(sorted({e.reason for e in main.events_of(SubscriptionEnded) if e.age >= LONG_LIFE})))


async def volume(context: CheckContext, records: int, size: int) -> Result:
    """Put larger records, in total more than the default stream window of 1 MiB."""
    await context.stream.put(records, size=size)
    return OK if await context.caught_up() else Result("failed", "records are missing")


async def _put_until(
    context: CheckContext, condition: Callable[[], bool], pause: float, seconds: float = TIMEOUT
) -> bool:
    """Put a batch every `pause` seconds until a condition is true and `main` has caught up; return whether in time."""
    deadline = trio.current_time() + seconds
    while not condition() and trio.current_time() < deadline:
        await context.stream.put(BATCH)
        await trio.sleep(pause)
    return condition() and await context.caught_up()


def _renewals_decided(reader: Reader, shards: Iterable[str]) -> bool:
    """Return whether each shard's renewal has succeeded or was rejected."""
    in_use = ResourceInUseError.error_type
    renewed = {ended.shard_id for ended in reader.events_of(SubscriptionEnded, reason="renewed")}
    rejected = {attempted.shard_id for attempted in reader.events_of(SubscribeAttempted, error_type=in_use)}
    rejected |= {ended.shard_id for ended in reader.events_of(SubscriptionEnded) if ended.detail.startswith(in_use)}
    return renewed | rejected >= set(shards)


# --- positions ---------------------------------------------------------------------------------------------


async def sequence_numbers(context: CheckContext) -> Result:
    """Let an application start in the middle: AT a record in every second shard, and AFTER one in the others."""
    places: dict[str, list[Item]] = {}
    for item in context.stream.items:
        places.setdefault(item.shard, []).append(item)
    middle = {shard: items[len(items) // 2] for shard, items in sorted(places.items())}
    at = set(list(middle)[::2])
    expected = [
        item
        for item in context.stream.items
        if int(item.sequence) > int(middle[item.shard].sequence)
        or (item.shard in at and item.sequence == middle[item.shard].sequence)
    ]

    def start(lease: Lease) -> Position:
        number = middle[lease.key].sequence
        return Position.at(number) if lease.key in at else Position.after(number)

    reader = Reader()
    async with reading(context.endpoint, "numbers", reader, start_at=start):
        return await _reads_exactly(reader, expected)


async def at_timestamp(context: CheckContext) -> Result:
    """Let an application read from AT_TIMESTAMP: the middle of the longest pause between two arrivals."""
    main = context.main
    pause, before = max((later - earlier, earlier) for earlier, later in pairwise(sorted(set(main.arrivals))))
    since = before + pause / 2
    expected = [item for item, arrived in zip(main.items, main.arrivals, strict=True) if arrived >= since]
    reader = Reader()
    async with reading(context.endpoint, "time", reader, initial_position=Position.at_timestamp(since)):
        return await _reads_exactly(reader, expected)


async def latest(context: CheckContext) -> Result:
    """Let an application read one shard from LATEST, and renew the subscription before a record arrives."""
    shard = (await context.stream.open_shards())[0].shard_id
    return await _reads_from_latest(context, "latest", [shard], renewed=True)


async def open_shards(context: CheckContext) -> Result:
    """Let an application start at LATEST after the split and the merge: it reads the open shards."""
    return await _reads_from_latest(context, "late", [s.shard_id for s in await context.stream.open_shards()])


async def _reads_exactly(reader: Reader, expected: Sequence[Item]) -> Result:
    """Wait for the expected records, and then for one more event of each shard, which must bring nothing."""
    if not await reader.until(lambda: len(reader.items) >= len(expected)):
        return Result("failed", f"{len(reader.items)} of {len(expected)} records within {TIMEOUT:.0f} s")
    await reader.one_more_event()
    return result_of(compare(expected, reader.items))


async def _reads_from_latest(
    context: CheckContext, application: str, shards: Sequence[str], *, renewed: bool = False
) -> Result:
    """Let an application start at LATEST, then put records: it must read these, and none from before its start.

    LATEST is the time of its start by the server's clock, in whole seconds (rule R4).
    """
    reader = Reader()
    begin = Position.latest()
    async with reading(context.endpoint, application, reader, initial_position=begin, shards=shards, timing=EARLY):
        if not await reader.until(lambda: all(reader.count(EventReceived, shards).values())):
            return TIMED_OUT
        if renewed and not await reader.until(lambda: _renewals_decided(reader, shards)):
            return TIMED_OUT
        new = {item for item in await context.stream.put(BATCH) if item.shard in shards}
        await reader.until(lambda: new <= set(reader.items))
        await reader.one_more_event()
    since = min(lease.latest_at or 0.0 for lease in await reader.store.list())
    if older := sum(arrived < since for arrived in reader.arrivals):
        return Result("failed", f"read {older} records from before its start")
    return result_of(compare(new, [item for item in reader.items if item in new]))


# --- errors ------------------------------------------------------------------------------------------------


async def unknown_stream(context: CheckContext) -> Result:
    """Open an unknown stream: efo raises ResourceNotFoundError."""
    try:
        async with reading(context.endpoint, "main", Reader(), stream="unknown"):
            return Result("failed", "an unknown stream was opened")
    except ResourceNotFoundError:
        return OK


async def unknown_shard(context: CheckContext) -> Result:
    """Hold a lease of an unknown shard: efo reports it as gone, and does not fail."""
    reader = Reader(Lease(_UNKNOWN_SHARD, Checkpoint.TRIM_HORIZON))
    await reader.prepare()
    async with reading(context.endpoint, "unknown-shard", reader, shards=[_UNKNOWN_SHARD]):
        await reader.until(
            lambda: bool(reader.events_of(ShardGone) or reader.events_of(EventReceived) or subscribe_fails(reader))
        )
    if reader.events_of(ShardGone):
        return OK
    if reader.events_of(EventReceived):
        return Result("lacking", "it accepts the call, and sends empty events")
    return HTTP_500 if subscribe_fails(reader) else TIMED_OUT


async def consumer_gone(context: CheckContext) -> Result:
    """Deregister the consumer while a shard is read: efo registers it again, and loses nothing (rule R13)."""
    shard = (await context.stream.open_shards())[0].shard_id
    reader = Reader()

    def expected() -> list[Item]:
        return [item for item in context.stream.items if item.shard == shard]

    async with reading(context.endpoint, "gone", reader, shards=[shard], timing=EARLY):
        await reader.until(lambda: len(reader.items) >= len(expected()))
        await context.stream.control_plane.deregister_consumer(reader.events_of(ConsumerReady)[0].arn)
        await reader.until(lambda: len(reader.events_of(ConsumerReady, registered=True)) > 1 or subscribe_fails(reader))
        if len(reader.events_of(ConsumerReady, registered=True)) <= 1:
            return HTTP_500 if subscribe_fails(reader) else TIMED_OUT
        await context.stream.put(BATCH)
        return await _reads_exactly(reader, expected())
