"""`efo tail`'s reading, against the fake in memory, in virtual time."""

from __future__ import annotations

import gzip

import pytest
import trio

from efo.deserializers.many import unwrapping
from efo.errors import AccessDeniedError, ResourceNotFoundError
from efo.model import Position
from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.testing import FakeKinesis, When
from efo.testing.faults.kinds import NoResponse, Refuse
from efo_service.errors import UsageError
from efo_service.operations.tail import Tail, Tailer

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
TRIM_HORIZON = Position.trim_horizon()


class Reader:
    """Runs tails of the stream `orders`, and keeps what they show and note."""

    def __init__(self, fake: FakeKinesis) -> None:
        self.fake = fake
        self.shown: list[tuple[str, bytes]] = []
        self.notes: list[str] = []
        self.times: list[float] = []

    @property
    def data(self) -> list[bytes]:
        return [data for _, data in self.shown]

    def tailer(self, start: Position = TRIM_HORIZON, **options) -> Tailer:
        return Tailer(
            self.fake.kinesis("orders"), Tail(start=start, **options), self._show, self.notes.append, random=lambda: 1.0
        )

    async def run(self, start: Position = TRIM_HORIZON, **options) -> list[bytes]:
        """Run a tail to its end. By default, it ends at the current time."""
        if "limit" not in options:
            options.setdefault("until", self.fake.clock())
        with trio.fail_after(3600):
            await self.tailer(start, **options).run()
        return self.data

    def _show(self, shard_id, records):
        self.times.append(trio.current_time())
        self.shown += ((shard_id, record.data) for record in records)


@pytest.fixture
async def fake():
    async with FakeKinesis() as fake:
        fake.create_stream("orders", 2)
        yield fake


@pytest.fixture
def reader(fake):
    return Reader(fake)


def put(fake, *data, shard=0):
    """Put records into the first or the last of the shards."""
    for one in data:
        fake.put("orders", "k", one, explicit_hash_key="0" if shard == 0 else str(2**128 - 1))


async def pass_time(seconds):
    """Let virtual time pass."""
    await trio.sleep(seconds)


async def test_all_records_are_shown_up_to_the_end(fake, reader, autojump_clock):
    put(fake, b"1", b"2")
    put(fake, b"3", shard=1)
    assert sorted(await reader.run()) == [b"1", b"2", b"3"]
    assert reader.notes == []


async def test_latest_shows_only_what_arrives_from_now_on(fake, reader, nursery, autojump_clock):
    put(fake, b"old")
    await pass_time(1)
    nursery.start_soon(reader.tailer(Position.latest()).run)
    await pass_time(2)
    put(fake, b"new")
    await pass_time(2)
    nursery.cancel_scope.cancel()
    assert reader.data == [b"new"]


async def test_a_start_at_a_time_skips_what_arrived_before(fake, reader, autojump_clock):
    put(fake, b"1")
    await pass_time(10)
    put(fake, b"2")
    assert await reader.run(Position.at_timestamp(fake.clock() - 5)) == [b"2"]


async def test_a_start_at_a_time_skips_shards_that_had_ended_by_then(fake, reader, autojump_clock):
    put(fake, b"1")
    fake.split("orders", FIRST)
    await pass_time(20)
    put(fake, b"2")
    await pass_time(20)
    put(fake, b"3")
    assert await reader.run(Position.at_timestamp(fake.clock() - 10)) == [b"3"]


async def test_children_of_a_shard_that_ended_shortly_before_the_start_show_nothing_older(fake, reader, autojump_clock):
    await pass_time(1)
    fake.split("orders", FIRST)
    await pass_time(1)
    put(fake, b"old")
    await pass_time(2)
    since = fake.clock()
    put(fake, b"new")
    await pass_time(1)
    assert await reader.run(Position.at_timestamp(since)) == [b"new"]


