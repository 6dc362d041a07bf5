"""What every sink must do: all implementations pass this file."""

from __future__ import annotations

import msgspec
import pytest
import trio
import trio.testing

from efo.errors import IsolateShardError
from efo.model import Batch, checkpoint_of
from efo_service.relay.errors import SinkClosedError, SinkError, SinkLockedError, SinkOrderError
from efo_service.relay.mapping import RecordMapping
from tests.efo_service.relay.all_sinks import SINKS

STREAM, SHARD, OTHER = "orders", "shardId-000000000000", "shardId-000000000001"


@pytest.fixture(params=SINKS)
def kind(request):
    return SINKS[request.param]


@pytest.fixture
def place(kind, tmp_path, servers):
    """The arguments of the kind's functions: where this test's sink is."""
    return (tmp_path, *([servers.url(kind.serve)] if kind.serve else []))


@pytest.fixture
async def sink(kind, place):
    async with kind.open(*place) as sink:
        yield sink


@pytest.fixture
def expect(kind, place, make_records):
    """Check that a shard has exactly these many records, once and in order."""

    def expect(count: int, shard_id: str = SHARD) -> None:
        mapping = RecordMapping(STREAM, shard_id)
        assert kind.read(*place, shard_id) == [mapping.message(record) for record in make_records(count)]

    return expect


async def test_what_is_committed_is_there_with_all_that_the_mapping_says(sink, expect, make_batch) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position is None
        shard.write(make_batch(3))
        shard.write(make_batch(0, 3))
        shard.write(make_batch(2, 3))
        await shard.commit()
        expect(5)
        shard.write(make_batch(7, 5))
        await shard.commit()
    expect(12)


async def test_every_kind_of_header_arrives(kind, place, sink, make_records) -> None:
    record = msgspec.structs.replace(
        make_records(1)[0],
        sub_sequence_number=2,
        explicit_hash_key="77",
        encryption_type="KMS",
        tags=(("colour", "blau"), ("empty", None)),
        data=bytes(range(256)),
        partition_key="clé",
    )
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(Batch("s", SHARD, (record,), None, 0, 0))
        await shard.commit()
    assert kind.read(*place, SHARD) == [RecordMapping(STREAM, SHARD).message(record)]


async def test_the_open_group_is_counted(sink, make_batch) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        assert (shard.pending_records, shard.pending_bytes) == (0, 0)
        shard.write(make_batch(3))
        shard.write(make_batch(2, 3))
        assert (shard.pending_records, shard.pending_bytes) == (5, 5 * len("key-0value-0"))
        await shard.commit()
        assert (shard.pending_records, shard.pending_bytes) == (0, 0)


async def test_what_is_not_committed_is_not_kept(sink, expect, make_batch) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        await shard.commit()
        shard.write(make_batch(4, 3))
    expect(3)


async def test_a_commit_without_an_open_group_does_nothing(sink, expect, make_batch) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(1))
        await shard.commit()
        shard.write(make_batch(0, 1))
        await shard.commit()
        await shard.commit()
    expect(1)


async def test_a_commit_takes_the_group_before_it_waits(sink, expect, make_batch) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shard.commit)
            await trio.testing.wait_all_tasks_blocked()
            shard.write(make_batch(2, 3))
            assert shard.pending_records == 2
        expect(3)
        await shard.commit()
    expect(5)


async def test_the_position_is_that_of_the_last_record(kind, place, make_batch) -> None:
    for start in (0, 3):
        async with kind.open(*place) as sink, sink.open(STREAM, SHARD) as shard:
            shard.write(make_batch(3, start))
            before = shard.position
            await shard.commit()
            last = checkpoint_of(make_batch(3, start).records[-1])
            assert shard.position == (last if kind.owns_position else None)
            assert before != last
    async with kind.open(*place) as sink, sink.open(STREAM, SHARD) as shard:
        assert shard.position == (last if kind.owns_position else None)


@pytest.mark.parametrize("start", [0, 2, 4])
async def test_a_batch_that_repeats_or_goes_back_is_refused(sink, expect, make_batch, start) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(5))
        with pytest.raises(SinkOrderError, match="duplicated or out of order"):
            shard.write(make_batch(5, start))
        await shard.commit()
        with pytest.raises(SinkOrderError):
            shard.write(make_batch(5, start))
    expect(5)


async def test_after_a_reopening_nothing_that_is_there_is_taken_again(kind, sink, expect, make_batch) -> None:
    for count in (3, 2):
        async with sink.open(STREAM, SHARD) as shard:
            shard.write(make_batch(count, 0 if count == 3 else 3))
            await shard.commit()
    if kind.owns_position:
        async with sink.open(STREAM, SHARD) as shard:
            with pytest.raises(SinkOrderError):
                shard.write(make_batch(2, 4))
    expect(5)


async def test_shards_are_open_at_once_and_stay_apart(sink, expect, make_batch) -> None:
    async with sink.open(STREAM, SHARD) as one, sink.open(STREAM, OTHER) as other, trio.open_nursery() as nursery:
        for shard, counts in ((one, (3, 4)), (other, (5, 1))):
            nursery.start_soon(_commit_twice, shard, counts, make_batch)
    expect(7)
    expect(6, OTHER)


async def _commit_twice(shard, counts, make_batch) -> None:
    start = 0
    for count in counts:
        shard.write(make_batch(count, start))
        await shard.commit()
        start += count


async def test_one_that_was_left_is_closed(sink, make_batch) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        pass
    with pytest.raises(SinkClosedError):
        shard.write(make_batch(1))
    with pytest.raises(SinkClosedError):
        await shard.commit()


async def test_a_cancelled_commit_closes_it_and_has_all_or_nothing(kind, place, sink, make_batch, make_records) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        with trio.CancelScope() as scope:
            scope.cancel()
            await shard.commit()
        if scope.cancelled_caught:
            with pytest.raises(SinkClosedError):
                shard.write(make_batch(1, 3))
    there = kind.read(*place, SHARD)
    assert len(there) in {0, 3}
    async with sink.open(STREAM, SHARD) as shard:
        if kind.owns_position:
            assert shard.position == (checkpoint_of(make_records(3)[-1]) if there else None)


async def test_two_workers_never_write_one_shard_together(kind, place, sink, expect, make_batch) -> None:
    """Either the second is kept out, or the first is stopped by it; what was acked is there once."""
    if not kind.fences:
        pytest.skip("only the leases keep two workers of this sink apart: a record may come twice")
    async with sink.open(STREAM, SHARD) as first:
        first.write(make_batch(3))
        await first.commit()
        try:
            async with kind.open(*place) as rival, rival.open(STREAM, SHARD) as second:
                second.write(make_batch(2, 3))
                await second.commit()
                first.write(make_batch(2, 3))
                with pytest.raises(SinkError):
                    await first.commit()
        except (SinkLockedError, IsolateShardError):  # the second was kept out
            first.write(make_batch(2, 3))
            await first.commit()
    expect(5)


async def test_the_second_worker_goes_on_where_the_first_ended(kind, place, expect, make_batch) -> None:
    async with kind.open(*place) as sink, sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        await shard.commit()
    async with kind.open(*place) as sink, sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3, 3))
        await shard.commit()
    expect(6)


async def test_it_takes_what_kinesis_takes(sink, make_records) -> None:
    """The largest record, the smallest, and bytes of every kind."""
    async with sink.open(STREAM, SHARD) as shard:
        for data in (b"", b"\x00\xff", bytes(1024 * 1024)):
            assert shard.refusal(msgspec.structs.replace(make_records(1)[0], data=data)) is None
