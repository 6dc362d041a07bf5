"""Handlers that fail, hold and work on several keys at once, over FakeKinesis in virtual time (rule R11)."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from efo import HOLD, DeadLetter, FailurePolicy, Handler, IsolateShardError, events
from efo.consumer.handler import MAX_PENDING_BYTES
from efo.errors import ConfigurationError, EfoError, HandlerError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import TRIM_HORIZON, Checkpoint
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis, FakeSettings
from tests.workers import open_worker

STREAM = "orders"


class Given:
    """A fake with one stream, a lease store and what was observed."""

    def __init__(self, shards: int, settings: FakeSettings) -> None:
        self.fake = FakeKinesis(settings=settings)
        self.shards = shards
        self.store = MemoryLeaseStore()
        self.seen: list[events.Event] = []
        self.at: list[float] = []

    def observe(self, event: events.Event) -> None:
        self.seen.append(event)
        self.at.append(trio.current_time())

    def of(self, kind: type) -> list:
        return [event for event in self.seen if isinstance(event, kind)]

    def put(self, *data: object, key: str = "k") -> None:
        self.fake.put_many(STREAM, [(key, str(one).encode()) for one in data])

    @asynccontextmanager
    async def consuming(self, handling: Handler, *, worker_id: str = "worker", **changes: object):
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
            nursery.start_soon(consumer.run, handling)
            yield consumer
            consumer.drain()

    async def lease(self, shard_id: str | None = None):
        leases = {lease.key: lease for lease in await self.store.list()}
        return leases[shard_id or self.fake.open_shards(STREAM)[0]]


@asynccontextmanager
async def given(shards: int = 1, **settings: object):
    made = Given(shards, FakeSettings(**settings))
    async with made.fake as fake:
        fake.create_stream(STREAM, shards=shards)
        yield made


class Poison:
    """A handler that refuses some records, so often. `calls`: the numbers of each call; `done`: what it took."""

    def __init__(self, refused=(), times=10**9, error=ValueError):
        self.refused, self.times, self.error = set(refused), times, error
        self.calls: list[list[int]] = []
        self.done: list[int] = []

    async def __call__(self, batch) -> None:
        await self.numbers([int(record.data) for record in batch.records])

    async def record(self, record, _batch) -> None:
        await self.numbers([int(record.data)])

    async def numbers(self, numbers) -> None:
        await trio.lowlevel.checkpoint()
        self.calls.append(numbers)
        if self.refused & set(numbers) and self.times > 0:
            self.times -= 1
            raise self.error("a poison record, whose data must not be told")
        self.done += numbers


def handling(given, *handle, **options):
    return Handler(*handle, observer=given.observe, rng=random.Random(1), **options)


async def test_a_failing_batch_is_tried_again_and_nothing_is_repeated(autojump_clock):
    async with given() as g:
        g.put(*range(5))
        handler = Poison({3}, times=2)
        async with g.consuming(handling(g, handler, on_error=FailurePolicy(attempts=3))):
            await trio.sleep(20)
        assert handler.calls == [[0, 1, 2, 3, 4]] * 3
        assert handler.done == [0, 1, 2, 3, 4]
        failed = g.of(events.HandlerFailed)
        assert [(e.attempt, e.records, e.error_type, e.action) for e in failed] == [
            (1, 5, "ValueError", "retry"),
            (2, 5, "ValueError", "retry"),
        ]
        assert all("must not be told" not in str(event) for event in g.seen)


@pytest.mark.parametrize("by_record", [False, True])
async def test_a_poison_record_is_skipped_alone(autojump_clock, by_record):
    async with given() as g:
        g.put(*range(20))
        handler = Poison({7, 13})
        how = {"record_handler": handler.record} if by_record else {"handler": handler}
        async with g.consuming(handling(g, on_error=FailurePolicy(attempts=2, then="skip"), **how)):
            await trio.sleep(30)
        assert handler.done == [n for n in range(20) if n not in {7, 13}]
        records = g.fake.records(STREAM)[g.fake.open_shards(STREAM)[0]]
        skipped = [event.sequence_number for event in g.of(events.RecordSkipped)]
        assert skipped == [records[7].sequence_number, records[13].sequence_number]
        assert int((await g.lease()).checkpoint.sequence_number) >= int(records[19].sequence_number)
        alone = [numbers for numbers in handler.calls if numbers in ([7], [13])]
        assert alone == [[7], [7], [13], [13]]


async def test_a_poison_record_is_dead_lettered_and_then_done(autojump_clock):
    letters: list[DeadLetter] = []

    async def keep(letter: DeadLetter) -> None:
        await trio.sleep(1)
        letters.append(letter)

    async with given() as g:
        g.put(*range(6))
        handler = Poison({2})
        policy = FailurePolicy(attempts=2, then="dead_letter", dead_letter=keep)
        async with g.consuming(handling(g, record_handler=handler.record, on_error=policy)):
            await trio.sleep(20)
        assert handler.done == [0, 1, 3, 4, 5]
        (letter,) = letters
        assert (letter.stream, letter.record.data, letter.attempts) == (STREAM, b"2", 2)
        assert isinstance(letter.error, ValueError)
        (told,) = g.of(events.RecordDeadLettered)
        assert told.sequence_number == letter.record.sequence_number


async def test_a_dead_letter_that_cannot_be_kept_stops_the_shard_and_is_not_lost(autojump_clock):
    letters = []
    failures = [OSError("down"), OSError("down"), OSError("down")]

    async def keep(letter: DeadLetter) -> None:
        await trio.lowlevel.checkpoint()
        if failures:
            raise failures.pop()
        letters.append(int(letter.record.data))

    async with given() as g:
        g.put(*range(4))
        handler = Poison({2})
        policy = FailurePolicy(attempts=2, then="dead_letter", cooldown=30, dead_letter=keep)
        async with g.consuming(handling(g, record_handler=handler.record, on_error=policy)):
            await trio.sleep(120)
        assert (handler.done, letters) == ([0, 1, 3], [2])
        (parked,) = g.of(events.ShardIsolated)
        assert (parked.cooldown, parked.error_type) == (30, "isolate_shard")
        assert [e.action for e in g.of(events.HandlerFailed) if e.call == "dead_letter"] == [
            "retry",
            "isolate",
            "retry",
        ]


async def test_stop_shard_releases_the_lease_and_the_others_go_on(autojump_clock):
    async with given(shards=2) as g:
        bad, good = g.fake.open_shards(STREAM)
        keys = {
            shard: next(k for k in map(str, range(99)) if g.fake.put(STREAM, k, b"0")[0] == shard)
            for shard in (bad, good)
        }
        by_shard = defaultdict(list)

        async def handle(batch) -> None:
            await trio.lowlevel.checkpoint()
            if batch.shard_id == bad and trio.current_time() - start < 50:
                raise ValueError("not now")
            by_shard[batch.shard_id] += [record.data for record in batch.records]

        start = trio.current_time()
        policy = FailurePolicy(then="isolate", cooldown=40)
        async with g.consuming(handling(g, handle, on_error=policy)) as consumer:
            await trio.sleep(20)
            assert (await g.lease(bad)).owner is None
            assert (await g.lease(good)).owner == "worker"
            assert [shard.shard_id for shard in consumer.status().isolated] == [bad]
            g.fake.put(STREAM, keys[good], b"1")
            await trio.sleep(6)
            assert by_shard[good][-1] == b"1"
            assert bad not in by_shard
            await trio.sleep(94)
            assert consumer.status().isolated == ()
        assert by_shard[bad] == [record.data for record in g.fake.records(STREAM)[bad]]
        taken = [t for e, t in zip(g.seen, g.at, strict=True) if e == events.LeaseStoreCalled("take", bad, 0.0)]
        parked = [t for e, t in zip(g.seen, g.at, strict=True) if isinstance(e, events.ShardIsolated)]
        assert len(taken) == len(parked) + 1
        assert all(again - before >= 40 for before, again in zip(parked, taken[1:], strict=True))
        detail = g.of(events.ShardIsolated)[0].detail
        assert "ValueError" in detail
        assert "not now" not in detail


async def test_another_worker_may_take_what_this_one_parked(autojump_clock):
    async with given() as g:
        g.put(*range(3))
        handler = Poison()
        policy = FailurePolicy(then="isolate", cooldown=1000)
        async with g.consuming(handling(g, Poison({0}), on_error=policy), worker_id="a"):
            await trio.sleep(10)
            async with g.consuming(handling(g, handler), worker_id="b"):
                await trio.sleep(20)
                assert (await g.lease()).owner == "b"
        assert handler.done == [0, 1, 2]


async def test_a_handler_may_stop_its_shard_whatever_the_policy(autojump_clock):
    async def refuse(batch) -> None:
        raise IsolateShardError("the table is locked", cooldown=7)

    async with given() as g:
        g.put(1)
        async with g.consuming(handling(g, refuse, on_error=FailurePolicy(attempts=5, then="skip"))):
            await trio.sleep(5)
        (parked,) = g.of(events.ShardIsolated)
        assert (parked.cooldown, parked.detail) == (7, "the table is locked")
        assert g.of(events.HandlerFailed) == []


async def test_by_default_the_handlers_own_exception_ends_the_run_and_what_it_did_is_saved(autojump_clock):
    async with given() as g:
        g.put(*range(10))
        handler, rest = Poison({6}), Poison()
        with pytest.raises(ValueError, match="poison"):
            async with g.consuming(handling(g, record_handler=handler.record)):
                await trio.sleep_forever()
        async with g.consuming(handling(g, record_handler=rest.record)):
            await trio.sleep(10)
        assert handler.done + rest.done == list(range(10))  # in the middle of a batch, and nothing comes again


async def test_the_policy_may_depend_on_the_exception(autojump_clock):
    def policy(error: Exception) -> FailurePolicy:
        return FailurePolicy(attempts=10, then="stop") if isinstance(error, OSError) else FailurePolicy(then="skip")

    async with given() as g:
        g.put(*range(4))
        down, bad = Poison({0}, times=4, error=OSError), Poison({2})

        async def handle(record, _batch) -> None:
            await down.record(record, None)
            await bad.record(record, None)

        async with g.consuming(handling(g, record_handler=handle, on_error=policy)):
            await trio.sleep(60)
        assert bad.done == [0, 1, 3]
        assert [event.action for event in g.of(events.HandlerFailed)] == ["retry"] * 4 + ["skip"]


async def test_a_drain_does_not_wait_for_retries(autojump_clock):
    async with given() as g:
        g.put(*range(3))
        handler, rest = Poison({1}), Poison()
        policy = FailurePolicy(attempts=None, retry_for=10_000, backoff=1000, backoff_limit=1000)
        async with g.consuming(handling(g, record_handler=handler.record, on_error=policy)):
            await trio.sleep(10)
            began = trio.current_time()
        assert trio.current_time() - began < 1
        async with g.consuming(handling(g, record_handler=rest.record)):
            await trio.sleep(10)
        assert (handler.done, rest.done) == ([0], [1, 2])


async def test_a_seek_past_a_record_ends_its_retries(autojump_clock):
    async with given() as g:
        g.put(*range(5))
        handler = Poison({2})
        policy = FailurePolicy(attempts=None, retry_for=10_000)
        async with g.consuming(handling(g, record_handler=handler.record, on_error=policy)) as consumer:
            await trio.sleep(10)
            shard_id = g.fake.open_shards(STREAM)[0]
            poison = g.fake.records(STREAM)[shard_id][2]
            consumer.seek(shard_id, Checkpoint(poison.sequence_number))
            await trio.sleep(40)
        assert handler.done == [0, 1, 3, 4]


# --- hold --------------------------------------------------------------------------------------------------


async def test_what_is_held_does_not_move_the_checkpoint_until_a_later_one_is_done(autojump_clock):
    async def handle(record, _batch):
        await trio.lowlevel.checkpoint()
        return HOLD if record.data != b"9" else None

    async with given() as g:
        g.put(*range(3))
        async with g.consuming(handling(g, record_handler=handle)):
            await trio.sleep(60)  # many idle events pass
            assert (await g.lease()).checkpoint.is_sentinel
            g.put(3, 9)
            await trio.sleep(10)
            last = g.fake.records(STREAM)[g.fake.open_shards(STREAM)[0]][-1]
            assert int((await g.lease()).checkpoint.sequence_number) >= int(last.sequence_number)


async def test_what_is_held_at_a_stop_comes_again(autojump_clock):
    async def hold(batch):
        await trio.lowlevel.checkpoint()
        return HOLD

    async with given() as g:
        g.put(*range(3))
        async with g.consuming(handling(g, hold)):
            await trio.sleep(10)
        rest = Poison()
        async with g.consuming(handling(g, rest)):
            await trio.sleep(10)
        assert rest.done == [0, 1, 2]


async def test_a_record_skipped_behind_a_held_one_does_not_pass_it(autojump_clock):
    async def handle(record, _batch):
        await trio.lowlevel.checkpoint()
        if record.data == b"1":
            raise ValueError("poison")
        return HOLD

    async with given() as g:
        g.put(*range(2))
        async with g.consuming(handling(g, record_handler=handle, on_error=FailurePolicy(then="skip"))):
            await trio.sleep(30)
        assert len(g.of(events.RecordSkipped)) == 1
        assert (await g.lease()).checkpoint.is_sentinel


@pytest.mark.scenario("G64")
async def test_flush_makes_the_end_of_a_shard_possible(autojump_clock):
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

    async with given() as g:
        g.put(*range(3))
        parent = g.fake.open_shards(STREAM)[0]
        g.fake.split(STREAM, parent)
        async with g.consuming(handling(g, handle, flush=flush, on_error=FailurePolicy(attempts=2))):
            await trio.sleep(30)
        assert flushed == ["failed", (parent, (b"0", b"1", b"2"))]
        assert (await g.lease(parent)).is_finished


@pytest.mark.scenario("G64")
async def test_without_flush_the_end_of_a_shard_is_not_passed_over_what_is_held(autojump_clock):
    async def hold(batch):
        return HOLD

    async with given() as g:
        g.put(1)
        parent = g.fake.open_shards(STREAM)[0]
        g.fake.split(STREAM, parent)
        with pytest.raises(EfoError, match="flush"):
            async with g.consuming(handling(g, hold)):
                await trio.sleep(30)
        assert not (await g.lease(parent)).is_finished


# --- several keys at once ----------------------------------------------------------------------------------


@pytest.mark.parametrize("by_record", [False, True])
async def test_keys_are_handled_at_once_and_each_in_order(autojump_clock, by_record):
    by_key, running, most = defaultdict(list), set(), 0

    async def handle(records) -> None:
        nonlocal most
        (key,) = {record.partition_key for record in records}
        assert key not in running
        running.add(key)
        most = max(most, len(running))
        await trio.sleep(rng.random())
        running.discard(key)
        by_key[key] += [int(record.data) for record in records]

    rng = random.Random(3)

    async def handle_record(record, _batch) -> None:
        await handle([record])

    how = {"record_handler": handle_record} if by_record else {"handler": handle}
    async with given(event_records=15) as g:
        g.fake.put_many(STREAM, [(f"key-{n % 7}", b"%d" % n) for n in range(140)])
        async with g.consuming(handling(g, key_concurrency=4, **how)):
            await trio.sleep(120)
        assert by_key == {f"key-{k}": list(range(k, 140, 7)) for k in range(7)}
        assert most == 4
        last = g.fake.records(STREAM)[g.fake.open_shards(STREAM)[0]][-1]
        assert int((await g.lease()).checkpoint.sequence_number) >= int(last.sequence_number)
        assert sum(event.records for event in g.of(events.RecordsProcessed)) == 140


@pytest.mark.parametrize("seed", range(12))
async def test_whenever_it_stops_no_record_is_lost_and_no_key_goes_back(autojump_clock, seed):
    rng, by_key = random.Random(seed), defaultdict(list)

    async def handle(record, _batch) -> None:
        if rng.random() < 0.05:
            raise OSError("now and then")
        await trio.sleep(rng.random() * 2)
        by_key[record.partition_key].append(int(record.data))

    async with given(event_records=rng.randint(1, 20)) as g:
        g.fake.put_many(STREAM, [(f"key-{n % 5}", b"%d" % n) for n in range(60)])
        shard_id = g.fake.open_shards(STREAM)[0]
        policy = FailurePolicy(attempts=20)
        for _ in range(4):
            async with g.consuming(handling(g, record_handler=handle, key_concurrency=3, on_error=policy)):
                await trio.sleep(rng.random() * 12)
            checkpoint = (await g.lease()).checkpoint
            done = {number for numbers in by_key.values() for number in numbers}
            for n, record in enumerate(g.fake.records(STREAM)[shard_id]):
                if not checkpoint.is_sentinel and int(record.sequence_number) <= int(checkpoint.sequence_number):
                    assert n in done  # the checkpoint is never ahead of a record that is not done
        async with g.consuming(handling(g, record_handler=handle, key_concurrency=3, on_error=policy)):
            await trio.sleep(200)
        for k in range(5):
            numbers = by_key[f"key-{k}"]
            assert sorted(set(numbers)) == list(range(k, 60, 5))
            firsts = [number for i, number in enumerate(numbers) if number not in numbers[:i]]
            assert firsts == sorted(firsts)


async def test_a_slow_key_holds_up_nobody_but_itself_and_the_checkpoint(autojump_clock):
    done = []

    async def handle(record, _batch) -> None:
        await trio.sleep(10_000 if record.data == b"slow" else 0.01)
        done.append(record.partition_key)

    async with given(event_records=4) as g:
        g.put("first", key="a")
        g.put("slow", key="b")
        for n in range(30):
            g.put(n, key=f"key-{n}")
        with trio.move_on_after(60) as scope:
            async with g.consuming(handling(g, record_handler=handle, key_concurrency=2)):
                await trio.sleep(50)
                checkpoint = (await g.lease()).checkpoint
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert len(done) == 31
        assert checkpoint.sequence_number == g.fake.records(STREAM)[g.fake.open_shards(STREAM)[0]][0].sequence_number


async def test_a_poison_record_holds_up_its_key_alone(autojump_clock):
    async with given() as g:
        handler = Poison({10})
        for n in range(20):
            g.put(n, key=f"key-{n % 2}")
        policy = FailurePolicy(attempts=6, backoff=10, backoff_limit=10, then="skip")
        run = handling(g, record_handler=handler.record, key_concurrency=2, on_error=policy)
        async with g.consuming(run):
            await trio.sleep(3)
            assert [n for n in handler.done if n % 2] == list(range(1, 20, 2))
            assert [n for n in handler.done if n % 2 == 0] == [0, 2, 4, 6, 8]
            await trio.sleep(120)
        assert [n for n in handler.done if n % 2 == 0] == [0, 2, 4, 6, 8, 12, 14, 16, 18]


async def test_a_seek_drops_what_waits_for_its_key(autojump_clock):
    done = []

    async def handle(record, _batch) -> None:
        await trio.sleep(5)
        done.append(int(record.data))

    async with given() as g:
        for n in range(40):
            g.put(n, key=f"key-{n % 2}")
        async with g.consuming(handling(g, record_handler=handle, key_concurrency=2)) as consumer:
            await trio.sleep(13)
            shard_id = g.fake.open_shards(STREAM)[0]
            consumer.seek(shard_id, Checkpoint(g.fake.records(STREAM)[shard_id][35].sequence_number))
            await trio.sleep(60)
        # Two of each key were done, and the two that were running finish.
        assert sorted(done) == [0, 1, 2, 3, 4, 5, 36, 37, 38, 39]
        assert (await g.lease()).checkpoint >= Checkpoint(g.fake.records(STREAM)[shard_id][39].sequence_number)


async def test_hold_and_several_keys_do_not_go_together(autojump_clock):
    async def hold(record, _batch):
        return HOLD

    async with given() as g:
        g.put(1)
        with pytest.raises(ConfigurationError, match="key_concurrency=1"):
            async with g.consuming(handling(g, record_handler=hold, key_concurrency=2)):
                await trio.sleep(30)


async def test_a_slow_key_holds_no_more_in_memory_than_it_may(autojump_clock):
    """Each of its records keeps the event that it came with."""

    async def handle(record, _batch) -> None:
        await trio.sleep(10_000 if record.partition_key == "slow" else 0.0)

    async with given(event_records=2) as g:
        for n in range(60):
            g.put("x" * 900_000, key=f"key-{n}")
            g.put(n, key="slow")
        with trio.move_on_after(60) as scope:
            async with g.consuming(handling(g, record_handler=handle, key_concurrency=2)):
                await trio.sleep(50)
                handed_over = sum(event.records for event in g.of(events.BatchDelivered)) // 2
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert handed_over == MAX_PENDING_BYTES // 900_000 + 1


@pytest.mark.parametrize("returned", [True, 1, "done"])
async def test_a_handler_returns_nothing_or_hold(autojump_clock, returned):
    """Else its records would be neither acked nor held, without a word."""

    async def handle(_batch):
        return returned

    async with given() as g:
        g.put(1)
        with pytest.raises(HandlerError, match=f"the handler returned {type(returned).__name__}"):
            async with g.consuming(handling(g, handle)):
                await trio.sleep(30)


# --- what makes no sense -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either"),
        ({"handler": Poison(), "record_handler": Poison()}, "either"),
        ({"handler": Poison(), "key_concurrency": 0}, "key_concurrency"),
        ({"handler": Poison(), "on_error": "skip"}, "on_error"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Handler(**options)


# --- cancelled anywhere ------------------------------------------------------------------------------------


class CancelAt(trio.abc.Instrument):
    """Cancels a scope just before the n-th step of any task."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self.left, self.scope = step, scope

    def before_task_step(self, task: object) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


