"""What efo is put through on each server: registration, renewal, positions, errors.

None asks which server it is. What a server does not do is told by what it did: a positive sign of it is waited for,
such as a refusal, and not a time. Only the lack of any sign within `PATIENCE` is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

import trio

from efo.errors import ResourceInUseError, ResourceNotFoundError
from efo.events import ConsumerReady, EventReceived, ShardGone, SubscribeAttempted, SubscriptionEnded
from efo.model import TRIM_HORIZON, Lease, Position
from proofs.interop.servers.findings import HTTP_500, OK, TIMED_OUT, Finding, Subject, fails, found
from proofs.interop.servers.judgement import Item, judge
from proofs.interop.servers.reader import EARLY, LONG_LIFE, PATIENCE, Reader, reading
from proofs.interop.servers.stream import BATCH

_NOBODY: Final = "shardId-00000000000"
"""Older than all that a server numbers: one that seems newer might only not be listed yet, and is not believed gone."""
_PAUSE: Final = 0.5
_LONG_PAUSE: Final = 5.0
_NATURAL_LIFE: Final = 300.0


async def registration(subject: Subject) -> Finding:
    """See that the consumer was registered at the first time, and found at the second."""
    first, *later = subject.main.told(ConsumerReady)
    if first.registered and later and not any(ready.registered or ready.arn != first.arn for ready in later):
        return OK
    return Finding("failed", f"{first}, then {later}")


# --- renewal -----------------------------------------------------------------------------------------------


async def renewal(subject: Subject, records: int) -> Finding:
    """Put so many records, and more until each shard's early renewal has taken place or was refused."""
    main, shards = subject.main, [shard.shard_id for shard in await subject.stream.open_shards()]
    if not await _put_until(subject, lambda: subject.stream.count >= records and _is_decided(main, shards), _PAUSE):
        return TIMED_OUT
    if main.renewals:
        return Finding("ok", "by take-over")
    return Finding("lacking", "it refuses a take-over (ResourceInUse), and the live subscription goes on")


async def whole_life(subject: Subject) -> Finding:
    """Put records until each subscription was renewed at the usual age, or lived its five minutes to the end."""
    main, shards = subject.main, {shard.shard_id for shard in await subject.stream.open_shards()}

    def renewed() -> set[str]:
        return {ended.shard_id for ended in main.told(SubscriptionEnded) if ended.age >= LONG_LIFE}

    if not await _put_until(subject, lambda: renewed() >= shards, _LONG_PAUSE, PATIENCE + _NATURAL_LIFE):
        return TIMED_OUT
    return Finding("ok", ", ".join(sorted({e.reason for e in main.told(SubscriptionEnded) if e.age >= LONG_LIFE})))


async def volume(subject: Subject, records: int, size: int) -> Finding:
    """Put records that are larger, together more than a subscription's usual window of 1 MiB."""
    await subject.stream.put(records, size=size)
    return OK if await subject.caught_up() else Finding("failed", "records are missing")


async def _put_until(subject: Subject, condition: Callable[[], bool], pause: float, patience: float = PATIENCE) -> bool:
    """Put a batch every so often until it is so, and `main` has it all; return whether that came to be in time."""
    deadline = trio.current_time() + patience
    while not condition() and trio.current_time() < deadline:
        await subject.stream.put(BATCH)
        await trio.sleep(pause)
    return condition() and await subject.caught_up()


def _is_decided(reader: Reader, shards: Iterable[str]) -> bool:
    """Tell whether each shard's renewal has taken place, or was refused."""
    refusal = ResourceInUseError.error_type
    renewed = {ended.shard_id for ended in reader.told(SubscriptionEnded, reason="renewed")}
    refused = {attempted.shard_id for attempted in reader.told(SubscribeAttempted, error_type=refusal)}
    refused |= {ended.shard_id for ended in reader.told(SubscriptionEnded) if ended.detail.startswith(refusal)}
    return renewed | refused >= set(shards)


# --- positions ---------------------------------------------------------------------------------------------


