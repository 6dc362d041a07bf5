"""The whole record up to which a shard was read, in virtual time: never beyond an aggregate that has more."""

from __future__ import annotations

import pytest

from efo.model import Checkpoint, Lease, Position
from efo.protocol.aggregation import AggregateEntry, AggregateMode, aggregate
from efo.testing import FakeKinesis, When
from efo.testing.faults.kinds import Refuse
from efo_service.operations.migration.aggregates import TRIES, find_marks
from efo_service.operations.migration.layout import Mark

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
THREE = aggregate([AggregateEntry("key", b"%d" % number, "0") for number in range(3)])


@pytest.fixture
async def fake(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("orders", 2)
        yield fake


def put(fake, data):
    """Put a record into the first shard, and return its sequence number."""
    return fake.put("orders", "k", data, "0")[1]


async def marks(fake, *leases, mode=AggregateMode.FILTER):
    control_plane = fake.kinesis("orders").control_plane
    return await find_marks(control_plane, leases, await control_plane.list_shards(), mode)


async def mark(fake, number, sub=0, **options):
    """Return the mark of the first shard."""
    return (await marks(fake, Lease(FIRST, Checkpoint(number, sub)), **options))[FIRST]


async def read_after(fake, number):
    """Return what another library reads from a mark on."""
    control_plane = fake.kinesis("orders").control_plane
    iterator = await control_plane.get_shard_iterator(FIRST, Position.after(number))
    return [record.data for record in (await control_plane.get_records(iterator, 10)).records]


async def test_a_plain_record_marks_itself_whatever_follows(fake):
    number = put(fake, b"1")
    put(fake, THREE)
    assert await mark(fake, number) == Mark(number)


@pytest.mark.parametrize("sub", [0, 1])
async def test_within_an_aggregate_the_mark_is_the_record_before_it(fake, sub):
    put(fake, b"1")
    before = put(fake, b"2")
    number = put(fake, THREE)
    put(fake, b"3")
    found = await mark(fake, number, sub)
    assert found.sequence_number == before
    assert f"before the aggregate {number}" in found.why
    assert f"its first {sub + 1} are read again" in found.why
    assert await read_after(fake, before) == [THREE, b"3"]


async def test_an_aggregate_that_is_read_to_its_end_marks_itself(fake):
    put(fake, b"1")
    number = put(fake, THREE)
    assert await mark(fake, number, 2) == Mark(number)


async def test_a_record_long_before_the_aggregate_is_found(fake, autojump_clock):
    before = put(fake, b"1")
    autojump_clock.jump(20 * 3600)
    number = put(fake, THREE)
    assert (await mark(fake, number)).sequence_number == before


async def test_the_records_before_the_aggregate_may_be_many_pages(fake):
    fake.put_many("orders", [("k", b"%d" % number) for number in range(5000)])
    number = fake.put("orders", "k", THREE)[1]
    shard, records = next((shard, found) for shard, found in fake.records("orders").items() if found)
    found = await marks(fake, Lease(shard, Checkpoint(number)), mode=AggregateMode.KEEP)
    assert found[shard].sequence_number == records[-2].sequence_number


async def test_the_first_record_of_a_shard_has_the_shards_start_before_it(fake):
    number = put(fake, THREE)
    found = await mark(fake, number)
    assert int(found.sequence_number) < int(number)
    assert await read_after(fake, found.sequence_number) == [THREE]


async def test_what_is_before_the_aggregate_may_have_passed_its_retention(fake, autojump_clock):
    put(fake, b"1")
    autojump_clock.jump(23 * 3600)
    number = put(fake, THREE)
    autojump_clock.jump(2 * 3600)
    assert await read_after(fake, (await mark(fake, number)).sequence_number) == [THREE]


async def test_without_a_position_before_the_aggregate_there_is_no_mark(fake):
    number = put(fake, THREE)
    control_plane = fake.kinesis("orders").control_plane
    (shard, _) = await control_plane.list_shards()
    object.__setattr__(shard, "starting_sequence_number", number)  # no server that we know begins so
    found = (await find_marks(control_plane, [Lease(FIRST, Checkpoint(number))], [shard], AggregateMode.FILTER))[FIRST]
    assert found.sequence_number is None
    assert "let efo run until it has acked what follows the aggregate" in found.why


async def test_user_records_that_efo_filters_out_are_not_waited_for(fake):
    put(fake, b"1")
    number = put(
        fake, aggregate([AggregateEntry("key", b"ours", "0"), AggregateEntry("key", b"theirs", str(2**128 - 1))])
    )
    assert await mark(fake, number) == Mark(number)
    assert (await mark(fake, number, mode=AggregateMode.KEEP)).sequence_number != number


async def test_a_continuation_without_a_record_marks_itself(fake, autojump_clock):
    number = str(int(put(fake, b"1")) + (1 << 36))  # the fake's next number, if it had come in the same millisecond
    autojump_clock.jump(1)
    put(fake, THREE)
    assert await mark(fake, number) == Mark(number)


async def test_an_aggregate_past_its_retention_marks_itself(fake, autojump_clock):
    number = put(fake, THREE)
    autojump_clock.jump(30 * 3600)
    put(fake, b"1")
    assert await mark(fake, number) == Mark(number)


async def test_a_shard_that_is_not_listed_any_more_is_not_read(fake):
    assert (await marks(fake, Lease("shardId-000000000009", Checkpoint("5", 3))))["shardId-000000000009"] == Mark("5")


async def test_leases_without_a_sequence_number_have_no_mark(fake):
    assert await marks(fake, Lease(FIRST, Checkpoint.SHARD_END), Lease(SECOND, Checkpoint.LATEST)) == {}


async def test_records_that_may_not_be_read_have_no_mark_and_other_shards_have(fake):
    number = put(fake, b"1")
    other = fake.put("orders", "k", b"2", str(2**128 - 1))[1]
    fake.faults.add(Refuse("AccessDeniedException"), When(operation="GetRecords", times=1))
    leases = [Lease(FIRST, Checkpoint(number)), Lease(SECOND, Checkpoint(other))]
    found = await marks(fake, *leases)
    (refused,) = [one for one in found.values() if one.sequence_number is None]
    assert "cannot be read, and may be a part of an aggregate: AccessDeniedException" in refused.why
    assert len(found) == 2


@pytest.mark.parametrize(("failures", "is_found"), [(TRIES - 1, True), (TRIES, False)])
async def test_calls_that_are_throttled_are_repeated(fake, failures, is_found):
    number = put(fake, b"1")
    throttled = Refuse("ProvisionedThroughputExceededException")
    fake.faults.add(throttled, When(operation="GetRecords", times=failures))
    assert ((await mark(fake, number)).sequence_number == number) is is_found
