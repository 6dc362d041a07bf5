"""Tests that every sink must pass."""

from __future__ import annotations

import msgspec
import pytest
import trio
import trio.testing

from efo.errors import IsolateShardError, StreamRecreatedError
from efo.model import Batch, checkpoint_of
from efo_service.relay.errors import SinkClosedError, SinkError, SinkLockedError, SinkOrderError
from efo_service.relay.mapping import RecordMapping
from efo_service.relay.sink import identify
from tests.efo_service.relay.all_sinks import SINKS

STREAM, SHARD, OTHER = "orders", "shardId-000000000000", "shardId-000000000001"


@pytest.fixture(params=SINKS)
def kind(request):
    return SINKS[request.param]


@pytest.fixture
def arguments(kind, tmp_path, servers):
    """The arguments of the kind's functions for this test."""
    return (tmp_path, *([servers.url(kind.serve)] if kind.serve else []))


@pytest.fixture
async def sink(kind, arguments):
    async with kind.open(*arguments) as sink:
        yield sink


@pytest.fixture
def expect(kind, arguments, make_records):
    """Check that a shard has exactly the first `count` records, once and in order."""

    def expect(count: int, shard_id: str = SHARD) -> None:
        mapping = RecordMapping(STREAM, shard_id)
        assert kind.read(*arguments, shard_id) == [mapping.message(record) for record in make_records(count)]

    return expect


async def test_committed_records_are_written_as_the_mapping_defines(sink, expect, make_batch) -> None:
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


async def test_all_kinds_of_headers_are_written(kind, arguments, sink, make_records) -> None:
    record = msgspec.structs.replace(
        make_records(1)[0],
        sub_sequence_number=2,
        explicit_hash_key="77",
        encryption_type="KMS",
        tags=(("colour", "blue"), ("empty", None)),
        data=bytes(range(256)),
        partition_key="clé",
    )
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(Batch("s", SHARD, (record,), None, 0, 0))
        await shard.commit()
    assert kind.read(*arguments, SHARD) == [RecordMapping(STREAM, SHARD).message(record)]


async def test_a_record_without_a_partition_key_has_a_null_key(kind, arguments, sink, make_records) -> None:
    """Alone, between others, and in a commit with others."""
    mixed = [
        msgspec.structs.replace(record, partition_key=None if number in {1, 2, 4} else f"kéy-{number}")
        for number, record in enumerate(make_records(6))
    ]
    async with sink.open(STREAM, SHARD) as shard:
        for start, end in ((0, 3), (3, 4), (4, 5)):
            shard.write(Batch("s", SHARD, tuple(mixed[start:end]), None, 0, 0))
            assert shard.size(mixed[start:end]) > 0
        await shard.commit()
        shard.write(Batch("s", SHARD, tuple(mixed[5:]), None, 0, 0))
        await shard.commit()
    mapping = RecordMapping(STREAM, SHARD)
    found = kind.read(*arguments, SHARD)
    assert found == [mapping.message(record) for record in mixed]
    assert [message.key for message in found] == [
        "kéy-0".encode(), None, None, "kéy-3".encode(), None, "kéy-5".encode()
    ]  # fmt: skip


async def test_pending_records_and_bytes_count_the_write_buffer(sink, make_batch) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        assert (shard.pending_records, shard.pending_bytes) == (0, 0)
        shard.write(make_batch(3))
        shard.write(make_batch(2, 3))
        assert (shard.pending_records, shard.pending_bytes) == (5, shard.size(make_batch(5).records))
        await shard.commit()
        assert (shard.pending_records, shard.pending_bytes) == (0, 0)


@pytest.mark.parametrize("aggregated", [False, True])
async def test_the_size_of_records_contains_their_keys_values_and_headers(sink, make_records, aggregated) -> None:
    """At least what the mapping defines, and at most twice that: a commit is bounded by what is really written."""
    records = make_records(50)
    if aggregated:
        fields = {"partition_key": "\N{GRINNING FACE}" * 256, "explicit_hash_key": "9" * 38, "encryption_type": "KMS"}
        tags = [(("colour", "blue"),) if number % 2 else () for number in range(50)]
        records = tuple(
            msgspec.structs.replace(record, sub_sequence_number=number, tags=tags[number], **fields)
            for number, record in enumerate(records)
        )
    mapping = RecordMapping(STREAM, SHARD)
    messages = [mapping.message(record) for record in records]
    defined = sum(
        len(message.key or b"") + len(message.value) + sum(len(name) + len(value) for name, value in message.headers)
        for message in messages
    )
    async with sink.open(STREAM, SHARD) as shard:
        assert defined <= shard.size(records) <= 2 * defined
        assert shard.size(()) == 0


async def test_uncommitted_records_are_dropped_when_the_shard_sink_closes(sink, expect, make_batch) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        await shard.commit()
        shard.write(make_batch(4, 3))
    expect(3)


async def test_a_commit_of_an_empty_write_buffer_does_nothing(sink, expect, make_batch) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(1))
        await shard.commit()
        shard.write(make_batch(0, 1))
        await shard.commit()
        await shard.commit()
    expect(1)


async def test_a_commit_empties_the_write_buffer_before_it_waits(sink, expect, make_batch) -> None:
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


async def test_the_position_is_that_of_the_last_committed_record(kind, arguments, make_batch) -> None:
    for start in (0, 3):
        async with kind.open(*arguments) as sink, sink.open(STREAM, SHARD) as shard:
            shard.write(make_batch(3, start))
            before = shard.position
            await shard.commit()
            last = checkpoint_of(make_batch(3, start).records[-1])
            assert shard.position == (last if kind.owns_position else None)
            assert before != last
    async with kind.open(*arguments) as sink, sink.open(STREAM, SHARD) as shard:
        assert shard.position == (last if kind.owns_position else None)


