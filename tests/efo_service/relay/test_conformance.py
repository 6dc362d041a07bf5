"""Tests that every sink must pass: those that packages with a sink run, and some that need our records."""

from __future__ import annotations

import msgspec
import pytest
import trio

from efo.errors import StreamRecreatedError
from efo_service.relay.conformance import CHECKS, SHARD, STREAM
from efo_service.relay.errors import SinkClosedError, SinkError, SinkLockedError
from efo_service.relay.mapping import RecordMapping
from efo_service.relay.sink import identify
from tests.efo_service.relay.all_sinks import SINKS
from tests.efo_service.relay.relaying import commit


class UnderTest:
    """A kind of sink, as the checks of `conformance` see it."""

    def __init__(self, kind, arguments) -> None:
        self.owns_positions = kind.owns_position
        self._kind = kind
        self._arguments = arguments

    def open(self):
        return self._kind.open(*self._arguments)

    def read(self, shard_id):
        return self._kind.read(*self._arguments, shard_id)


@pytest.fixture(params=SINKS)
def kind(request):
    return SINKS[request.param]


@pytest.fixture
def under_test(kind, tmp_path, servers):
    return UnderTest(kind, (tmp_path, *([servers.url(kind.serve)] if kind.serve else [])))


@pytest.fixture
async def sink(under_test):
    async with under_test.open() as sink:
        yield sink


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_sink_conforms(under_test, check) -> None:
    await check(under_test)


async def test_all_kinds_of_headers_are_written(under_test, sink, make_records) -> None:
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
        await shard.commit([shard.prepare((record,))])
    assert under_test.read(SHARD) == [RecordMapping(STREAM, SHARD).message(record)]


async def test_a_record_without_a_partition_key_has_a_null_key(under_test, sink, make_records) -> None:
    """Alone, between others, and in a commit with others."""
    mixed = [
        msgspec.structs.replace(record, partition_key=None if number in {1, 2, 4} else f"kéy-{number}")
        for number, record in enumerate(make_records(6))
    ]
    async with sink.open(STREAM, SHARD) as shard:
        parts = [shard.prepare(mixed[start:end]) for start, end in ((0, 3), (3, 4), (4, 5))]
        assert all(part.size > 0 for part in parts)
        await shard.commit(parts)
        await shard.commit([shard.prepare(mixed[5:])])
    mapping = RecordMapping(STREAM, SHARD)
    found = under_test.read(SHARD)
    assert found == [mapping.message(record) for record in mixed]
    assert [message.key for message in found] == [
        "kéy-0".encode(), None, None, "kéy-3".encode(), None, "kéy-5".encode()
    ]  # fmt: skip


CREATED_AT = 1_700_000_000.25


@pytest.mark.parametrize("known", [CREATED_AT, None], ids=["known", "unknown"])
@pytest.mark.parametrize("later", [CREATED_AT + 0.5, None], ids=["the same", "unknown"])
async def test_a_sink_continues_in_the_same_stream(under_test, make_batch, known, later) -> None:
    """Also one whose time of creation is not known now, or was not when the position was written."""
    for created_at, count, start in ((known, 3, 0), (later, 2, 3), (CREATED_AT, 2, 5)):
        await commit_of(under_test, created_at, make_batch(count, start))
    assert len(under_test.read(SHARD)) == 7


async def test_a_sink_that_keeps_positions_refuses_those_of_a_former_stream(under_test, make_batch) -> None:
    await commit_of(under_test, CREATED_AT, make_batch(3))
    async with under_test.open() as sink:
        identify(sink, CREATED_AT + 60)
        if not under_test.owns_positions:
            async with sink.open(STREAM, SHARD) as shard:
                assert shard.position is None
            return
        for _ in range(2):
            with pytest.raises(StreamRecreatedError, match=r"'orders' was deleted and created again.*to relay it, set"):
                async with sink.open(STREAM, SHARD):
                    pytest.fail("it opened")
    assert len(under_test.read(SHARD)) == 3


async def test_a_position_that_does_not_name_its_stream_is_named_by_the_next_commit(under_test, make_batch) -> None:
    if not under_test.owns_positions:
        return
    await commit_of(under_test, None, make_batch(3))
    await commit_of(under_test, CREATED_AT, make_batch(3, 3))
    async with under_test.open() as sink:
        identify(sink, CREATED_AT + 60)
        with pytest.raises(StreamRecreatedError):
            async with sink.open(STREAM, SHARD):
                pytest.fail("it opened")


async def commit_of(under_test, created_at, batch) -> None:
    """Commit a batch of a stream that was created then."""
    async with under_test.open() as sink:
        identify(sink, created_at)
        async with sink.open(STREAM, SHARD) as shard:
            await commit(shard, batch)


@pytest.mark.parametrize("aggregated", [False, True])
async def test_the_size_of_a_part_contains_keys_values_and_headers(sink, make_records, aggregated) -> None:
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
        assert defined <= shard.prepare(records).size <= 2 * defined


async def test_a_cancelled_commit_closes_the_shard_sink(sink, make_records) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        with trio.CancelScope() as scope:
            scope.cancel()
            await shard.commit([shard.prepare(make_records(3))])
        if scope.cancelled_caught:
            with pytest.raises(SinkClosedError):
                await shard.commit([shard.prepare(make_records(1, 3))])


# Only leases keep two workers of the other sinks apart: a record may be written twice.
@pytest.mark.parametrize("kind", [name for name, sink in SINKS.items() if sink.fences], indirect=True)
async def test_two_workers_cannot_both_commit_to_a_shard(kind, under_test, sink, make_records) -> None:
    """Either the second worker is refused, or it stops the first. Acked records are written once."""

    async def commit(shard, count, start) -> None:
        await shard.commit([shard.prepare(make_records(count, start))])

    async with sink.open(STREAM, SHARD) as first:
        await commit(first, 3, 0)
        try:
            async with under_test.open() as second_sink, second_sink.open(STREAM, SHARD) as second:
                await commit(second, 2, 3)
                with pytest.raises(SinkError):
                    await commit(first, 2, 3)
        except SinkLockedError:  # the second worker was refused
            await commit(first, 2, 3)
    mapping = RecordMapping(STREAM, SHARD)
    assert under_test.read(SHARD) == [mapping.message(record) for record in make_records(5)]


async def test_no_record_that_kinesis_accepts_is_refused(sink, make_records) -> None:
    """The smallest record, the largest one, and values that are not UTF-8."""
    async with sink.open(STREAM, SHARD) as shard:
        for data in (b"", b"\x00\xff", bytes(1024 * 1024)):
            record = msgspec.structs.replace(make_records(1)[0], data=data)
            assert shard.refusal is None or shard.refusal(record) is None