async def sequence_numbers(subject: Subject) -> Finding:
    """Let an application begin in the middle: AT a record of every other shard, and AFTER one of the rest."""
    places: dict[str, list[Item]] = {}
    for item in subject.stream.items:
        places.setdefault(item.shard, []).append(item)
    middle = {shard: items[len(items) // 2] for shard, items in sorted(places.items())}
    at = set(list(middle)[::2])
    expected = [
        item
        for item in subject.stream.items
        if int(item.sequence) > int(middle[item.shard].sequence)
        or (item.shard in at and item.sequence == middle[item.shard].sequence)
    ]

    def start(lease: Lease) -> Position:
        number = middle[lease.key].sequence
        return Position.at(number) if lease.key in at else Position.after(number)

    reader = Reader()
    async with reading(subject.endpoint, "numbers", reader, start_at=start):
        return await _reads(reader, expected)


async def at_timestamp(subject: Subject) -> Finding:
    """Let an application read what arrived from a time on: the middle of the longest pause between two arrivals."""
    main = subject.main
    pause, before = max((later - earlier, earlier) for earlier, later in pairwise(sorted(set(main.arrivals))))
    since = before + pause / 2
    expected = [item for item, arrived in zip(main.items, main.arrivals, strict=True) if arrived >= since]
    reader = Reader()
    async with reading(subject.endpoint, "time", reader, initial_position=Position.at_timestamp(since)):
        return await _reads(reader, expected)


async def latest(subject: Subject) -> Finding:
    """Let an application read what comes from now on, of one shard, and be renewed before anything comes."""
    shard = (await subject.stream.open_shards())[0].shard_id
    return await _reads_what_comes(subject, "latest", [shard], renewed=True)


async def open_shards(subject: Subject) -> Finding:
    """Let an application that begins now read the shards that are open now, whatever became of their parents."""
    return await _reads_what_comes(subject, "newcomer", [s.shard_id for s in await subject.stream.open_shards()])


async def _reads(reader: Reader, expected: Sequence[Item]) -> Finding:
    """Wait until all came, and one more event of each shard, which is to bring nothing."""
    if not await reader.until(lambda: len(reader.items) >= len(expected)):
        return Finding("failed", f"{len(reader.items)} of {len(expected)} records within {PATIENCE:.0f} s")
    await reader.one_more_event()
    return found(judge(expected, reader.items))


async def _reads_what_comes(
    subject: Subject, application: str, shards: Sequence[str], *, renewed: bool = False
) -> Finding:
    """Let an application begin at LATEST, then put records: it is to read these, and none from before its start.

    LATEST is the moment of its start by the server's clock, which tells whole seconds (rule R4).
    """
    reader = Reader()
    begin = Position.latest()
    async with reading(subject.endpoint, application, reader, initial_position=begin, shards=shards, timing=EARLY):
        if not await reader.until(lambda: all(reader.count(EventReceived, shards).values())):
            return TIMED_OUT
        if renewed and not await reader.until(lambda: _is_decided(reader, shards)):
            return TIMED_OUT
        new = {item for item in await subject.stream.put(BATCH) if item.shard in shards}
        await reader.until(lambda: new <= set(reader.items))
        await reader.one_more_event()
    since = min(lease.latest_at or 0.0 for lease in await reader.store.list())
    if older := sum(arrived < since for arrived in reader.arrivals):
        return Finding("failed", f"{older} records are from before its start")
    return found(judge(new, [item for item in reader.items if item in new]))


# --- errors ------------------------------------------------------------------------------------------------


async def unknown_stream(subject: Subject) -> Finding:
    """Ask for a stream that is not there: our ResourceNotFoundError."""
    try:
        async with reading(subject.endpoint, "main", Reader(), stream="nobody"):
            return Finding("failed", "it was opened")
    except ResourceNotFoundError:
        return OK


async def unknown_shard(subject: Subject) -> Finding:
    """Hold a lease of a shard that is not there: it counts as gone, and efo goes on."""
    reader = Reader(Lease(_NOBODY, TRIM_HORIZON))
    await reader.prepare()
    async with reading(subject.endpoint, "ghost", reader, shards=[_NOBODY]):
        await reader.until(lambda: bool(reader.told(ShardGone) or reader.told(EventReceived) or fails(reader)))
    if reader.told(ShardGone):
        return OK
    if reader.told(EventReceived):
        return Finding("lacking", "it accepts the call, and sends empty events")
    return HTTP_500 if fails(reader) else TIMED_OUT


async def consumer_gone(subject: Subject) -> Finding:
    """Deregister the consumer under a reader of one shard: it is registered again, and nothing is lost (rule R13)."""
    shard = (await subject.stream.open_shards())[0].shard_id
    reader = Reader()

    def expected() -> list[Item]:
        return [item for item in subject.stream.items if item.shard == shard]

    async with reading(subject.endpoint, "gone", reader, shards=[shard], timing=EARLY):
        await reader.until(lambda: len(reader.items) >= len(expected()))
        await subject.stream.control.deregister_consumer(reader.told(ConsumerReady)[0].arn)
        await reader.until(lambda: len(reader.told(ConsumerReady, registered=True)) > 1 or fails(reader))
        if len(reader.told(ConsumerReady, registered=True)) <= 1:
            return HTTP_500 if fails(reader) else TIMED_OUT
        await subject.stream.put(BATCH)
        return await _reads(reader, expected())