CREATED_AT = 1_700_000_000.25


@pytest.mark.parametrize("known", [CREATED_AT, None], ids=["known", "unknown"])
@pytest.mark.parametrize("later", [CREATED_AT + 0.5, None], ids=["the same", "unknown"])
async def test_a_sink_continues_in_the_same_stream(kind, arguments, expect, make_batch, known, later) -> None:
    """Also one whose time of creation is not known now, or was not when the position was written."""
    for created_at, count, start in ((known, 3, 0), (later, 2, 3), (CREATED_AT, 2, 5)):
        async with kind.open(*arguments) as sink:
            identify(sink, created_at)
            async with sink.open(STREAM, SHARD) as shard:
                shard.write(make_batch(count, start))
                await shard.commit()
    expect(7)


async def test_a_sink_that_keeps_positions_refuses_those_of_a_former_stream(
    kind, arguments, expect, make_batch
) -> None:
    async with kind.open(*arguments) as sink:
        identify(sink, CREATED_AT)
        async with sink.open(STREAM, SHARD) as shard:
            shard.write(make_batch(3))
            await shard.commit()
    async with kind.open(*arguments) as sink:
        identify(sink, CREATED_AT + 60)
        if not kind.owns_position:
            async with sink.open(STREAM, SHARD) as shard:
                assert shard.position is None
            return
        for _ in range(2):
            with pytest.raises(StreamRecreatedError, match=r"'orders' was deleted and created again.*to relay it, set"):
                async with sink.open(STREAM, SHARD):
                    pytest.fail("it opened")
    expect(3)


async def test_a_position_that_does_not_name_its_stream_is_named_by_the_next_commit(
    kind, arguments, make_batch
) -> None:
    if not kind.owns_position:
        return
    for created_at, start in ((None, 0), (CREATED_AT, 3)):
        async with kind.open(*arguments) as sink:
            identify(sink, created_at)
            async with sink.open(STREAM, SHARD) as shard:
                shard.write(make_batch(3, start))
                await shard.commit()
    async with kind.open(*arguments) as sink:
        identify(sink, CREATED_AT + 60)
        with pytest.raises(StreamRecreatedError):
            async with sink.open(STREAM, SHARD):
                pytest.fail("it opened")


@pytest.mark.parametrize("start", [0, 2, 4])
async def test_a_batch_that_repeats_records_is_rejected(sink, expect, make_batch, start) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(5))
        with pytest.raises(SinkOrderError, match="duplicated or out of order"):
            shard.write(make_batch(5, start))
        await shard.commit()
        with pytest.raises(SinkOrderError):
            shard.write(make_batch(5, start))
    expect(5)


async def test_a_reopened_shard_rejects_committed_records(kind, sink, expect, make_batch) -> None:
    for count in (3, 2):
        async with sink.open(STREAM, SHARD) as shard:
            shard.write(make_batch(count, 0 if count == 3 else 3))
            await shard.commit()
    if kind.owns_position:
        async with sink.open(STREAM, SHARD) as shard:
            with pytest.raises(SinkOrderError):
                shard.write(make_batch(2, 4))
    expect(5)


async def test_records_of_two_open_shards_do_not_mix(sink, expect, make_batch) -> None:
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


async def test_a_shard_sink_is_closed_when_its_context_is_left(sink, make_batch) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        pass
    with pytest.raises(SinkClosedError):
        shard.write(make_batch(1))
    with pytest.raises(SinkClosedError):
        await shard.commit()


async def test_a_cancelled_commit_is_atomic_and_closes_the_shard_sink(
    kind, arguments, sink, make_batch, make_records
) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        with trio.CancelScope() as scope:
            scope.cancel()
            await shard.commit()
        if scope.cancelled_caught:
            with pytest.raises(SinkClosedError):
                shard.write(make_batch(1, 3))
    committed = kind.read(*arguments, SHARD)
    assert len(committed) in {0, 3}
    async with sink.open(STREAM, SHARD) as shard:
        if kind.owns_position:
            assert shard.position == (checkpoint_of(make_records(3)[-1]) if committed else None)


# Only leases keep two workers of the other sinks apart: a record may be written twice.
@pytest.mark.parametrize("kind", [name for name, sink in SINKS.items() if sink.fences], indirect=True)
async def test_two_workers_cannot_both_commit_to_a_shard(kind, arguments, sink, expect, make_batch) -> None:
    """Either the second worker is refused, or it stops the first. Acked records are written once."""
    async with sink.open(STREAM, SHARD) as first:
        first.write(make_batch(3))
        await first.commit()
        try:
            async with kind.open(*arguments) as second_sink, second_sink.open(STREAM, SHARD) as second:
                second.write(make_batch(2, 3))
                await second.commit()
                first.write(make_batch(2, 3))
                with pytest.raises(SinkError):
                    await first.commit()
        except (SinkLockedError, IsolateShardError):  # the second worker was refused
            first.write(make_batch(2, 3))
            await first.commit()
    expect(5)


async def test_a_second_worker_continues_where_the_first_stopped(kind, arguments, expect, make_batch) -> None:
    async with kind.open(*arguments) as sink, sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3))
        await shard.commit()
    async with kind.open(*arguments) as sink, sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(3, 3))
        await shard.commit()
    expect(6)


async def test_no_record_that_kinesis_accepts_is_refused(sink, make_records) -> None:
    """The smallest record, the largest one, and values that are not UTF-8."""
    async with sink.open(STREAM, SHARD) as shard:
        for data in (b"", b"\x00\xff", bytes(1024 * 1024)):
            assert shard.refusal(msgspec.structs.replace(make_records(1)[0], data=data)) is None
