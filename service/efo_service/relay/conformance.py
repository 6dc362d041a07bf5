"""What every sink must do, as checks for the tests of packages that have one. docs/sinks.md shows how to run them.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_the_sink_conforms(check, tmp_path):
        await check(MyKind(tmp_path))

They run on trio. A check raises AssertionError, with the name of what is wrong, or what the sink raises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec
import trio
import trio.testing

from efo.model import Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import SinkClosedError, SinkError
from efo_service.relay.mapping import Message, RecordMapping
from efo_service.relay.sink import ShardSink, Sink

STREAM: Final = "orders"
SHARD: Final = "shardId-000000000000"
OTHER: Final = "shardId-000000000001"
_FIRST: Final = 49590338271490256608559692538361571095921575989136588898


class SinkUnderTest(Protocol):
    """A sink to check. Each check gets a new one, with nothing written."""

    owns_positions: bool
    """Whether the sink keeps the shards' positions, so that no record is written twice."""

    def open(self) -> AbstractAsyncContextManager[Sink]:
        """Open the sink. Two calls act as two workers."""
        ...

    def read(self, shard_id: str) -> Sequence[Message]:
        """Return all committed records of a shard of the stream `STREAM`, in order, as `RecordMapping` defines them."""
        ...


def records(count: int, start: int = 0) -> tuple[Record, ...]:
    """Return the records `start` to `start` + `count` - 1 of a shard."""
    return tuple(
        Record(
            sequence_number=str(_FIRST + number),
            approximate_arrival_timestamp=1_700_000_000 + number / 1000,
            data=b"\x00value-%d\xff" % number,
            partition_key=f"key-{number % 7}",
        )
        for number in range(start, start + count)
    )


async def commit(shard: ShardSink, count: int, start: int = 0) -> None:
    """Commit these records to a shard."""
    await shard.commit([shard.prepare(records(count, start))])


async def committed_records_are_written_once_and_in_order(kind: SinkUnderTest) -> None:
    """Several parts in one commit, and a second commit."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        _check(shard.position is None, "the position of a shard that was never written is None")
        await shard.commit([shard.prepare(records(3)), shard.prepare(records(2, 3))])
        _expect(kind, 5)
        await commit(shard, 7, 5)
    _expect(kind, 12)


async def records_without_a_partition_key_have_no_key(kind: SinkUnderTest) -> None:
    """Those of streams with the record distribution strategy AUTO, between others."""
    mixed = tuple(
        msgspec.structs.replace(record, partition_key=None) if number % 2 else record
        for number, record in enumerate(records(5))
    )
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        await shard.commit([shard.prepare(part) for part in (mixed[:3], mixed[3:4], mixed[4:])])
    mapping = RecordMapping(STREAM, SHARD)
    found = list(kind.read(SHARD))
    _check(found == [mapping.message(record) for record in mixed], "a record without a partition key has the key None")


async def prepared_records_are_not_written(kind: SinkUnderTest) -> None:
    """Neither `prepare` nor leaving the context of a shard is a commit."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        await commit(shard, 3)
        shard.prepare(records(4, 3))
    _expect(kind, 3)


async def a_part_is_at_least_as_large_as_its_data(kind: SinkUnderTest) -> None:
    """Check what the relay decides by when to commit."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        size = shard.prepare(records(5)).size
        _check(size >= sum(len(record.data) for record in records(5)), "the size of a part is too small")


async def records_are_prepared_while_a_commit_runs(kind: SinkUnderTest) -> None:
    """Check that the next part does not mix with those that are being committed."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shard.commit, [shard.prepare(records(3))])
            await trio.testing.wait_all_tasks_blocked()
            part = shard.prepare(records(2, 3))
        _expect(kind, 3)
        await shard.commit([part])
    _expect(kind, 5)


async def a_part_is_committed_by_a_later_opening(kind: SinkUnderTest) -> None:
    """After a failure the relay opens the shard again, and commits what it has."""
    async with kind.open() as sink:
        async with sink.open(STREAM, SHARD) as shard:
            await commit(shard, 3)
            part = shard.prepare(records(2, 3))
        late = shard.prepare(records(1, 5))
        async with sink.open(STREAM, SHARD) as shard:
            await shard.commit([part, late])
    _expect(kind, 6)