async def test_a_shard_is_read_once_per_interval(fake, reader, nursery, autojump_clock):
    nursery.start_soon(reader.tailer(shards=(FIRST,), interval=2.5).run)
    await pass_time(11)
    nursery.cancel_scope.cancel()
    assert reader.times == [0, 2.5, 5, 7.5, 10]


async def test_the_children_of_a_split_and_of_a_merge_are_shown_after_all_their_parents(fake, reader, autojump_clock):
    put(fake, b"1")
    put(fake, b"2", shard=1)
    lower, upper = fake.split("orders", FIRST)
    put(fake, b"3")
    child = fake.merge("orders", upper, SECOND)
    put(fake, b"4", shard=1)
    await pass_time(1)
    await reader.run()
    order = [shard_id for shard_id, _ in reader.shown]
    assert sorted(reader.data) == [b"1", b"2", b"3", b"4"]
    assert order.index(FIRST) < order.index(lower)
    assert order[-1] == child or order.index(child) > max(order.index(FIRST), order.index(SECOND))


async def test_a_split_during_the_tail_is_followed(fake, reader, nursery, autojump_clock):
    nursery.start_soon(reader.tailer(Position.latest()).run)
    await pass_time(3)
    put(fake, b"parent")
    lower, _ = fake.split("orders", FIRST)
    put(fake, b"child")
    await pass_time(5)
    put(fake, b"later")
    await pass_time(5)
    nursery.cancel_scope.cancel()
    assert reader.shown == [(FIRST, b"parent"), (lower, b"child"), (lower, b"later")]


async def test_children_that_the_last_read_does_not_name_are_found_in_the_listing(
    fake, reader, monkeypatch, autojump_clock
):
    """Other servers than AWS leave ChildShards out."""
    put(fake, b"1")
    fake.split("orders", FIRST)
    put(fake, b"2")
    monkeypatch.setattr("efo.testing.state.shards.ShardState.children", (), raising=False)
    assert await reader.run() == [b"1", b"2"]


async def test_selected_shards_are_read_with_their_descendants_only(fake, reader, autojump_clock):
    """The child of a merge does not wait for a parent that nobody reads."""
    put(fake, b"1")
    put(fake, b"no", shard=1)
    child = fake.merge("orders", FIRST, SECOND)
    put(fake, b"2")
    await reader.run(shards=(FIRST,))
    assert reader.shown == [(FIRST, b"1"), (child, b"2")]


async def test_an_unknown_shard_is_refused_with_those_that_exist(reader, autojump_clock):
    with pytest.raises(UsageError, match=f"no such shard; it has 2: {FIRST}, {SECOND}"):
        await reader.run(shards=("shardId-000000000009",))


async def test_a_start_in_the_future_is_refused(fake, reader, autojump_clock):
    with pytest.raises(UsageError, match="future"):
        await reader.run(Position.at_timestamp(fake.clock() + 60))


async def test_an_expired_iterator_is_renewed_without_loss_or_repetition(fake, reader, nursery, autojump_clock):
    put(fake, b"1")
    nursery.start_soon(reader.tailer(shards=(FIRST,), interval=400).run)
    await pass_time(350)
    put(fake, b"2")
    await pass_time(400)
    put(fake, b"3")
    await pass_time(400)
    nursery.cancel_scope.cancel()
    assert reader.data == [b"1", b"2", b"3"]
    assert reader.notes == []


async def test_an_iterator_that_expires_before_the_first_record_loses_nothing(fake, reader, nursery, autojump_clock):
    nursery.start_soon(reader.tailer(Position.latest(), interval=400).run)
    await pass_time(350)
    put(fake, b"1")
    await pass_time(400)
    nursery.cancel_scope.cancel()
    assert reader.data == [b"1"]


async def test_throttled_reads_are_repeated_with_backoff_and_one_note(fake, reader, nursery, autojump_clock):
    put(fake, b"1")
    fake.faults.add(Refuse("ProvisionedThroughputExceededException"), When(operation="GetRecords", times=3))
    nursery.start_soon(reader.tailer(shards=(FIRST,)).run)
    await pass_time(7.5)
    nursery.cancel_scope.cancel()
    assert reader.times == [1 + 2 + 4]
    assert reader.data == [b"1"]
    [note] = reader.notes
    assert "5 calls per second" in note


