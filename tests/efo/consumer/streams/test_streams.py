"""Many streams in one consumer, over FakeKinesis in virtual time: added, removed, isolated, and balanced as one."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

import efo
from efo.testing import FakeKinesis, FakeSettings


@asynccontextmanager
async def fake_with(*streams: str, shards: int = 1, settings: FakeSettings | None = None) -> AsyncIterator[FakeKinesis]:
    async with FakeKinesis(settings=settings) as fake:
        for stream in streams:
            fake.create_stream(stream, shards=shards)
        yield fake


class Stores(defaultdict[str, efo.leases.MemoryLeaseStore]):
    """The lease stores of an application, by stream: what a server keeps for all its workers."""

    def __init__(self) -> None:
        super().__init__(efo.leases.MemoryLeaseStore)

    def __call__(self, stream: str) -> efo.leases.MemoryLeaseStore:
        return self[stream]


class Application:
    """A worker of the application `app` that keeps what it read, by stream and key."""

    def __init__(self, fake: FakeKinesis, stores: Stores | None = None) -> None:
        self.fake = fake
        self.stores = Stores() if stores is None else stores
        self.read: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.events: dict[str, list[efo.events.Event]] = defaultdict(list)
        self._changed = trio.Event()

    async def handle(self, batch: efo.Batch) -> None:
        for record in batch:
            self.read[batch.stream, record.partition_key].append(int(record.data))
        self._changed.set()
        self._changed = trio.Event()

    async def reached(self, count: int) -> None:
        while sum(map(len, self.read.values())) < count:
            await self._changed.wait()

    async def run(
        self,
        streams: Iterable[object],
        *,
        worker_id: str = "worker",
        task_status: trio.TaskStatus[efo.MultiStreamConsumer] = trio.TASK_STATUS_IGNORED,
        **options: object,
    ) -> None:
        def observe(stream: str) -> efo.events.Observer:
            return self.events[stream].append

        clients = streams if callable(streams) else [self.client(stream) for stream in streams]
        options = {"leases": self.stores, "observer": observe, **options}
        await efo.consume_streams(
            clients, self.handle, application="app", worker_id=worker_id, task_status=task_status, **options
        )

    def client(self, stream: object) -> object:
        return self.fake.kinesis(stream) if isinstance(stream, str) else stream

    def put(self, stream: str, numbers: Iterable[int], key: str = "key") -> None:
        self.fake.put_many(stream, [(key, b"%d" % number) for number in numbers])

    def subscribed(self, stream: str) -> int:
        return sum(type(event) is efo.events.SubscribeAttempted for event in self.events[stream])


async def test_a_handler_gets_the_records_of_each_stream_in_order(autojump_clock):
    async with fake_with("orders", "clicks") as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        app.put("orders", range(100))
        app.put("clicks", range(500, 520))
        consumer = await nursery.start(app.run, ["orders", "clicks"])
        await trio.sleep(10)
        assert consumer.streams == ("orders", "clicks")
        consumer.drain()
    assert app.read == {("orders", "key"): [*range(100)], ("clicks", "key"): [*range(500, 520)]}


async def test_a_stream_is_added_and_removed_and_the_others_are_not_touched(autojump_clock):
    async with fake_with("orders", "clicks", "views") as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        consumer = await nursery.start(app.run, ["orders", "clicks"])
        await trio.sleep(10)
        before = app.subscribed("orders")
        app.put("views", range(5))
        consumer.add(fake.kinesis("views"))
        consumer.remove("clicks")
        await trio.sleep(10)
        app.put("clicks", [1])
        app.put("views", range(5, 8))
        app.put("orders", [7])
        await trio.sleep(10)
        assert consumer.streams == ("orders", "views")
        assert list(consumer.status()) == ["orders", "views"]
        assert app.subscribed("orders") == before  # its subscription went on
        lease = (await app.stores["clicks"].list())[0]
        assert lease.owner is None
        consumer.drain()
    assert app.read == {("orders", "key"): [7], ("views", "key"): [*range(8)]}


async def test_a_stream_that_is_added_again_continues_after_its_checkpoint(autojump_clock):
    async with fake_with("orders") as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        app.put("orders", range(10))
        consumer = await nursery.start(app.run, ["orders"])
        await trio.sleep(10)
        consumer.remove("orders")
        consumer.add(fake.kinesis("orders"))  # at once: it is opened again when it is drained
        assert consumer.status()["orders"].state == "leaving"
        app.put("orders", range(10, 20))
        await trio.sleep(20)
        assert consumer.status()["orders"].state == "reading"
        consumer.drain()
    assert app.read["orders", "key"] == [*range(20)]


async def test_a_stream_whose_configuration_changes_is_opened_again_and_the_same_one_is_not(autojump_clock):
    async with fake_with("orders", "clicks") as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        orders, clicks = fake.kinesis("orders"), fake.kinesis("clicks")
        consumer = await nursery.start(app.run, [orders, clicks])
        await trio.sleep(10)
        one, two = consumer.consumer("orders"), consumer.consumer("clicks")
        settings = efo.ConsumerSettings(consumer_name="other")
        consumer.update([orders, efo.StreamConfig(stream=clicks, settings=settings)])
        await trio.sleep(20)
        assert consumer.consumer("orders") is one
        assert consumer.consumer("clicks") is not two
        assert any(event.name == "other" for event in app.events["clicks"] if type(event) is efo.events.ConsumerReady)
        consumer.drain()


async def test_a_tracker_is_asked_again_and_again(autojump_clock):
    async with fake_with("orders", "clicks") as fake, trio.open_nursery() as nursery:
        app, names = Application(fake), ["orders"]

        async def tracker() -> Iterable[efo.StreamLike]:
            await trio.lowlevel.checkpoint()
            return [fake.kinesis(name) for name in names]

        app.put("clicks", range(3))
        consumer = await nursery.start(partial(app.run, refresh_interval=30), tracker)
        await trio.sleep(10)
        assert consumer.streams == ("orders",)
        names[:] = ["clicks"]
        await trio.sleep(25)
        assert consumer.streams == ("clicks",)
        await trio.sleep(10)
        assert app.read["clicks", "key"] == [0, 1, 2]
        consumer.drain()


async def test_a_tracker_that_raises_stops_everything(autojump_clock):
    async def tracker() -> Iterable[efo.StreamLike]:
        raise OSError("no catalog")

    async with fake_with() as fake:
        with pytest.raises(OSError, match="no catalog"):
            await Application(fake).run(tracker)


async def test_a_drain_does_not_wait_for_a_tracker_that_hangs(autojump_clock):
    async def tracker() -> Iterable[efo.StreamLike]:
        await trio.sleep_forever()
        raise AssertionError("a sleep for ever does not end")

    async with fake_with() as fake:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                consumer = await nursery.start(Application(fake).run, tracker)
                await trio.sleep(1)
                consumer.drain()


async def test_a_stream_that_does_not_exist_stops_everything_and_the_progress_of_the_others_is_saved(autojump_clock):
    async with fake_with("orders") as fake:
        app = Application(fake)
        app.put("orders", range(10))
        with pytest.RaisesGroup(efo.errors.ResourceNotFoundError):
            async with trio.open_nursery() as nursery:
                consumer = await nursery.start(app.run, ["orders"])
                await trio.sleep(3)
                consumer.add(fake.kinesis("gone"))
        (lease,) = await app.stores["orders"].list()
        assert lease.checkpoint.sequence_number == fake.records("orders")[lease.key][-1].sequence_number


async def test_isolated_a_stream_that_does_not_exist_is_tried_again_and_the_others_go_on(autojump_clock):
    async with fake_with("orders") as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        consumer = await nursery.start(partial(app.run, on_service_error="isolate"), ["orders", "late"])
        await trio.sleep(10)
        app.put("orders", range(3))
        status = consumer.status()["late"]
        assert status.state == "isolated"
        assert isinstance(status.error, efo.errors.ResourceNotFoundError)
        assert status.consumer is None
        (isolated,) = [event for event in app.events["late"] if isinstance(event, efo.events.StreamIsolated)]
        assert (isolated.stream, isolated.cooldown, isolated.error_type) == ("late", 60, status.error.error_type)
        with pytest.raises(efo.errors.ConfigurationError, match="'late' is not read now"):
            consumer.consumer("late")
        fake.create_stream("late")
        app.put("late", range(4))
        await trio.sleep(65)
        assert consumer.status()["late"].state == "reading"
        assert consumer.status()["late"].error is None
        consumer.drain()
    assert app.read == {("orders", "key"): [0, 1, 2], ("late", "key"): [0, 1, 2, 3]}


def given(fake: FakeKinesis, stream: str, arn: str) -> efo.StreamConfig:
    return efo.StreamConfig(stream=fake.kinesis(stream), consumer_arn=arn)


async def test_isolated_a_given_consumer_that_does_not_exist_is_an_error_of_its_stream_alone(autojump_clock):
    async with fake_with("orders", "theirs") as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        arn = fake.register("theirs", "ours").arn
        wrong = given(fake, "theirs", f"{arn.rpartition(':')[0]}:1")
        consumer = await nursery.start(partial(app.run, on_service_error="isolate"), ["orders", wrong])
        await trio.sleep(10)
        app.put("orders", range(3))
        status = consumer.status()["theirs"]
        assert (status.state, type(status.error)) == ("isolated", efo.errors.ConsumerNotFoundError)
        (isolated,) = [event for event in app.events["theirs"] if isinstance(event, efo.events.StreamIsolated)]
        assert isolated.error_type == "consumer_not_found"
        assert "ask its owner for the ARN of the present one" in isolated.detail
        app.put("theirs", range(2))
        consumer.add(given(fake, "theirs", arn))  # corrected, it is opened at once
        await trio.sleep(10)
        consumer.drain()
    assert app.read == {("orders", "key"): [0, 1, 2], ("theirs", "key"): [0, 1]}


async def test_a_given_consumer_that_disappears_isolates_its_stream_alone(autojump_clock):
    async with fake_with("orders", "theirs") as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        arn = fake.register("theirs", "ours").arn
        streams = ["orders", given(fake, "theirs", arn)]
        consumer = await nursery.start(partial(app.run, on_service_error="isolate"), streams)
        await trio.sleep(10)
        fake.deregister(arn)
        await trio.sleep(40)
        app.put("orders", range(3))
        assert isinstance(consumer.status()["theirs"].error, efo.errors.ConsumerNotFoundError)
        await trio.sleep(5)
        consumer.drain()
    assert app.read == {("orders", "key"): [0, 1, 2]}


async def test_by_default_a_given_consumer_that_does_not_exist_stops_everything(autojump_clock):
    async with fake_with("orders", "theirs") as fake:
        arn = fake.register("theirs", "ours").arn
        wrong = given(fake, "theirs", f"{arn.rpartition(':')[0]}:1")
        with pytest.raises(efo.errors.ConsumerNotFoundError, match="does not exist, and efo does not register one"):
            await Application(fake).run(["orders", wrong])


@pytest.mark.parametrize("read_mode", ["fanout", "polling", "auto"])
async def test_isolated_a_stream_that_is_deleted_is_reported_and_the_others_go_on(autojump_clock, read_mode):
    async with fake_with("orders", "clicks", shards=3) as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        settings = efo.ConsumerSettings(read_mode=read_mode)
        run = partial(app.run, on_service_error="isolate", settings=settings)
        consumer = await nursery.start(run, ["orders", "clicks"])
        app.put("orders", range(3))
        await trio.sleep(10)
        fake.delete_stream("orders")
        await trio.sleep(30)
        app.put("clicks", range(3))
        status = consumer.status()
        assert (status["orders"].state, status["clicks"].state) == ("isolated", "reading")
        assert isinstance(status["orders"].error, efo.errors.ResourceNotFoundError)
        assert status["orders"].consumer is None
        await trio.sleep(120)
        isolated = [event for event in app.events["orders"] if isinstance(event, efo.events.StreamIsolated)]
        assert {event.error_type for event in isolated} == {"ResourceNotFoundException"}
        assert len(isolated) == 3  # once for each try, not for each shard
        assert [event for event in app.events["orders"] if isinstance(event, efo.events.ShardIsolated)] == []
        consumer.remove("orders")
        await trio.sleep(1)
        assert list(consumer.status()) == ["clicks"]
        consumer.drain()
    assert app.read == {("orders", "key"): [0, 1, 2], ("clicks", "key"): [0, 1, 2]}


def recreate(fake: FakeKinesis, stream: str) -> None:
    fake.delete_stream(stream)
    fake.create_stream(stream)


@pytest.mark.parametrize("read_mode", ["fanout", "polling", "auto"])
async def test_isolated_a_stream_that_was_created_again_has_two_events_until_its_leases_are_deleted(
    autojump_clock, read_mode
):
    async with fake_with("orders", "clicks", settings=FakeSettings(stream_deleting=0.0)) as fake:
        app = Application(fake)
        settings = efo.ConsumerSettings(read_mode=read_mode, poll_seconds=5.0)  # an hour has many calls
        run = partial(app.run, on_service_error="isolate", settings=settings)
        async with trio.open_nursery() as nursery:
            consumer = await nursery.start(run, ["orders", "clicks"])
            await trio.sleep(10)
            consumer.drain()
        await trio.sleep(10)
        recreate(fake, "orders")
        app.put("orders", range(5))
        app.events.clear()
        async with trio.open_nursery() as nursery:
            consumer = await nursery.start(run, ["orders", "clicks"])
            await trio.sleep(60)
            app.put("clicks", range(3))
            await trio.sleep(3600)
            status = consumer.status()
            assert (status["orders"].state, status["clicks"].state) == ("isolated", "reading")
            assert isinstance(status["orders"].error, efo.errors.StreamRecreatedError)
            (isolated,) = app.events["orders"][-1:]
            assert isinstance(isolated, efo.events.StreamIsolated)
            assert isolated.error_type == "stream_recreated"
            assert "efo leases reset --all" in isolated.detail
            tried = len([event for event in app.events["orders"] if isinstance(event, efo.events.WorkerStarted)])
            assert tried == 1  # all tries after it are held back
            for lease in await app.stores["orders"].list():
                await app.stores["orders"].delete(lease.key)
            await trio.sleep(660)
            assert app.read == {("orders", "key"): [*range(5)], ("clicks", "key"): [*range(3)]}
            assert consumer.status()["orders"].state == "reading"
            assert consumer.status()["orders"].error is None
            (restored,) = [event for event in app.events["orders"] if isinstance(event, efo.events.StreamRestored)]
            assert restored.error_type == "stream_recreated"
            assert 3600 < restored.duration < 4400
            assert 8 <= restored.attempts <= 12  # 60, 120, 240, 480, then 600 s apart
            names = [type(event).__name__ for event in app.events["orders"]]
            assert names.index("StreamIsolated") < names.index("StreamRestored")
            consumer.drain()


async def test_isolated_the_pauses_of_a_stream_that_was_created_again_begin_anew_after_another_error(autojump_clock):
    async with fake_with("orders", "clicks", settings=FakeSettings(stream_deleting=0.0)) as fake:
        app = Application(fake)
        run = partial(app.run, on_service_error="isolate")
        async with trio.open_nursery() as nursery:
            consumer = await nursery.start(run, ["orders", "clicks"])
            await trio.sleep(10)
            consumer.drain()
        fake.delete_stream("orders")
        app.events.clear()
        async with trio.open_nursery() as nursery:
            consumer = await nursery.start(run, ["orders", "clicks"])
            await trio.sleep(10)
            fake.create_stream("orders")
            await trio.sleep(120)
            consumer.drain()
    isolated = [event for event in app.events["orders"] if isinstance(event, efo.events.StreamIsolated)]
    assert [(event.error_type, event.cooldown) for event in isolated] == [
        ("ResourceNotFoundException", 60),
        ("stream_recreated", 60),
    ]


async def test_by_default_a_stream_that_was_created_again_stops_everything(autojump_clock):
    async with fake_with("orders", "clicks", settings=FakeSettings(stream_deleting=0.0)) as fake:
        app = Application(fake)
        async with trio.open_nursery() as nursery:
            consumer = await nursery.start(app.run, ["orders", "clicks"])
            await trio.sleep(10)
            consumer.drain()
        recreate(fake, "orders")
        with pytest.raises(efo.errors.StreamRecreatedError, match="'orders' was deleted and created again"):
            await app.run(["orders", "clicks"])


async def test_by_default_a_stream_that_is_deleted_stops_everything(autojump_clock):
    async with fake_with("orders", "clicks") as fake, trio.open_nursery() as nursery:

        async def delete() -> None:
            await trio.sleep(10)
            fake.delete_stream("orders")

        nursery.start_soon(delete)
        with pytest.raises(efo.errors.ResourceNotFoundError, match="orders"):
            await Application(fake).run(["orders", "clicks"])


async def test_an_error_of_the_handler_stops_all_streams_even_if_service_errors_isolate(autojump_clock):
    async def fail(_batch: efo.Batch) -> None:
        raise ArithmeticError("a bug")

    async with fake_with("orders", "clicks") as fake:
        fake.put("clicks", "key", b"1")
        with pytest.raises(ArithmeticError):
            await efo.consume_streams(
                [fake.kinesis("orders"), fake.kinesis("clicks")],
                fail,
                application="app",
                leases=Stores(),
                on_service_error="isolate",
            )


async def test_a_stream_that_is_removed_while_it_opens_is_given_up_at_once(autojump_clock):
    async with fake_with("slow", settings=FakeSettings(consumer_creating=200)) as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        consumer = await nursery.start(app.run, ["slow"])
        await trio.sleep(10)
        assert consumer.status()["slow"].state == "opening"
        consumer.remove("slow")
        await trio.sleep(1)
        assert consumer.status() == {}
        consumer.drain()


async def test_all_streams_share_one_subscribe_budget(autojump_clock):
    names = [f"s{n}" for n in range(6)]
    async with fake_with(*names, shards=5) as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        at: list[float] = []

        def observe(_stream: str) -> efo.events.Observer:
            def note(event: efo.events.Event) -> None:
                if type(event) is efo.events.SubscribeAttempted:
                    at.append(trio.current_time())

            return note

        settings = efo.ConsumerSettings(subscribes_per_second=3)
        consumer = await nursery.start(partial(app.run, settings=settings, observer=observe), names)
        await trio.sleep(30)
        consumer.drain()
    assert len(at) == 30
    assert all(later - earlier >= 0.999 for earlier, later in zip(at, at[3:], strict=False))


async def test_of_many_streams_with_one_shard_each_worker_reads_a_fair_share(autojump_clock):
    """Balanced stream by stream, the first worker would keep every lease."""
    names = [f"s{n:02}" for n in range(20)]
    async with fake_with(*names) as fake, trio.open_nursery() as nursery:
        stores = Stores()
        first, second = Application(fake, stores), Application(fake, stores)
        one = await nursery.start(partial(first.run, worker_id="a"), names)
        await trio.sleep(15)
        two = await nursery.start(partial(second.run, worker_id="b"), names)
        await trio.sleep(9)  # less than the fail-over time: a move in one stream makes the others look again
        owners = Counter([lease.owner for name in names for lease in await stores[name].list()])
        assert owners == {"a": 10, "b": 10}
        one.drain()
        two.drain()


async def test_the_most_leases_of_a_worker_are_those_of_all_its_streams(autojump_clock):
    names = ["a", "b", "c"]
    async with fake_with(*names, shards=4) as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        consumer = await nursery.start(partial(app.run, settings=efo.ConsumerSettings(max_leases=5)), names)
        await trio.sleep(60)
        owned = [lease for name in names for lease in await app.stores[name].list() if lease.owner]
        assert len(owned) == 5
        consumer.drain()


async def test_the_leases_of_a_stream_that_was_removed_count_no_more(autojump_clock):
    async with fake_with("a", "b", shards=4) as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        consumer = await nursery.start(partial(app.run, settings=efo.ConsumerSettings(max_leases=4)), ["a", "b"])
        await trio.sleep(20)
        consumer.remove("a")
        await trio.sleep(20)
        assert [bool(lease.owner) for lease in await app.stores["a"].list()] == [False] * 4
        assert [bool(lease.owner) for lease in await app.stores["b"].list()] == [True] * 4
        consumer.drain()


async def test_the_leases_that_a_stream_releases_while_it_is_drained_count_no_more(autojump_clock):
    """A handler may take long for one shard: the others of its stream are released at once, which makes room."""
    blocked = trio.Event()

    class Slow(Application):
        async def handle(self, batch: efo.Batch) -> None:
            is_first = batch.stream == "a" and not self.read
            await super().handle(batch)
            if is_first:
                await blocked.wait()

    async def owned(app: Application) -> dict[str, int]:
        return {name: sum(lease.owner is not None for lease in await app.stores[name].list()) for name in ("a", "b")}

    async with fake_with("a", "b", shards=4) as fake, trio.open_nursery() as nursery:
        app = Slow(fake)
        consumer = await nursery.start(partial(app.run, settings=efo.ConsumerSettings(max_leases=6)), ["a"])
        await trio.sleep(20)
        consumer.add(fake.kinesis("b"))
        await trio.sleep(20)
        assert await owned(app) == {"a": 4, "b": 2}
        for number in range(60):
            fake.put("a", f"key-{number}", b"1")
        await trio.sleep(5)
        consumer.remove("a")
        await trio.sleep(15)
        assert consumer.status()["a"].state == "leaving"
        assert await owned(app) == {"a": 1, "b": 4}
        blocked.set()
        await trio.sleep(5)
        assert await owned(app) == {"a": 0, "b": 4}
        consumer.drain()


async def test_nothing_is_added_after_a_drain(autojump_clock):
    async with fake_with("orders") as fake:
        async with trio.open_nursery() as nursery:
            consumer = await nursery.start(Application(fake).run, ["orders"])
            await trio.sleep(10)
            consumer.drain()
            for call in (consumer.add, lambda stream: consumer.update([stream])):
                with pytest.raises(efo.errors.ConfigurationError, match=r"has no effect after drain.*open another one"):
                    call(fake.kinesis("orders"))
        assert consumer.status() == {}
        with pytest.raises(efo.errors.ConfigurationError, match="add has no effect after drain"):
            consumer.add(fake.kinesis("orders"))
        assert consumer.streams == ()


async def test_a_tracker_that_returns_during_a_drain_changes_nothing(autojump_clock):
    async with fake_with("orders") as fake, trio.open_nursery() as nursery:
        blocked = trio.Event()

        class Slow(Application):
            async def handle(self, _batch: efo.Batch) -> None:
                await blocked.wait()

        async def tracker() -> list[efo.StreamLike]:
            await trio.lowlevel.checkpoint()
            return [fake.kinesis("orders")]

        consumer = await nursery.start(partial(Slow(fake).run, refresh_interval=3), tracker)
        fake.put("orders", "key", b"1")
        await trio.sleep(10)
        consumer.drain()
        await trio.sleep(10)
        blocked.set()


def balanced(stream: object, **settings: object) -> efo.StreamConfig:
    return efo.StreamConfig(stream=stream, settings=efo.ConsumerSettings(**settings))


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ({"balance": "throughput"}, {}, "balance of the stream 'a' is 'throughput', and of 'b' 'count'"),
        (
            {},
            {"assignment": efo.leases.weighted_assignment({"w": 2})},
            "assignment of the stream 'a' is balanced_assignment, and of 'b' <_Weighted>",
        ),
    ],
)
async def test_streams_whose_leases_would_be_balanced_in_two_ways_are_refused(autojump_clock, one, other, message):
    async with fake_with("a", "b") as fake:
        first, second = balanced(fake.kinesis("a"), **one), balanced(fake.kinesis("b"), **other)
        app = Application(fake)
        with pytest.raises(efo.errors.ConfigurationError, match=f"{message}.*balanced as one"):
            await app.run([first, second])
        async with trio.open_nursery() as nursery:
            consumer = await nursery.start(app.run, [first])
            for call in (consumer.add, lambda stream: consumer.update([first, stream])):
                with pytest.raises(efo.errors.ConfigurationError, match=message):
                    call(second)
            await trio.sleep(10)
            assert list(consumer.status()) == ["a"]
            consumer.update([second])  # instead of the other one
            await trio.sleep(20)
            assert consumer.streams == ("b",)
            consumer.drain()


async def test_streams_whose_own_settings_balance_alike_are_read(autojump_clock):
    async with fake_with("a", "b", "c") as fake, trio.open_nursery() as nursery:
        weighted = [
            balanced(fake.kinesis(name), assignment=efo.leases.weighted_assignment({"w": 2})) for name in ("a", "b")
        ]
        common = efo.ConsumerSettings(assignment=efo.leases.weighted_assignment({"w": 2}))
        consumer = await nursery.start(partial(Application(fake).run, settings=common), [*weighted, "c"])
        await trio.sleep(10)
        assert {status.state for status in consumer.status().values()} == {"reading"}
        consumer.drain()


async def test_a_stream_of_another_account_is_read_by_the_arn_of_its_consumer(autojump_clock):
    async with fake_with("orders") as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        arn = fake.register("orders", "theirs").arn
        app.put("orders", range(3))
        config = efo.StreamConfig(stream=fake.kinesis("orders"), consumer_arn=arn)
        consumer = await nursery.start(app.run, [config])
        await trio.sleep(10)
        consumer.drain()
    assert app.read["orders", "key"] == [0, 1, 2]
    (ready,) = [event for event in app.events["orders"] if type(event) is efo.events.ConsumerReady]
    assert (ready.arn, ready.registered) == (arn, False)


async def test_each_stream_may_start_elsewhere(autojump_clock):
    async with fake_with("old", "new") as fake, trio.open_nursery() as nursery:
        app = Application(fake)
        app.put("old", range(3))
        app.put("new", range(3))
        await trio.sleep(5)
        latest = efo.StreamConfig(stream=fake.kinesis("new"), initial_position=efo.LATEST)
        consumer = await nursery.start(app.run, ["old", latest])
        await trio.sleep(10)
        app.put("new", [9])
        await trio.sleep(10)
        consumer.drain()
    assert app.read == {("old", "key"): [0, 1, 2], ("new", "key"): [9]}


async def test_one_sqlite_file_keeps_the_leases_of_all_streams_apart(tmp_path):  # in real time: SQLite runs in threads
    async with fake_with("orders", "clicks") as fake:
        for count in (10, 20):
            async with trio.open_nursery() as nursery:
                app = Application(fake)
                app.put("orders", range(count - 10, count))
                app.put("clicks", range(count - 10, count))
                run = partial(app.run, leases=tmp_path / "leases.sqlite")
                consumer = await nursery.start(run, ["orders", "clicks"])
                with trio.fail_after(60):
                    await app.reached(20)
                consumer.drain()
            assert [*app.read.values()] == [[*range(count - 10, count)]] * 2


async def test_by_default_the_logger_of_a_line_names_the_stream(autojump_clock, caplog):
    async with fake_with("orders") as fake, trio.open_nursery() as nursery:
        with caplog.at_level(logging.INFO, "efo"):
            run = partial(efo.consume_streams, [fake.kinesis("orders")], Application(fake).handle, application="app")
            consumer = await nursery.start(partial(run, leases=Stores()))
            await trio.sleep(5)
            consumer.drain()
    assert "efo.orders" in {record.name for record in caplog.records}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"streams": "orders"}, "expected several, such as"),
        ({"streams": ["orders", "orders"]}, "'orders' is there twice"),
        ({"streams": ["orders", 7]}, "stream 7: expected a name"),
        ({"streams": ["no/name"]}, "is not the name of a stream"),
        ({"leases": 7}, "leases=7: expected a path, a URL"),
        ({"leases": efo.leases.MemoryLeaseStore()}, "a function that returns the lease store of a stream"),
        ({"observer": 7}, "observer=7: expected a function that returns the observer"),
        ({"refresh_interval": 0}, "refresh_interval=0"),
        ({"on_service_error": "ignore"}, "expected 'stop' or 'isolate'"),
        ({"settings": {}}, "expected a ConsumerSettings"),
        ({"application": ""}, "application is empty"),
        ({"handler": None}, "pass either handler"),
    ],
)
async def test_a_wrong_argument_is_one_clear_error(arguments, message):
    async def handle(_batch: efo.Batch) -> None:
        """Process nothing."""

    options = {"streams": [], "handler": handle, "application": "app", "leases": Stores(), **arguments}
    with pytest.raises(efo.errors.ConfigurationError, match=message):
        await efo.consume_streams(options.pop("streams"), options.pop("handler"), **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stream": "arn:aws:kinesis:eu-west-1:1:stream"}, "is not the ARN of a stream"),
        ({"stream": "orders", "consumer_arn": "arn:x"}, "is not the ARN of a fan-out consumer"),
        ({"stream": "orders", "role": "arn:aws:iam::1:role/x"}, "expected an AssumedRole"),
        ({"stream": "orders", "initial_position": "yesterday"}, "initial_position='yesterday'"),
        ({"stream": "orders", "settings": 7}, "expected a ConsumerSettings"),
        ({"stream": "orders", "region": ""}, "region is empty"),
    ],
)
def test_a_wrong_stream_config_is_one_clear_error(arguments, message):
    with pytest.raises(efo.errors.ConfigurationError, match=message):
        efo.StreamConfig(**arguments)


async def test_a_stream_that_is_not_read_cannot_be_removed(autojump_clock):
    async with efo.open_streams(["orders"], application="app", leases=Stores(), worker_id="w") as streams:
        with pytest.raises(efo.errors.ConfigurationError, match="'clicks' is not read: orders are"):
            streams.remove("clicks")
        streams.remove("orders")
        assert streams.streams == ()
