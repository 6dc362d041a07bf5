"""What holds through each surface, in each of its styles: the same guarantees, failures and back-pressure."""

from __future__ import annotations

import time

import pytest

import efo
from efo import events
from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.testing.faults import Refuse, Reset
from efo.testing.faults.script import FaultScript, When
from tests.efo.adapters.programs import STREAM, World, hash_of


def numbers(batch):
    return [int(record.data) for record in batch]


class Reader:
    """Takes batches, acks them, and drains the consumer when it has so many records."""

    def __init__(self, count):
        self.count = count
        self.got = []

    def __call__(self, consumer, batch):
        self.got += numbers(batch)
        if len(self.got) >= self.count:
            consumer.drain()
        return True

    def by_key(self, keys=7):
        found = {}
        for number in self.got:
            found.setdefault(hash_of(number) % keys, []).append(number)
        return found


@pytest.mark.promise("R1 order")
def test_each_record_is_delivered_once_and_those_of_a_key_in_order(program):
    world, reader = World(shards=3), Reader(60)
    world.put(*range(60))
    program(world, reader)
    assert sorted(reader.got) == list(range(60))
    assert all(found == sorted(found) for found in reader.by_key().values())


@pytest.mark.promise("R2 end of a shard")
def test_children_follow_the_end_of_their_parent_and_it_is_finished(program):
    world, reader = World(shards=1), Reader(40)
    world.put(*range(20))

    def split_and_read(consumer, batch):
        if not reader.got:
            (parent,) = world.open_shards()
            world.call(lambda fake: fake.split(STREAM, parent))
            world.put(*range(20, 40))
        return reader(consumer, batch)

    program(world, split_and_read)
    assert sorted(reader.got) == list(range(40))
    assert all(found == sorted(found) for found in reader.by_key().values())
    leases = world.leases()
    (parent,) = [lease for lease in leases.values() if lease.children]
    assert parent.is_finished
    assert set(parent.children) <= set(leases)


@pytest.mark.promise("R3 progress")
def test_what_is_acked_is_not_repeated_by_the_next_consumer(program):
    world = World(shards=1)
    world.put(*range(10))
    first, second = Reader(10), Reader(1)
    program(world, first)
    (lease,) = world.leases().values()
    assert not lease.checkpoint.is_sentinel
    assert lease.owner is None
    world.put(10)
    program(world, second)
    assert (sorted(first.got), second.got) == (list(range(10)), [10])


@pytest.mark.promise("R3 at least once")
def test_what_is_not_acked_is_delivered_again(program):
    world, second = World(shards=1), Reader(10)
    world.put(*range(10))

    def leave(consumer, _batch):
        consumer.drain()
        return False

    program(world, leave)
    (lease,) = world.leases().values()
    assert lease.checkpoint.is_sentinel
    program(world, second)
    assert sorted(second.got) == list(range(10))


@pytest.mark.promise("R11 failure stops")
def test_a_failure_stops_everything_and_keeps_what_was_acked(program):
    world, second = World(shards=1), Reader(1)
    world.put(0)
    calls = []

    def fail(_consumer, batch):
        calls.append(numbers(batch))
        if len(calls) == 1:
            world.put(1)
            return True
        raise ValueError("the second batch")

    with pytest.raises(ValueError, match="the second batch"):
        program(world, fail)
    assert calls == [[0], [1]]
    (lease,) = world.leases().values()
    assert lease.owner is None
    program(world, second)
    assert second.got == [1]


@pytest.mark.promise("R9 back-pressure")
def test_a_slow_application_has_one_batch_of_a_shard_and_one_that_waits(program):
    world = World(shards=2, event_records=1)
    world.put(*range(40))
    taken, delivered = 0, []

    def slow(consumer, batch):
        nonlocal taken
        taken += len(batch)
        time.sleep(0.05)  # in it, virtual time passes: the other side would read on if it could
        ahead = sum(isinstance(event, events.BatchDelivered) for event in world.seen) - taken
        delivered.append(ahead)
        if len(delivered) == 4:
            consumer.drain()
        return True

    program(world, slow)
    assert max(delivered) <= 3  # one of this shard, two of the other


