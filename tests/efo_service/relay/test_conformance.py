"""Tests that every sink must pass: those that packages with a sink run, and some that need our records."""

from __future__ import annotations

import msgspec
import pytest
import trio

from efo_service.relay.conformance import CHECKS, SHARD, STREAM
from efo_service.relay.errors import SinkClosedError, SinkError, SinkLockedError
from efo_service.relay.mapping import RecordMapping
from tests.efo_service.relay.all_sinks import SINKS


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
        len(message.key) + len(message.value) + sum(len(name) + len(value) for name, value in message.headers)
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