@pytest.mark.parametrize("key_concurrency", [1, 3])
@pytest.mark.parametrize("step", range(85, 220, 5))
async def test_cancelled_at_any_step_nothing_is_lost_and_no_checkpoint_is_ahead(autojump_clock, step, key_concurrency):
    async def handle(record, _batch) -> None:
        await trio.lowlevel.checkpoint()
        if record.data == b"13" or rng.random() < 0.1:
            raise ValueError("poison" if record.data == b"13" else "now and then")
        done[record.partition_key].append(int(record.data))

    async def keep(letter: DeadLetter) -> None:
        await trio.lowlevel.checkpoint()
        done[letter.record.partition_key].append(int(letter.record.data))

    def run(g):
        policy = FailurePolicy(attempts=12, backoff=0.01, then="dead_letter", dead_letter=keep)
        return handling(g, record_handler=handle, on_error=policy, key_concurrency=key_concurrency)

    rng, done = random.Random(step), defaultdict(list)
    async with given(event_records=8) as g:
        g.fake.put_many(STREAM, [(f"key-{n % 4}", b"%d" % n) for n in range(24)])
        with trio.CancelScope() as scope:
            instrument = CancelAt(step, scope)
            trio.lowlevel.add_instrument(instrument)
            async with g.consuming(run(g)):
                await trio.sleep_forever()
        trio.lowlevel.remove_instrument(instrument)
        checkpoint = (await g.lease()).checkpoint if await g.store.list() else TRIM_HORIZON
        if not checkpoint.is_sentinel:
            records = g.fake.records(STREAM)[g.fake.open_shards(STREAM)[0]]
            passed = {int(r.data) for r in records if int(r.sequence_number) <= int(checkpoint.sequence_number)}
            assert passed <= {number for numbers in done.values() for number in numbers}
        async with g.consuming(run(g)):
            await trio.sleep(60)
    for key in range(4):
        numbers = done[f"key-{key}"]
        firsts = [number for i, number in enumerate(numbers) if number not in numbers[:i]]
        assert firsts == list(range(key, 24, 4))
