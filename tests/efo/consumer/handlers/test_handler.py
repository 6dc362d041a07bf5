"""Handlers that fail, hold records, or process several keys at once, over FakeKinesis in virtual time (rule R11)."""

from __future__ import annotations

import gc
import random
from collections import defaultdict
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from efo import HOLD, DeadLetter, FailurePolicy, Handler, events
from efo.consumer.handlers.handler import MAX_PENDING_BYTES
from efo.errors import ConfigurationError, EfoError, HandlerError, IsolateShardError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Batch, Checkpoint
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis, FakeSettings
from tests.workers import open_worker

STREAM = "orders"


class Environment:
    """A fake with one stream, a lease store, and the diagnostic events with their times."""

    def __init__(self, shards: int, settings: FakeSettings) -> None:
        self.fake = FakeKinesis(settings=settings)
        self.shards = shards
        self.store = MemoryLeaseStore()
        self.seen: list[events.Event] = []
        self.times: list[float] = []

    def observe(self, event: events.Event) -> None:
        self.seen.append(event)
        self.times.append(trio.current_time())

    def reported(self, kind: type) -> list:
        return [event for event in self.seen if isinstance(event, kind)]

    def put(self, *data: object, key: str | None = "k") -> None:
        self.fake.put_many(STREAM, [(key, str(one).encode()) for one in data])

    @asynccontextmanager
    async def consuming(self, handler: Handler, *, worker_id: str = "worker", **changes: object):
        settings = ConsumerSettings(**changes)
        async with (
            open_worker(
                self.fake.kinesis(STREAM),
                self.store,
                settings,
                self.observe,
                worker_id=worker_id,
                rng=random.Random(1),
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, handler)
            yield consumer
            consumer.drain()

    async def lease(self, shard_id: str | None = None):
        leases = {lease.key: lease for lease in await self.store.list()}
        return leases[shard_id or self.fake.open_shards(STREAM)[0]]


@asynccontextmanager
async def open_environment(shards: int = 1, *, distribution=None, **settings: object):
    environment = Environment(shards, FakeSettings(**settings))
    async with environment.fake as fake:
        fake.create_stream(STREAM, shards=shards, distribution=distribution)
        yield environment


class NumberHandler:
    """A handler of records that contain numbers.

    `failing`: it raises if a call contains one of these numbers, at most `times` times. `calls`: the numbers of each
    call. `done`: the numbers that it processed.
    """

    def __init__(self, failing=(), times=10**9, error=ValueError):
        self.failing, self.times, self.error = set(failing), times, error
        self.calls: list[list[int]] = []
        self.done: list[int] = []

    async def __call__(self, batch) -> None:
        await self._process([int(record.data) for record in batch.records])

    async def record(self, record, _batch) -> None:
        await self._process([int(record.data)])

    async def _process(self, numbers) -> None:
        await trio.lowlevel.checkpoint()
        self.calls.append(numbers)
        if self.failing & set(numbers) and self.times > 0:
            self.times -= 1
            raise self.error("a poison record, whose data must not be reported")
        self.done += numbers


def make_handler(env, *handler, **options):
    return Handler(*handler, observer=env.observe, rng=random.Random(1), **options)


async def test_a_failed_batch_is_retried_and_no_record_is_repeated(autojump_clock):
    async with open_environment() as env:
        env.put(*range(5))
        handler = NumberHandler({3}, times=2)
        async with env.consuming(make_handler(env, handler, on_error=FailurePolicy(attempts=3))):
            await trio.sleep(20)
        assert handler.calls == [[0, 1, 2, 3, 4]] * 3
        assert handler.done == [0, 1, 2, 3, 4]
        failed = env.reported(events.HandlerFailed)
        assert [(e.attempt, e.records, e.error_type, e.action) for e in failed] == [
            (1, 5, "ValueError", "retry"),
            (2, 5, "ValueError", "retry"),
        ]
        assert all("must not be reported" not in str(event) for event in env.seen)


@pytest.mark.parametrize("has_own", [False, True], ids=["of the consumer", "its own"])
async def test_failures_go_to_the_observer_of_the_consumer_unless_the_handler_has_its_own(autojump_clock, has_own):
    own = []
    async with open_environment() as env:
        env.put(*range(3))
        options = {"observer": own.append} if has_own else {}
        handler = Handler(NumberHandler({1}), on_error=FailurePolicy(then="skip"), **options)
        async with env.consuming(handler):
            await trio.sleep(20)
        of_consumer = env.reported(events.RecordSkipped)
    of_handler = [event for event in own if isinstance(event, events.RecordSkipped)]
    assert (len(of_consumer), len(of_handler)) == ((0, 1) if has_own else (1, 0))


@pytest.mark.parametrize("by_record", [False, True], ids=["by batch", "by record"])
async def test_a_shard_that_waits_for_an_event_holds_no_batch(autojump_clock, by_record):
    async with open_environment() as env:
        numbers = range(970_000, 970_005)  # other tests do not use these
        env.put(*numbers)
        handler = NumberHandler()
        arguments = {"record_handler": handler.record} if by_record else {"handler": handler}
        async with env.consuming(make_handler(env, **arguments)):
            await trio.sleep(1)  # before the next event of an idle shard
            gc.collect()
            assert handler.done == [*numbers]
            batches = [held for held in gc.get_objects() if isinstance(held, Batch)]
            assert not [batch for batch in batches if any(record.data == b"970000" for record in batch)]


@pytest.mark.parametrize("by_record", [False, True], ids=["by batch", "by record"])
async def test_only_the_poison_records_of_a_batch_are_skipped(autojump_clock, by_record):
    async with open_environment() as env:
        env.put(*range(20))
        handler = NumberHandler({7, 13})
        arguments = {"record_handler": handler.record} if by_record else {"handler": handler}
        async with env.consuming(make_handler(env, on_error=FailurePolicy(attempts=2, then="skip"), **arguments)):
            await trio.sleep(30)
        assert handler.done == [n for n in range(20) if n not in {7, 13}]
        records = env.fake.records(STREAM)[env.fake.open_shards(STREAM)[0]]
        skipped = [event.sequence_number for event in env.reported(events.RecordSkipped)]
        assert skipped == [records[7].sequence_number, records[13].sequence_number]
        assert int((await env.lease()).checkpoint.sequence_number) >= int(records[19].sequence_number)
        alone = [numbers for numbers in handler.calls if numbers in ([7], [13])]
        assert alone == [[7], [7], [13], [13]]


async def test_a_poison_record_is_dead_lettered_and_acked(autojump_clock):
    letters: list[DeadLetter] = []

    async def store_letter(letter: DeadLetter) -> None:
        await trio.sleep(1)
        letters.append(letter)

    async with open_environment() as env:
        env.put(*range(6))
        handler = NumberHandler({2})
        policy = FailurePolicy(attempts=2, then="dead_letter", dead_letter=store_letter)
        async with env.consuming(make_handler(env, record_handler=handler.record, on_error=policy)):
            await trio.sleep(20)
        assert handler.done == [0, 1, 3, 4, 5]
        (letter,) = letters
        assert (letter.stream, letter.record.data, letter.attempts) == (STREAM, b"2", 2)
        assert isinstance(letter.error, ValueError)
        (event,) = env.reported(events.RecordDeadLettered)
        assert event.sequence_number == letter.record.sequence_number


async def test_a_dead_letter_that_cannot_be_stored_isolates_the_shard_and_is_not_lost(autojump_clock):
    letters = []
    failures = [OSError("down"), OSError("down"), OSError("down")]

    async def store_letter(letter: DeadLetter) -> None:
        await trio.lowlevel.checkpoint()
        if failures:
            raise failures.pop()
        letters.append(int(letter.record.data))

    async with open_environment() as env:
        env.put(*range(4))
        handler = NumberHandler({2})
        policy = FailurePolicy(attempts=2, then="dead_letter", cooldown=30, dead_letter=store_letter)
        async with env.consuming(make_handler(env, record_handler=handler.record, on_error=policy)):
            await trio.sleep(120)
        assert (handler.done, letters) == ([0, 1, 3], [2])
        (isolated,) = env.reported(events.ShardIsolated)
        assert (isolated.cooldown, isolated.error_type) == (30, "OSError")
        assert [e.action for e in env.reported(events.HandlerFailed) if e.call == "dead_letter"] == [
            "retry",
            "isolate",
            "retry",
        ]


async def test_an_isolated_shard_releases_its_lease_and_the_others_are_read(autojump_clock):
    async with open_environment(shards=2) as env:
        bad, good = env.fake.open_shards(STREAM)
        keys = {
            shard: next(k for k in map(str, range(99)) if env.fake.put(STREAM, k, b"0")[0] == shard)
            for shard in (bad, good)
        }
        by_shard = defaultdict(list)

        async def handle(batch) -> None:
            await trio.lowlevel.checkpoint()
            if batch.shard_id == bad and trio.current_time() - start < 50:
                raise ValueError("secret data")
            by_shard[batch.shard_id] += [record.data for record in batch.records]

        start = trio.current_time()
        policy = FailurePolicy(then="isolate", cooldown=40)
        async with env.consuming(make_handler(env, handle, on_error=policy)) as consumer:
            await trio.sleep(20)
            assert (await env.lease(bad)).owner is None
            assert (await env.lease(good)).owner == "worker"
            assert [shard.shard_id for shard in consumer.status().isolated] == [bad]
            env.fake.put(STREAM, keys[good], b"1")
            await trio.sleep(6)
            assert by_shard[good][-1] == b"1"
            assert bad not in by_shard
            await trio.sleep(94)
            assert consumer.status().isolated == ()
        assert by_shard[bad] == [record.data for record in env.fake.records(STREAM)[bad]]
        taken = [t for e, t in zip(env.seen, env.times, strict=True) if e == events.LeaseStoreCalled("take", bad, 0.0)]
        isolated = [t for e, t in zip(env.seen, env.times, strict=True) if isinstance(e, events.ShardIsolated)]
        assert len(taken) == len(isolated) + 1
        assert all(again - before >= 40 for before, again in zip(isolated, taken[1:], strict=True))
        detail = env.reported(events.ShardIsolated)[0].detail
        assert "ValueError" in detail
        assert "secret data" not in detail


async def test_another_worker_may_take_an_isolated_shard(autojump_clock):
    async with open_environment() as env:
        env.put(*range(3))
        handler = NumberHandler()
        policy = FailurePolicy(then="isolate", cooldown=1000)
        async with env.consuming(make_handler(env, NumberHandler({0}), on_error=policy), worker_id="a"):
            await trio.sleep(10)
            async with env.consuming(make_handler(env, handler), worker_id="b"):
                await trio.sleep(20)
                assert (await env.lease()).owner == "b"
        assert handler.done == [0, 1, 2]


async def test_a_handler_may_isolate_its_shard_whatever_the_policy(autojump_clock):
    async def isolate(batch) -> None:
        raise IsolateShardError("the table is locked", cooldown=7)

    async with open_environment() as env:
        env.put(1)
        async with env.consuming(make_handler(env, isolate, on_error=FailurePolicy(attempts=5, then="skip"))):
            await trio.sleep(5)
        (isolated,) = env.reported(events.ShardIsolated)
        assert (isolated.cooldown, isolated.detail) == (7, "the table is locked")
        assert env.reported(events.HandlerFailed) == []


async def test_by_default_the_handlers_exception_ends_the_run_and_its_progress_is_saved(autojump_clock):
    async with open_environment() as env:
        env.put(*range(10))
        handler, rest = NumberHandler({6}), NumberHandler()
        with pytest.raises(ValueError, match="poison"):
            async with env.consuming(make_handler(env, record_handler=handler.record)):
                await trio.sleep_forever()
        async with env.consuming(make_handler(env, record_handler=rest.record)):
            await trio.sleep(10)
        # It failed in the middle of a batch, and no record is repeated.
        assert handler.done + rest.done == list(range(10))


async def test_the_policy_may_depend_on_the_exception(autojump_clock):
    def policy(error: Exception) -> FailurePolicy:
        return FailurePolicy(attempts=10, then="stop") if isinstance(error, OSError) else FailurePolicy(then="skip")

    async with open_environment() as env:
        env.put(*range(4))
        down, bad = NumberHandler({0}, times=4, error=OSError), NumberHandler({2})

        async def handle(record, _batch) -> None:
            await down.record(record, None)
            await bad.record(record, None)

        async with env.consuming(make_handler(env, record_handler=handle, on_error=policy)):
            await trio.sleep(60)
        assert bad.done == [0, 1, 3]
        assert [event.action for event in env.reported(events.HandlerFailed)] == ["retry"] * 4 + ["skip"]


async def test_a_drain_does_not_wait_for_retries(autojump_clock):
    async with open_environment() as env:
        env.put(*range(3))
        handler, rest = NumberHandler({1}), NumberHandler()
        policy = FailurePolicy(attempts=None, retry_for=10_000, backoff=1000, backoff_limit=1000)
        async with env.consuming(make_handler(env, record_handler=handler.record, on_error=policy)):
            await trio.sleep(10)
            started = trio.current_time()
        assert trio.current_time() - started < 1
        async with env.consuming(make_handler(env, record_handler=rest.record)):
            await trio.sleep(10)
        assert (handler.done, rest.done) == ([0], [1, 2])


async def test_a_seek_past_a_record_ends_its_retries(autojump_clock):
    async with open_environment() as env:
        env.put(*range(5))
        handler = NumberHandler({2})
        policy = FailurePolicy(attempts=None, retry_for=10_000)
        async with env.consuming(make_handler(env, record_handler=handler.record, on_error=policy)) as consumer:
            await trio.sleep(10)
            shard_id = env.fake.open_shards(STREAM)[0]
            poison = env.fake.records(STREAM)[shard_id][2]
            consumer.seek(shard_id, Checkpoint(poison.sequence_number))
            await trio.sleep(40)
        assert handler.done == [0, 1, 3, 4]


# --- hold --------------------------------------------------------------------------------------------------


async def test_held_records_move_the_checkpoint_only_when_a_later_record_is_done(autojump_clock):
    async def handle(record, _batch):
        await trio.lowlevel.checkpoint()
        return HOLD if record.data != b"9" else None

    async with open_environment() as env:
        env.put(*range(3))
        async with env.consuming(make_handler(env, record_handler=handle)):
            await trio.sleep(60)  # many empty events arrive
            assert (await env.lease()).checkpoint.is_sentinel
            env.put(3, 9)
            await trio.sleep(10)
            last = env.fake.records(STREAM)[env.fake.open_shards(STREAM)[0]][-1]
            assert int((await env.lease()).checkpoint.sequence_number) >= int(last.sequence_number)


async def test_records_that_are_held_at_a_drain_are_delivered_again(autojump_clock):
    async def hold(batch):
        await trio.lowlevel.checkpoint()
        return HOLD

    async with open_environment() as env:
        env.put(*range(3))
        async with env.consuming(make_handler(env, hold)):
            await trio.sleep(10)
        rest = NumberHandler()
        async with env.consuming(make_handler(env, rest)):
            await trio.sleep(10)
        assert rest.done == [0, 1, 2]


async def test_a_skipped_record_after_a_held_one_does_not_move_the_checkpoint(autojump_clock):
    async def handle(record, _batch):
        await trio.lowlevel.checkpoint()
        if record.data == b"1":
            raise ValueError("poison")
        return HOLD

    async with open_environment() as env:
        env.put(*range(2))
        async with env.consuming(make_handler(env, record_handler=handle, on_error=FailurePolicy(then="skip"))):
            await trio.sleep(30)
        assert len(env.reported(events.RecordSkipped)) == 1
        assert (await env.lease()).checkpoint.is_sentinel


@pytest.mark.scenario("G64")
async def test_a_shard_with_held_records_is_finished_after_flush(autojump_clock):
    flushed, buffer = [], []

    async def handle(batch):
        buffer.extend(record.data for record in batch.records)
        return HOLD

    async def flush(shard_id) -> None:
        await trio.lowlevel.checkpoint()
        if not flushed:
            flushed.append("failed")
            raise OSError("busy")
        flushed.append((shard_id, tuple(buffer)))

    async with open_environment() as env:
        env.put(*range(3))
        parent = env.fake.open_shards(STREAM)[0]
        env.fake.split(STREAM, parent)
        async with env.consuming(make_handler(env, handle, flush=flush, on_error=FailurePolicy(attempts=2))):
            await trio.sleep(30)
        assert flushed == ["failed", (parent, (b"0", b"1", b"2"))]
        assert (await env.lease(parent)).is_finished


@pytest.mark.scenario("G64")
@pytest.mark.parametrize("records", [1, 3])
async def test_held_records_whose_flush_fails_are_not_skipped(autojump_clock, records):
    """Nobody knows which of them fail, and part of what the handler holds cannot be flushed: the shard is isolated."""
    flushes = 0

    async def hold(_batch):
        return HOLD

    async def flush(_shard_id) -> None:
        nonlocal flushes
        await trio.lowlevel.checkpoint()
        flushes += 1
        raise OSError("busy")

    async with open_environment() as env:
        env.put(*range(records))
        parent = env.fake.open_shards(STREAM)[0]
        env.fake.split(STREAM, parent)
        policy = FailurePolicy(attempts=2, then="skip", cooldown=1000)
        async with env.consuming(make_handler(env, hold, flush=flush, on_error=policy)) as consumer:
            await trio.sleep(30)
            assert [shard.shard_id for shard in consumer.status().isolated] == [parent]
        assert flushes == 2
        failed = env.reported(events.HandlerFailed)
        assert [(event.records, event.action) for event in failed] == [(records, "retry"), (records, "isolate")]
        assert env.reported(events.RecordSkipped) == []
        assert not (await env.lease(parent)).is_finished


@pytest.mark.scenario("G64")
async def test_a_shard_with_held_records_is_not_finished_without_flush(autojump_clock):
    async def hold(batch):
        return HOLD

    async with open_environment() as env:
        env.put(1)
        parent = env.fake.open_shards(STREAM)[0]
        env.fake.split(STREAM, parent)
        with pytest.raises(EfoError, match="flush"):
            async with env.consuming(make_handler(env, hold)):
                await trio.sleep(30)
        assert not (await env.lease(parent)).is_finished


# --- several keys at once ----------------------------------------------------------------------------------


@pytest.mark.parametrize("by_record", [False, True], ids=["by batch", "by record"])
async def test_several_keys_are_processed_at_once_and_each_in_order(autojump_clock, by_record):
    by_key, running, maximum = defaultdict(list), set(), 0

    async def handle(records) -> None:
        nonlocal maximum
        (key,) = {record.partition_key for record in records}
        assert key not in running
        running.add(key)
        maximum = max(maximum, len(running))
        await trio.sleep(rng.random())
        running.discard(key)
        by_key[key] += [int(record.data) for record in records]

    rng = random.Random(3)

    async def handle_record(record, _batch) -> None:
        await handle([record])

    arguments = {"record_handler": handle_record} if by_record else {"handler": handle}
    async with open_environment(event_records=15) as env:
        env.fake.put_many(STREAM, [(f"key-{n % 7}", b"%d" % n) for n in range(140)])
        async with env.consuming(make_handler(env, key_concurrency=4, **arguments)):
            await trio.sleep(120)
        assert by_key == {f"key-{k}": list(range(k, 140, 7)) for k in range(7)}
        assert maximum == 4
        last = env.fake.records(STREAM)[env.fake.open_shards(STREAM)[0]][-1]
        assert int((await env.lease()).checkpoint.sequence_number) >= int(last.sequence_number)
        assert sum(event.records for event in env.reported(events.RecordsProcessed)) == 140


@pytest.mark.parametrize("by_record", [False, True], ids=["by batch", "by record"])
async def test_records_without_a_key_are_each_processed_alone_and_at_most_so_many_at_once(autojump_clock, by_record):
    done, running, maximum = [], 0, 0

    async def handle(records) -> None:
        nonlocal running, maximum
        (record,) = records
        assert record.partition_key is None
        running += 1
        maximum = max(maximum, running)
        await trio.sleep(20 if record.data == b"0" else 1)
        running -= 1
        done.append(int(record.data))

    async def handle_record(record, _batch) -> None:
        await handle([record])

    arguments = {"record_handler": handle_record} if by_record else {"handler": handle}
    async with open_environment(distribution="AUTO", event_records=15) as env:
        env.put(*range(40), key=None)
        async with env.consuming(make_handler(env, key_concurrency=4, **arguments)):
            await trio.sleep(60)
        last = env.fake.records(STREAM)[env.fake.open_shards(STREAM)[0]][-1]
        assert (await env.lease()).checkpoint >= Checkpoint(last.sequence_number)
    assert sorted(done) == list(range(40))
    assert maximum == 4
    assert done.index(0) > 30  # the slow one delayed no other


@pytest.mark.parametrize("seed", range(12))
async def test_drains_at_random_times_lose_no_record_and_keep_each_key_in_order(autojump_clock, seed):
    rng, by_key = random.Random(seed), defaultdict(list)

    async def handle(record, _batch) -> None:
        if rng.random() < 0.05:
            raise OSError("sometimes")
        await trio.sleep(rng.random() * 2)
        by_key[record.partition_key].append(int(record.data))

    async with open_environment(event_records=rng.randint(1, 20)) as env:
        env.fake.put_many(STREAM, [(f"key-{n % 5}", b"%d" % n) for n in range(60)])
        shard_id = env.fake.open_shards(STREAM)[0]
        policy = FailurePolicy(attempts=20)
        for _ in range(4):
            async with env.consuming(make_handler(env, record_handler=handle, key_concurrency=3, on_error=policy)):
                await trio.sleep(rng.random() * 12)
            checkpoint = (await env.lease()).checkpoint
            done = {number for numbers in by_key.values() for number in numbers}
            for n, record in enumerate(env.fake.records(STREAM)[shard_id]):
                if not checkpoint.is_sentinel and int(record.sequence_number) <= int(checkpoint.sequence_number):
                    assert n in done  # the checkpoint never passes a record that is not done
        async with env.consuming(make_handler(env, record_handler=handle, key_concurrency=3, on_error=policy)):
            await trio.sleep(200)
        for k in range(5):
            numbers = by_key[f"key-{k}"]
            assert sorted(set(numbers)) == list(range(k, 60, 5))
            firsts = [number for i, number in enumerate(numbers) if number not in numbers[:i]]
            assert firsts == sorted(firsts)


async def test_a_slow_key_delays_only_itself_and_the_checkpoint(autojump_clock):
    done = []

    async def handle(record, _batch) -> None:
        await trio.sleep(10_000 if record.data == b"slow" else 0.01)
        done.append(record.partition_key)

    async with open_environment(event_records=4) as env:
        env.put("first", key="a")
        env.put("slow", key="b")
        for n in range(30):
            env.put(n, key=f"key-{n}")
        with trio.move_on_after(60) as scope:
            async with env.consuming(make_handler(env, record_handler=handle, key_concurrency=2)):
                await trio.sleep(50)
                checkpoint = (await env.lease()).checkpoint
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert len(done) == 31
        assert (
            checkpoint.sequence_number == env.fake.records(STREAM)[env.fake.open_shards(STREAM)[0]][0].sequence_number
        )


async def test_a_poison_record_delays_only_its_key(autojump_clock):
    async with open_environment() as env:
        handler = NumberHandler({10})
        for n in range(20):
            env.put(n, key=f"key-{n % 2}")
        policy = FailurePolicy(attempts=6, backoff=10, backoff_limit=10, then="skip")
        run = make_handler(env, record_handler=handler.record, key_concurrency=2, on_error=policy)
        async with env.consuming(run):
            await trio.sleep(3)
            assert [n for n in handler.done if n % 2] == list(range(1, 20, 2))
            assert [n for n in handler.done if n % 2 == 0] == [0, 2, 4, 6, 8]
            await trio.sleep(120)
        assert [n for n in handler.done if n % 2 == 0] == [0, 2, 4, 6, 8, 12, 14, 16, 18]


async def test_a_seek_drops_the_records_that_wait_for_their_keys(autojump_clock):
    done = []

    async def handle(record, _batch) -> None:
        await trio.sleep(5)
        done.append(int(record.data))

    async with open_environment() as env:
        for n in range(40):
            env.put(n, key=f"key-{n % 2}")
        async with env.consuming(make_handler(env, record_handler=handle, key_concurrency=2)) as consumer:
            await trio.sleep(13)
            shard_id = env.fake.open_shards(STREAM)[0]
            consumer.seek(shard_id, Checkpoint(env.fake.records(STREAM)[shard_id][35].sequence_number))
            await trio.sleep(60)
        # Two records of each key were done, and the two running calls finish.
        assert sorted(done) == [0, 1, 2, 3, 4, 5, 36, 37, 38, 39]
        assert (await env.lease()).checkpoint >= Checkpoint(env.fake.records(STREAM)[shard_id][39].sequence_number)


async def test_hold_is_rejected_with_several_keys_at_once(autojump_clock):
    async def hold(record, _batch):
        return HOLD

    async with open_environment() as env:
        env.put(1)
        with pytest.raises(ConfigurationError, match="key_concurrency=1"):
            async with env.consuming(make_handler(env, record_handler=hold, key_concurrency=2)):
                await trio.sleep(30)


async def test_the_records_that_wait_for_a_slow_key_have_a_memory_limit(autojump_clock):
    """Each waiting record keeps its whole batch in memory."""

    async def handle(record, _batch) -> None:
        await trio.sleep(10_000 if record.partition_key == "slow" else 0.0)

    async with open_environment(event_records=2) as env:
        for n in range(60):
            env.put("x" * 900_000, key=f"key-{n}")
            env.put(n, key="slow")
        with trio.move_on_after(60) as scope:
            async with env.consuming(make_handler(env, record_handler=handle, key_concurrency=2)):
                await trio.sleep(50)
                delivered = sum(event.records for event in env.reported(events.BatchDelivered)) // 2
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert delivered == MAX_PENDING_BYTES // 900_000 + 1


@pytest.mark.parametrize("returned", [True, 1, "done"])
async def test_a_return_value_other_than_none_and_hold_is_rejected(autojump_clock, returned):
    """Otherwise its records would silently be neither acked nor held."""

    async def handle(_batch):
        return returned

    async with open_environment() as env:
        env.put(1)
        with pytest.raises(HandlerError, match=f"the handler returned {type(returned).__name__}"):
            async with env.consuming(make_handler(env, handle)):
                await trio.sleep(30)


@pytest.mark.parametrize(
    ("errors", "then"), [((ValueError, KeyError), "skip"), ((ValueError, OSError), "isolate"), ((OSError,), "isolate")]
)
async def test_the_strictest_policy_decides_about_an_exception_group(autojump_clock, errors, then):
    policies = {"ValueError": "skip", "KeyError": "skip", "OSError": "isolate"}

    async def handle(_batch):
        raise ExceptionGroup("several", [error() for error in errors])

    async with open_environment() as env:
        env.put(1)
        handler = make_handler(
            env, handle, on_error=lambda error: FailurePolicy(then=policies[type(error).__name__], cooldown=1000)
        )
        async with env.consuming(handler):
            await trio.sleep(5)
        assert {failed.action for failed in env.reported(events.HandlerFailed)} == {then}


@pytest.mark.parametrize("returned", [False, object()])
async def test_a_dead_letter_sink_that_returns_something_stops_everything(autojump_clock, returned):
    async def store_letter(_letter: DeadLetter):
        return returned

    async with open_environment() as env:
        env.put(1)
        policy = FailurePolicy(then="dead_letter", dead_letter=store_letter)
        with pytest.raises(HandlerError, match=f"the dead-letter sink returned {type(returned).__name__}"):
            async with env.consuming(make_handler(env, NumberHandler([1]), on_error=policy)):
                await trio.sleep(30)
        assert not env.reported(events.RecordDeadLettered)


async def test_a_flush_function_that_returns_something_stops_everything(autojump_clock):
    async def hold(_batch):
        return HOLD

    async def flush(_shard_id):
        return 1

    async with open_environment() as env:
        env.put(1)
        with pytest.raises(HandlerError, match="the flush function returned int: expected None"):  # noqa: PT012
            async with env.consuming(make_handler(env, hold, flush=flush)) as consumer:
                await trio.sleep(5)
                consumer.drain()


async def test_a_policy_function_is_asked_once_per_failure(autojump_clock):
    asked = []

    async def store_letter(_letter: DeadLetter) -> None: ...

    def policy(error: Exception) -> FailurePolicy:
        asked.append(error)
        return FailurePolicy(then="dead_letter", dead_letter=store_letter)

    async with open_environment() as env:
        env.put(1)
        async with env.consuming(make_handler(env, NumberHandler([1]), on_error=policy)):
            await trio.sleep(5)
        assert len(asked) == 1
        assert len(env.reported(events.RecordDeadLettered)) == 1


# --- invalid arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either"),
        ({"handler": NumberHandler(), "record_handler": NumberHandler()}, "either"),
        ({"handler": NumberHandler(), "key_concurrency": 0}, "key_concurrency"),
        ({"handler": NumberHandler(), "on_error": "skip"}, "on_error"),
    ],
)
def test_invalid_arguments_are_rejected(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Handler(**options)


# --- cancellation ------------------------------------------------------------------------------------------


class CancelAt(trio.abc.Instrument):
    """Cancels a scope before the n-th step of all tasks."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self.left, self.scope = step, scope

    def before_task_step(self, task: object) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


@pytest.mark.parametrize("key_concurrency", [1, 3])
@pytest.mark.parametrize("step", range(85, 220, 5))
async def test_a_cancellation_at_any_step_loses_no_record_and_saves_no_wrong_checkpoint(
    autojump_clock, step, key_concurrency
):
    async def handle(record, _batch) -> None:
        await trio.lowlevel.checkpoint()
        if record.data == b"13" or rng.random() < 0.1:
            raise ValueError("poison" if record.data == b"13" else "sometimes")
        done[record.partition_key].append(int(record.data))

    async def store_letter(letter: DeadLetter) -> None:
        await trio.lowlevel.checkpoint()
        done[letter.record.partition_key].append(int(letter.record.data))

    def run(env):
        policy = FailurePolicy(attempts=12, backoff=0.01, then="dead_letter", dead_letter=store_letter)
        return make_handler(env, record_handler=handle, on_error=policy, key_concurrency=key_concurrency)

    rng, done = random.Random(step), defaultdict(list)
    async with open_environment(event_records=8) as env:
        env.fake.put_many(STREAM, [(f"key-{n % 4}", b"%d" % n) for n in range(24)])
        with trio.CancelScope() as scope:
            instrument = CancelAt(step, scope)
            trio.lowlevel.add_instrument(instrument)
            async with env.consuming(run(env)):
                await trio.sleep_forever()
        trio.lowlevel.remove_instrument(instrument)
        checkpoint = (await env.lease()).checkpoint if await env.store.list() else Checkpoint.TRIM_HORIZON
        if not checkpoint.is_sentinel:
            records = env.fake.records(STREAM)[env.fake.open_shards(STREAM)[0]]
            passed = {int(r.data) for r in records if int(r.sequence_number) <= int(checkpoint.sequence_number)}
            assert passed <= {number for numbers in done.values() for number in numbers}
        async with env.consuming(run(env)):
            await trio.sleep(60)
    for key in range(4):
        numbers = done[f"key-{key}"]
        firsts = [number for i, number in enumerate(numbers) if number not in numbers[:i]]
        assert firsts == list(range(key, 24, 4))
