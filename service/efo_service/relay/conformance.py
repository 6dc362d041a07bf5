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

from efo.errors import IsolateShardError
from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import SinkClosedError, SinkError, SinkOrderError
from efo_service.relay.mapping import Message, RecordMapping
from efo_service.relay.sink import Sink

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


def batch(count: int, start: int = 0, shard_id: str = SHARD) -> Batch:
    """Return a batch of these records."""
    return Batch("conformance", shard_id, records(count, start), str(start + count), 0, 0)


async def committed_records_are_written_once_and_in_order(kind: SinkUnderTest) -> None:
    """Several batches in one commit, and a second commit."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        _check(shard.position is None, "the position of a shard that was never written is None")
        shard.write(batch(3))
        shard.write(batch(2, 3))
        await shard.commit()
        _expect(kind, 5)
        shard.write(batch(7, 5))
        await shard.commit()
    _expect(kind, 12)


async def records_without_a_partition_key_have_no_key(kind: SinkUnderTest) -> None:
    """Those of streams with the record distribution strategy AUTO, between others."""
    mixed = tuple(
        msgspec.structs.replace(record, partition_key=None) if number % 2 else record
        for number, record in enumerate(records(5))
    )
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        shard.write(Batch("conformance", SHARD, mixed[:3], "3", 0, 0))
        shard.write(Batch("conformance", SHARD, mixed[3:4], "4", 0, 0))
        shard.write(Batch("conformance", SHARD, mixed[4:], "5", 0, 0))
        await shard.commit()
    mapping = RecordMapping(STREAM, SHARD)
    found = list(kind.read(SHARD))
    _check(found == [mapping.message(record) for record in mixed], "a record without a partition key has the key None")


async def uncommitted_records_are_dropped(kind: SinkUnderTest) -> None:
    """Leaving the context of a shard is no commit."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        shard.write(batch(3))
        await shard.commit()
        shard.write(batch(4, 3))
    _expect(kind, 3)


async def pending_records_and_bytes_count_the_write_buffer(kind: SinkUnderTest) -> None:
    """Check what the relay decides by when to commit."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        _check((shard.pending_records, shard.pending_bytes) == (0, 0), "nothing is pending at first")
        shard.write(batch(5))
        _check(shard.pending_records == 5, "pending_records counts what was written")  # noqa: PLR2004 - as above
        _check(shard.pending_bytes >= sum(len(record.data) for record in records(5)), "pending_bytes is too small")
        await shard.commit()
        _check((shard.pending_records, shard.pending_bytes) == (0, 0), "nothing is pending after a commit")


async def a_commit_without_records_does_nothing(kind: SinkUnderTest) -> None:
    """Before, between and after others."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        await shard.commit()
        shard.write(batch(0))
        shard.write(batch(1))
        await shard.commit()
        await shard.commit()
    _expect(kind, 1)


async def a_batch_that_repeats_records_is_rejected(kind: SinkUnderTest) -> None:
    """Before a commit and after it."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        shard.write(batch(5))
        _raises(SinkOrderError, lambda: shard.write(batch(5, 2)))
        await shard.commit()
        _raises(SinkOrderError, lambda: shard.write(batch(5, 4)))
    _expect(kind, 5)


async def the_position_is_that_of_the_last_committed_record(kind: SinkUnderTest) -> None:
    """For sinks that keep positions; those of others are None. A second worker finds the same."""
    last: Checkpoint = checkpoint_of(records(3)[-1])
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        shard.write(batch(3))
        await shard.commit()
        _check(shard.position == (last if kind.owns_positions else None), "the position after a commit")
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        _check(shard.position == (last if kind.owns_positions else None), "the position that a second worker finds")
        if kind.owns_positions:
            _raises(SinkOrderError, lambda: shard.write(batch(2, 1)))
        shard.write(batch(2, 3))
        await shard.commit()
    _expect(kind, 5)


async def records_of_two_shards_do_not_mix(kind: SinkUnderTest) -> None:
    """Two shards that are open at the same time, with commits at the same time."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as one, sink.open(STREAM, OTHER) as other:
        one.write(batch(3))
        other.write(batch(6, 0, OTHER))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.commit)
            nursery.start_soon(other.commit)
    _expect(kind, 3)
    _expect(kind, 6, OTHER)


async def a_shard_sink_is_closed_when_its_context_is_left(kind: SinkUnderTest) -> None:
    """Check that it then refuses everything."""
    async with kind.open() as sink:
        async with sink.open(STREAM, SHARD) as shard:
            pass
        _raises(SinkClosedError, lambda: shard.write(batch(1)))
        try:
            await shard.commit()
        except SinkClosedError:
            return
        raise AssertionError("commit of a closed shard raises SinkClosedError")


async def a_cancelled_commit_is_atomic(kind: SinkUnderTest) -> None:
    """All of its records are durable, or none; and the position says which."""
    async with kind.open() as sink, sink.open(STREAM, SHARD) as shard:
        shard.write(batch(3))
        with trio.CancelScope() as scope:
            scope.cancel()
            await shard.commit()
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
        first.write(batch(3))
        await first.commit()
        first.write(batch(2, 3))
        second_wrote = await _commit_as_another_worker(kind)
        try:
            await first.commit()
        except (SinkError, IsolateShardError):
            _check(second_wrote, "the first writer is refused only if the second one wrote")
    _expect(kind, 5)


async def _commit_as_another_worker(kind: SinkUnderTest) -> bool:
    try:
        async with kind.open() as sink, sink.open(STREAM, SHARD) as second:
            second.write(batch(2, 3))
            await second.commit()
    except (SinkError, IsolateShardError):
        return False
    return True


CHECKS: Final[tuple[Callable[[SinkUnderTest], Awaitable[None]], ...]] = (
    committed_records_are_written_once_and_in_order,
    records_without_a_partition_key_have_no_key,
    uncommitted_records_are_dropped,
    pending_records_and_bytes_count_the_write_buffer,
    a_commit_without_records_does_nothing,
    a_batch_that_repeats_records_is_rejected,
    the_position_is_that_of_the_last_committed_record,
    records_of_two_shards_do_not_mix,
    a_shard_sink_is_closed_when_its_context_is_left,
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


def _raises(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}")