async def test_the_backoff_starts_again_after_a_success(fake, reader, nursery, autojump_clock):
    throttled = Refuse("ProvisionedThroughputExceededException")
    fake.faults.add(throttled, When(operation="GetRecords", times=2))
    fake.faults.add(throttled, When(operation="GetRecords", nth=4, times=1))
    nursery.start_soon(reader.tailer(shards=(FIRST,)).run)
    await pass_time(5.5)
    nursery.cancel_scope.cancel()
    assert reader.times == [1 + 2, 1 + 2 + 1 + 1]


async def test_a_missing_permission_ends_it(fake, reader, autojump_clock):
    fake.faults.add(
        Refuse("AccessDeniedException", "not authorized to perform kinesis:GetRecords"), When(operation="GetRecords")
    )
    with pytest.raises(AccessDeniedError, match="kinesis:GetRecords"):
        await reader.run()


async def test_a_deleted_stream_ends_it(fake, reader, nursery, autojump_clock):
    async def delete():
        await pass_time(5)
        fake.delete_stream("orders")

    nursery.start_soon(delete)
    with pytest.raises(ResourceNotFoundError):
        await reader.run(until=fake.clock() + 60)


async def test_an_expired_shard_is_noted_and_its_children_are_read(fake, reader, nursery, autojump_clock):
    """It expires between the listing and the first call."""
    put(fake, b"1")
    lower, _ = fake.split("orders", FIRST)
    await pass_time(10)
    put(fake, b"2")
    fake.faults.add(NoResponse(5), When(operation="GetShardIterator"))
    nursery.start_soon(reader.tailer(shards=(FIRST,)).run)
    await pass_time(1)
    fake.retain("orders", 9 / 3600)
    await pass_time(6)
    nursery.cancel_scope.cancel()
    assert reader.shown == [(lower, b"2")]
    assert reader.notes == [f"{FIRST} is gone: its retention period has passed"]


async def test_the_user_records_of_aggregates_are_shown(fake, reader, autojump_clock):
    other = str(2**128 - 1)  # a hash key of the other shard: its producer knows no shards
    put(
        fake,
        aggregate([AggregateEntry("a", b"1", "0"), AggregateEntry("b", b"2", other), AggregateEntry("a", b"3", "0")]),
        b"4",
    )
    assert await reader.run() == [b"1", b"2", b"3", b"4"]
    put(fake, aggregate([AggregateEntry("a", b"4", "0")])[:-1] + b"?")
    await reader.run()
    assert reader.data[-1].endswith(b"?")
    [note] = reader.notes
    assert "damaged aggregate" in note


async def test_what_the_kpl_puts_again_after_a_reshard_is_not_shown_and_noted_once(fake, reader, autojump_clock):
    lower, _ = fake.split("orders", FIRST)
    beyond = str(2**126)  # the hash keys of FIRST were up to 2**127
    for number in (b"1", b"2"):
        data = aggregate([AggregateEntry("k", number, "0"), AggregateEntry("l", b"no", beyond)])
        assert fake.put("orders", "a", data, "0")[0] == lower
    tailer = reader.tailer(until=fake.clock())
    await tailer.run()
    assert reader.data == [b"1", b"2"]
    [note] = reader.notes
    assert note.startswith(lower)
    assert note.endswith("not shown ([consumer] aggregates is deduplicate)")
    assert tailer.filtered == 2
    assert tailer.state().endswith("; 2 of aggregates are filtered out")


async def test_all_user_records_of_an_aggregate_without_a_partition_key_are_shown(fake, reader, autojump_clock):
    fake.create_stream("auto", 2, distribution="AUTO")
    users = [AggregateEntry(f"user-{number}", b"%d" % number) for number in range(8)]
    for data in (aggregate(users), b"8"):
        fake.put("auto", None, data)
    tailer = Tailer(
        fake.kinesis("auto"), Tail(start=TRIM_HORIZON, until=fake.clock()), reader._show, reader.notes.append
    )
    await tailer.run()
    assert sorted(reader.data) == [b"%d" % number for number in range(9)]