@pytest.mark.promise("R14 cancellation")
def test_an_interrupted_program_releases_its_leases_and_repeats_what_it_did_not_ack(program, request):
    if "threads" in request.node.name:
        pytest.skip("a thread is not interrupted: the signal reaches the main thread, see test_signals.py")
    world, second = World(shards=1), Reader(10)
    world.put(*range(10))

    def interrupt(_consumer, _batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program(world, interrupt)
    (lease,) = world.leases().values()
    assert lease.owner is None
    assert lease.checkpoint.is_sentinel
    program(world, second)
    assert sorted(second.got) == list(range(10))


@pytest.mark.promise("R12 own position")
def test_a_seek_repeats_from_its_place_and_old_acks_have_no_effect(program):
    world, got = World(shards=1), []
    world.put(*range(10))

    def seek_once(consumer, batch):
        got.extend(numbers(batch))
        if len(got) == 10:
            consumer.seek(batch.shard_id, efo.TRIM_HORIZON)
        if len(got) == 20:
            consumer.drain()
        return len(got) == 20

    program(world, seek_once)
    assert got == [*range(10), *range(10)]


@pytest.mark.promise("pause and resume")
def test_a_paused_shard_delivers_nothing_until_it_is_resumed(program):
    world, story = World(shards=2), []
    world.put(*range(20))

    def pause(consumer, batch):
        paused = story[0] if story else batch.shard_id
        story.append(batch.shard_id)
        if len(story) == 1:
            consumer.pause(paused)
        if "resumed" not in story:
            if story.count(batch.shard_id) == 2:  # the other shard: it delivers what is put while this one is paused
                story.append("resumed")
                consumer.resume(paused)
            else:  # for both shards; the first batch of the other one may have what was put before it
                world.put(*range(20, 40))
        elif batch.shard_id == paused:
            consumer.drain()
        return True

    program(world, pause)
    assert paused_shard_is_silent(story)


def paused_shard_is_silent(story):
    resumed = story.index("resumed")
    return story[0] not in story[1:resumed] and story[0] in story[resumed:]


@pytest.mark.promise("unknown shards")
def test_an_unknown_shard_is_refused(program):
    world, errors = World(shards=1), []
    world.put(0)

    def refuse(consumer, _batch):
        for call in (consumer.pause, consumer.resume, consumer.release):
            with pytest.raises(efo.errors.ShardNotReadError, match="shardId-9"):
                call("shardId-9")
            errors.append(call)
        consumer.drain()
        return True

    program(world, refuse)
    assert len(errors) == 3


@pytest.mark.promise("R11 failure policy")
def test_only_the_poison_record_is_skipped(program_with_policy):
    world, got = World(shards=1), []
    world.put(*range(8))

    def refuse(consumer, batch):
        if 3 in numbers(batch):
            raise ValueError("poison")
        got.extend(numbers(batch))
        if len(got) == 7:
            consumer.drain()
        return True

    program_with_policy(world, refuse, on_error=efo.FailurePolicy(then="skip"))
    assert sorted(got) == [0, 1, 2, 4, 5, 6, 7]
    (lease,) = world.leases().values()
    assert not lease.checkpoint.is_sentinel
    (skipped,) = (event for event in world.seen if isinstance(event, events.RecordSkipped))
    assert skipped.error_type == "ValueError"


@pytest.mark.promise("misuse is reported")
def test_a_handler_that_misuses_efo_is_never_skipped(program_with_policy):
    world = World(shards=1)
    world.put(0)

    def misuse(_consumer, batch):
        return batch.recrods

    with pytest.raises(efo.errors.HandlerError, match="recrods"):
        program_with_policy(world, misuse, on_error=efo.FailurePolicy(then="skip"))


@pytest.mark.promise("status")
def test_the_status_names_the_worker_and_its_shards(program):
    world, seen = World(shards=1), []
    world.put(0)

    def look(consumer, batch):
        seen.append((consumer.worker_id, [shard.shard_id for shard in consumer.status().shards], batch.shard_id))
        assert len(consumer.lineage()[0]) == 1
        assert consumer.shards()[0].shard_id == batch.shard_id
        consumer.drain()
        return True

    program(world, look)
    ((worker, (shard,), of_batch),) = seen
    assert (worker, shard) == ("worker", of_batch)


@pytest.mark.promise("R4 resubscribe")
def test_a_subscription_that_is_cut_continues_without_loss_and_without_repetition(program):
    world, reader = World(shards=2, event_records=3), Reader(60)
    world.faults = FaultScript([(Reset(), When(nth=3, times=4))])
    world.put(*range(60))
    program(world, reader)
    assert sorted(reader.got) == list(range(60))
    assert any(isinstance(event, events.SubscriptionEnded) and event.error_type for event in world.seen)


@pytest.mark.promise("R13 consumers stay")
def test_the_fan_out_consumer_is_registered_and_stays(program):
    world, known = World(shards=1), []
    world.put(0)

    def read(consumer, _batch):
        known.append(world.call(lambda fake: fake.register(STREAM, "another").name))
        consumer.drain()
        return True

    program(world, read)
    registered = [event for event in world.seen if isinstance(event, events.ConsumerReady)]
    assert [(event.name, event.registered) for event in registered] == [("app", True)]
    assert known == ["another"]


@pytest.mark.promise("R16 outages pass")
def test_an_outage_of_the_service_is_waited_for(program):
    world, reader = World(shards=2, event_records=5), Reader(40)
    refused = (Refuse("InternalFailure", status=500), When(nth=1, times=4))
    world.faults = FaultScript([refused, (Reset(), When(nth=2, times=2))])
    world.put(*range(40))
    program(world, reader)
    assert sorted(reader.got) == list(range(40))


@pytest.mark.promise("R17 aggregates")
def test_user_records_of_an_aggregate_are_delivered_each(program):
    world, reader = World(shards=1), Reader(3)
    data = aggregate(AggregateEntry("key", str(number).encode()) for number in range(3))
    world.before.append(lambda fake: fake.put(STREAM, "key", data))
    program(world, reader)
    assert reader.got == [0, 1, 2]


def settings(**limits):
    return efo.ConsumerSettings(lease_scan_seconds=1.0, **limits)


def dropped(world):
    found = [event for event in world.seen if isinstance(event, events.RecordsDropped)]
    return {event.reason for event in found}, sum(event.records for event in found)


@pytest.mark.promise("R11 limits of age")
def test_records_that_are_too_old_are_dropped_and_counted(program):
    world, reader = World(shards=1, event_records=3), Reader(4)
    world.put(*range(7))
    world.age(3600, *range(7, 11))
    program(world, reader, settings=settings(max_record_age_seconds=600.0))
    assert sorted(reader.got) == [7, 8, 9, 10]
    assert dropped(world) == ({"too_old"}, 7)


@pytest.mark.promise("R11 skip when behind")
def test_a_shard_that_is_too_far_behind_goes_on_at_its_tip_and_the_hole_is_reported(program):
    world, reader = World(shards=1, event_records=3), Reader(2)
    world.put(*range(7))
    world.age(3600, 7)
    world.on_drop = lambda: world.put(8, 9)
    program(world, reader, settings=settings(skip_when_behind_seconds=600))
    assert sorted(reader.got) == [8, 9]
    (event,) = (event for event in world.seen if isinstance(event, events.RecordsDropped))
    assert (event.reason, event.records, event.since) == ("behind", 3, world.settings.epoch)
    assert event.until >= event.since + 3600


@pytest.mark.promise("R11 limits of age: dead letters")
def test_records_that_are_too_old_are_dead_lettered_if_the_policy_says_so(program_with_policy):
    world, reader, letters = World(shards=1, event_records=3), Reader(2), []
    world.put(*range(4))
    world.age(3600, 4, 5)

    async def store(letter):
        letters.append((int(letter.record.data), type(letter.error)))

    policy = efo.FailurePolicy(then="dead_letter", dead_letter=store)
    program_with_policy(world, reader, on_error=policy, settings=settings(max_record_age_seconds=600))
    assert letters == [(number, efo.errors.RecordTooOldError) for number in range(4)]
    assert (sorted(reader.got), dropped(world)) == ([4, 5], (set(), 0))