async def the_position_is_that_of_the_last_committed_record(kind: SinkUnderTest) -> None:
    """For sinks that keep positions; those of others are None. A second worker finds the same."""
    last: Checkpoint = checkpoint_of(records(3)[-1])
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        await commit(shard, 3)
        _check(shard.position == (last if kind.owns_positions else None), "the position after a commit")
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        _check(shard.position == (last if kind.owns_positions else None), "the position that a second worker finds")
        await commit(shard, 2, 3)
    _expect(kind, 5)


async def records_of_two_shards_do_not_mix(kind: SinkUnderTest) -> None:
    """Two shards that are open at the same time, with commits at the same time."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as one, sink.open(STREAM, OTHER) as other:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, one, 3)
            nursery.start_soon(commit, other, 6)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, one, 4, 3)
            nursery.start_soon(commit, other, 1, 6)
    _expect(kind, 7)
    _expect(kind, 7, OTHER)


async def a_shard_sink_is_closed_when_its_context_is_left(kind: SinkUnderTest) -> None:
    """Check that it then refuses a commit."""
    async with kind.open() as sink:
        async with sink.open(STREAM, SHARD) as shard:
            pass
        try:
            await commit(shard, 1)
        except SinkClosedError:
            return
        raise AssertionError("commit of a closed shard raises SinkClosedError")


async def another_task_may_close_a_shard(kind: SinkUnderTest) -> None:
    """Check that no nursery is open in the context: the relay closes at its end what a commit has opened again."""
    opened: list[ShardSink] = []
    async with kind.open() as sink:
        context = sink.open(STREAM, SHARD)

        async def enter() -> None:
            opened.append(await context.__aenter__())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(enter)
        await commit(opened[0], 3)
        await context.__aexit__(None, None, None)
    _expect(kind, 3)


async def a_cancelled_commit_is_atomic(kind: SinkUnderTest) -> None:
    """All of its records are durable, or none; and the position says which."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        with trio.CancelScope() as scope:
            scope.cancel()
            await commit(shard, 3)
    written = len(kind.read(SHARD))
    _check(written in {0, 3}, "a cancelled commit writes all of its records, or none")
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        expected = checkpoint_of(records(3)[-1]) if written else None
        _check(not kind.owns_positions or shard.position == expected, "the position tells what was written")


async def a_second_writer_of_a_shard_never_repeats_a_record(kind: SinkUnderTest) -> None:
    """For sinks that keep positions: a worker that lost its lease and does not know it yet cannot commit."""
    if not kind.owns_positions:
        return
    async with kind.open() as sink, sink.open(STREAM, SHARD) as first:
        await commit(first, 3)
        second_wrote = await _commit_as_another_worker(kind)
        try:
            await commit(first, 2, 3)
        except SinkError:
            _check(second_wrote, "the first writer is refused only if the second one wrote")
    _expect(kind, 5)


async def _commit_as_another_worker(kind: SinkUnderTest) -> bool:
    try:
        async with kind.open() as sink, sink.open(STREAM, SHARD) as second:
            await commit(second, 2, 3)
    except SinkError:
        return False
    return True


CHECKS: Final[tuple[Callable[[SinkUnderTest], Awaitable[None]], ...]] = (
    committed_records_are_written_once_and_in_order,
    records_without_a_partition_key_have_no_key,
    prepared_records_are_not_written,
    a_part_is_at_least_as_large_as_its_data,
    records_are_prepared_while_a_commit_runs,
    a_part_is_committed_by_a_later_opening,
    the_position_is_that_of_the_last_committed_record,
    records_of_two_shards_do_not_mix,
    a_shard_sink_is_closed_when_its_context_is_left,
    another_task_may_close_a_shard,
    a_cancelled_commit_is_atomic,
    a_second_writer_of_a_shard_never_repeats_a_record,
)
"""All checks. Each has a name that says what must hold."""


def _expect(kind: SinkUnderTest, count: int, shard_id: str = SHARD) -> None:
    mapping = RecordMapping(STREAM, shard_id)
    found = list(kind.read(shard_id))
    _check(found == [mapping.message(record) for record in records(count)], f"{shard_id} has {len(found)} records")


def _check(holds: bool, what: str) -> None:  # noqa: FBT001 - as assert, which Python can leave out
    if not holds:
        raise AssertionError(what)