async def test_the_parts_of_a_large_aggregate_are_all_shown_before_the_end(fake, reader, autojump_clock):
    put(fake, aggregate([AggregateEntry("a", b"1", "0")] * 25_000))
    assert len(await reader.run()) == 25_000
    assert len([time for time in reader.times if time == 0]) > 3


async def test_the_limit_counts_user_records_that_match(fake, reader, autojump_clock):
    put(fake, *(b"%d" % number for number in range(20)))
    assert await reader.run(limit=3, keeps=lambda record: int(record.data) % 2 == 1) == [b"1", b"3", b"5"]


async def test_a_limit_reads_no_more_than_it_needs(fake, reader, monkeypatch, autojump_clock):
    limits = []
    client = fake.kinesis("orders")
    get_records = type(client.control_plane).get_records

    async def counted(self, iterator, limit):
        limits.append(limit)
        return await get_records(self, iterator, limit)

    monkeypatch.setattr(type(client.control_plane), "get_records", counted)
    put(fake, *(b"%d" % number for number in range(20)))
    assert await reader.run(limit=2, shards=(FIRST,)) == [b"0", b"1"]
    assert limits == [2]


async def test_until_ends_before_the_first_later_record(fake, reader, autojump_clock):
    put(fake, b"1")
    await pass_time(10)
    until = fake.clock()
    put(fake, b"2")
    await pass_time(10)
    put(fake, b"3")
    put(fake, b"4", shard=1)
    assert await reader.run(until=until) == [b"1", b"2"]


async def test_until_a_later_time_waits_for_it(fake, reader, nursery, autojump_clock):
    async def put_later():
        await pass_time(8)
        put(fake, b"in time")
        await pass_time(8)
        put(fake, b"too late")

    nursery.start_soon(put_later)
    assert await reader.run(until=fake.clock() + 10) == [b"in time"]
    assert 10 <= trio.current_time() < 12


async def test_until_follows_the_children_of_a_shard_that_ended_before(fake, reader, autojump_clock):
    put(fake, b"1")
    fake.split("orders", FIRST)
    put(fake, b"2")
    await pass_time(5)
    assert await reader.run(until=fake.clock()) == [b"1", b"2"]


async def test_nothing_is_registered(fake, reader, autojump_clock):
    put(fake, b"1")
    await reader.run()
    control_plane = fake.kinesis("orders").control_plane
    assert await control_plane.list_consumers((await control_plane.describe_stream()).arn) == []


async def test_the_state_names_shards_lag_and_records_that_do_not_match(fake, reader, nursery, autojump_clock):
    put(fake, b"1")
    tailer = reader.tailer(keeps=lambda _record: False)
    nursery.start_soon(tailer.run)
    await pass_time(1.5)
    nursery.cancel_scope.cancel()
    assert tailer.state() == "2 shards, up to 0.0 s behind the tip; 1 records do not match"


async def test_layers_are_taken_off_before_a_value_is_matched_and_shown(fake, reader, autojump_clock):
    put(fake, gzip.compress(b"new 1\nold 2\nnew 3"), b"new plain", b"\x1f\x8bnew broken")
    layers = unwrapping(["gzip_or_plain", "json_lines"])
    shown = await reader.run(unwrap=layers, keeps=lambda record: b"new" in record.data)
    assert shown == [b"new 1", b"new 3", b"new plain", b"\x1f\x8bnew broken"]
    (note,) = reader.notes
    assert "is shown as it is: not gzip" in note


async def test_a_limit_counts_values(fake, reader, autojump_clock):
    put(fake, b"1\n2\n3", b"4")
    assert await reader.run(unwrap=unwrapping(["json_lines"]), limit=2) == [b"1", b"2"]
