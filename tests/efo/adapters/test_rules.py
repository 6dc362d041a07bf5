"""What holds through each surface of the rules that are about restarts, subscriptions, leases and streams.

`make forms` tries all forms; other runs of the tests try one of each surface, since none of this is decided there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
import trio

import efo
from efo import events
from efo.errors import ResourceInUseError, StreamRecreatedError
from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.testing.faults import Reset, Silence, Stall
from efo.testing.faults.script import FaultScript, When
from tests.efo.adapters.programs import STREAM, World
from tests.efo.adapters.test_conformance import Reader

# --- R5: a restart ---------------------------------------------------------------------------------------------------


@pytest.mark.promise("R5 within an aggregate")
def test_a_restart_within_an_aggregate_goes_on_with_the_user_record_after_the_checkpoint(program_of_each):
    world, first, second = World(shards=1), Reader(3), Reader(2)
    data = aggregate(AggregateEntry("key", str(number).encode()) for number in range(3))
    world.before.append(lambda fake: fake.put(STREAM, "key", data))
    program_of_each(world, first)
    (lease,) = world.leases().values()
    assert lease.checkpoint.sub_sequence_number == 2
    world.set_checkpoint(efo.Checkpoint(lease.checkpoint.sequence_number, 0))
    program_of_each(world, second)
    assert (first.got, second.got) == ([0, 1, 2], [1, 2])


@pytest.mark.promise("R5 records that expired")
def test_what_expired_while_nobody_read_it_is_reported(program_of_each):
    world, first, second = World(shards=1, retention_hours=1), Reader(3), Reader(1)
    world.put(0, 1, 2)
    program_of_each(world, first)
    world.put(3)
    world.age(3 * 3600, 4)
    program_of_each(world, second)
    assert (sorted(first.got), second.got) == ([0, 1, 2], [4])
    (expired,) = world.events(events.RecordsExpired)
    assert expired.seconds == pytest.approx(2 * 3600, abs=60)


# --- R6, R7, R8: subscriptions ---------------------------------------------------------------------------------------


def attempts(world):
    """Return when each shard was subscribed, and with which answer."""
    found = defaultdict(list)
    for event, at in zip(world.seen, world.seen_at, strict=True):
        if isinstance(event, events.SubscribeAttempted):
            found[event.shard_id].append((at, event.error_type))
    return found


@pytest.mark.promise("R6 pacing")
def test_a_shard_is_subscribed_within_the_limits_of_aws(program_for_minutes):
    world, reader = World(shards=3, event_records=2), Reader(60)
    world.faults = FaultScript([(Reset(), When(nth=2, times=9))])
    world.put(*range(60))
    program_for_minutes(world, reader)
    assert sorted(reader.got) == list(range(60))
    found = attempts(world)
    assert sum(len(of_shard) for of_shard in found.values()) >= 12
    refused = {error for of_shard in found.values() for _, error in of_shard if error is not None}
    assert refused <= {ResourceInUseError.error_type}  # a call that was given up may have been accepted, for 5 s
    for of_shard in found.values():
        times = [at for at, _ in of_shard]
        assert min((later - earlier for earlier, later in pairwise(times)), default=5.0) >= 1.0


@pytest.mark.promise("R7 renewal")
def test_the_next_subscription_is_accepted_before_the_last_one_ends(program_for_minutes):
    world, reader = World(shards=2), Reader(8)
    for number in range(8):
        world.put_later(45.0 * number, number)
    program_for_minutes(world, reader, settings=efo.ConsumerSettings(lease_scan_seconds=30.0))
    assert sorted(reader.got) == list(range(8))
    opened, renewed = Counter(), 0
    for event in world.seen:
        match event:
            case events.SubscribeAttempted(error_type=None):
                opened[event.shard_id] += 1
            case events.SubscriptionEnded(reason="renewed"):
                opened[event.shard_id] -= 1
                renewed += 1
                assert opened[event.shard_id] == 1  # the one that has taken over
    assert renewed >= 2


@pytest.mark.promise("R8 a silent subscription")
def test_a_silent_subscription_is_noticed_and_replaced(program_of_each):
    assert "silence" in ends_of_subscriptions(program_of_each, Stall())


@pytest.mark.promise("R8 a silent connection")
def test_a_silent_connection_is_noticed_and_replaced(program_of_each):
    assert "transport" in ends_of_subscriptions(program_of_each, Silence())


def ends_of_subscriptions(program, fault):
    """Read through a fault; return why subscriptions ended."""
    world, reader = World(shards=2, event_records=1), Reader(10)
    world.faults = FaultScript([(fault, When(nth=3))])
    world.put(*range(10))
    program(world, reader)
    assert sorted(reader.got) == list(range(10))
    return {event.reason for event in world.events(events.SubscriptionEnded)}


# --- R10: leases -----------------------------------------------------------------------------------------------------


@pytest.mark.promise("R10 a planned move")
def test_a_shard_that_moves_to_another_worker_repeats_nothing(program_of_each):
    world, reader, others = World(shards=2), Reader(100), []

    async def handle(batch):
        others.extend(int(record.data) for record in batch)

    async def join(fake):
        await trio.sleep(3.0)
        options = {"application": "app", "leases": world.store, "worker_id": "other"}
        settings = efo.ConsumerSettings(lease_scan_seconds=1.0)
        await efo.consume(fake.kinesis(STREAM), handle, settings=settings, **options)

    world.beside.append(join)
    world.put(*range(20))
    for second in range(20):
        world.put_later(second, *range(20 + 4 * second, 24 + 4 * second))
    program_of_each(world, reader, timeout=60)
    assert sorted(reader.got + others) == list(range(100))
    assert others
    assert [event.reason for event in world.events(events.LeaseLost)] == ["handed_over", "released"]


@pytest.mark.promise("R10 one that may checkpoint")
def test_a_worker_that_lost_its_lease_by_force_checkpoints_nothing_more(program_of_each):
    world, reader = World(shards=1), Reader(3)
    world.put(0, 1)

    async def take(_fake):
        await trio.sleep(2.0)  # what is acked is checkpointed after 5 s
        (lease,) = await world.store.list()
        await world.store.take(lease, "thief")

    world.beside.append(take)
    settings = efo.ConsumerSettings(lease_scan_seconds=1.0, failover_seconds=600.0)  # the thief keeps the lease
    program_of_each(world, reader, timeout=30, settings=settings)
    assert sorted(reader.got) == [0, 1]
    (lease,) = world.leases().values()
    assert (lease.owner, lease.checkpoint.is_sentinel) == ("thief", True)
    assert [event.reason for event in world.events(events.LeaseLost)] == ["taken"]


# --- R15: identity ---------------------------------------------------------------------------------------------------


@pytest.mark.promise("R15 identity")
def test_a_stream_that_was_created_again_is_refused_and_not_read(program_of_each):
    world, first, second = World(shards=2), Reader(5), Reader(5)
    world.put(*range(5))
    program_of_each(world, first)
    world.settings = replace(world.settings, epoch=world.settings.epoch + 3600)  # of the stream, which is another one
    with pytest.raises(StreamRecreatedError, match="created again"):
        program_of_each(world, second)
    assert (sorted(first.got), second.got) == (list(range(5)), [])
