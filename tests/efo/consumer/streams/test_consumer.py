"""Which streams a consumer of many streams opens, leaves, isolates and tries again, and when it ends: with fakes."""

from __future__ import annotations

from collections import defaultdict
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio

from efo.consumer.ending import CLOSED, TWO_READERS
from efo.consumer.streams.config import StreamConfig
from efo.consumer.streams.consumer import MAX_PAUSE, MultiStreamConsumer
from efo.errors import ConfigurationError, HandlerError, ServiceError, StreamRecreatedError
from efo.events import ShardsListed, StreamIsolated, StreamRestored
from efo.settings import ConsumerSettings
from tests.efo.consumer.no_readers import NO_READERS

DENIED = ServiceError("AccessDeniedException", "no\n  permission")
RECREATED = StreamRecreatedError("created again")


async def read(shard: object) -> None:
    """Read nothing: no consumer of these tests has a shard."""


class FakeConsumer:
    """The consumer of one stream. `end` lets `run` return or raise; so does `drain`. `observe`: its observer."""

    def __init__(self, observe: Any) -> None:
        self.observe = observe
        self.on_end = lambda: None
        self.is_complete = False
        self.is_caught_up = False
        self.drains = 0
        self.drain_seconds = 0.0
        self.reader: object = None
        self._ended = trio.Event()
        self._error: Exception | None = None

    async def run(self, reader: object) -> None:
        self.reader = reader
        await self._ended.wait()
        await trio.sleep(self.drain_seconds)
        if self._error is not None:
            raise self._error

    def drain(self) -> None:
        self.drains += 1
        self._ended.set()

    def end(self, error: Exception | None = None) -> None:
        self._error = error
        self._ended.set()

    def complete(self, *, is_caught_up: bool = True) -> None:
        """Note that all was delivered, and end when it is processed, as a consumer does."""
        self.is_complete, self.is_caught_up = True, is_caught_up
        self._ended.set()
        self.on_end()

    def caught_up(self) -> bool:
        return self.is_caught_up

    def status(self) -> str:
        return "its status"


class World:
    """A consumer of streams by name. `opened`: the configuration and the time of each opening.

    `failing`: what opening a stream raises, one after the other. `errors`: what reading it raises.
    `opening_seconds`: how long opening it takes.
    """

    def __init__(self, *streams: object, tracker=None, **options: Any) -> None:
        self.opened: list[tuple[StreamConfig, float]] = []
        self.closed: list[str] = []
        self.consumers: dict[str, FakeConsumer] = {}
        self.failing: dict[str, list[Exception]] = defaultdict(list)
        self.errors: dict[str, Exception] = {}
        self.opening_seconds = 0.0
        self.seen: list[object] = []
        self.ends = 0
        settings = {"refresh_interval": 60.0, "on_service_error": "stop", "retry_after": 10.0, **options}
        self.consumer = MultiStreamConsumer(
            streams if tracker is None else tracker,
            self._open,
            settings=ConsumerSettings(),
            observer=lambda _stream: self.seen.append,
            **settings,
        )
        self.consumer.on_end = self._end

    def _end(self) -> None:
        self.ends += 1

    @asynccontextmanager
    async def _open(self, config: StreamConfig, observed):
        self.opened.append((config, trio.current_time()))
        await trio.sleep(self.opening_seconds)
        if self.failing[config.name]:
            raise self.failing[config.name].pop(0)
        self.consumers[config.name] = FakeConsumer(observed(self.seen.append))
        if config.name in self.errors:
            self.consumers[config.name].end(self.errors[config.name])
        try:
            yield self.consumers[config.name]
        finally:
            self.closed.append(config.name)

    @asynccontextmanager
    async def running(self):
        """Run it for a second, then what is in the block, then drain it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.consumer.run, read)
            await trio.sleep(1)
            yield self.consumers
            self.consumer.drain()

    @property
    def names(self) -> list[str]:
        """The names of the streams that were opened, sorted: trio starts tasks in any order."""
        return sorted(config.name for config, _ in self.opened)

    @property
    def states(self) -> dict[str, str]:
        return {name: status.state for name, status in self.consumer.status().items()}


def at(stream: str) -> StreamConfig:
    return StreamConfig(stream=stream, initial_position="LATEST")


# --- which streams are read --------------------------------------------------------------------------------


async def test_each_stream_is_opened_and_read_by_the_reader(autojump_clock):
    world = World("a", "b")
    assert world.consumer.streams == ("a", "b")
    async with world.running() as consumers:
        assert {name: consumer.reader for name, consumer in consumers.items()} == {"a": read, "b": read}
        assert world.consumer.consumer("a") is consumers["a"]
        status = world.consumer.status()
        assert [(each.state, each.error, each.consumer) for each in status.values()] == [
            ("reading", None, "its status")
        ] * 2
    assert sorted(world.closed) == ["a", "b"]
    assert world.consumer.status() == {}


async def test_a_stream_that_is_added_is_read_too_and_the_same_one_is_not_opened_again(autojump_clock):
    world = World("a")
    async with world.running() as consumers:
        world.consumer.add("a")
        world.consumer.add(StreamConfig(stream="b"))
        await trio.sleep(1)
        world.consumer.add("b")
        await trio.sleep(1)
        assert (world.names, consumers["a"].drains) == (["a", "b"], 0)


async def test_a_stream_that_is_added_before_the_run_is_opened_once(autojump_clock):
    world = World()
    world.consumer.add("a")
    async with world.running():
        assert world.names == ["a"]


async def test_a_stream_whose_configuration_changes_is_drained_and_opened_again(autojump_clock):
    world = World("a")
    async with world.running() as consumers:
        first = consumers["a"]
        first.drain_seconds = 5.0
        world.consumer.add(at("a"))
        await trio.sleep(1)
        assert (first.drains, world.states) == (1, {"a": "leaving"})
        await trio.sleep(5)
        assert (world.opened[1:], world.states) == ([(at("a"), 6.0)], {"a": "reading"})


async def test_a_stream_that_is_removed_is_left_and_no_longer_named(autojump_clock):
    world = World("a", "b")
    async with world.running() as consumers:
        consumers["a"].drain_seconds = 5.0
        world.consumer.remove("a")
        assert (world.consumer.streams, world.states) == (("b",), {"a": "leaving", "b": "reading"})
        with pytest.raises(ConfigurationError, match="'a' is not read: b are"):
            world.consumer.remove("a")
        await trio.sleep(6)
        assert (world.states, consumers["b"].drains) == ({"b": "reading"}, 0)


async def test_a_stream_that_is_removed_while_it_opens_is_given_up(autojump_clock):
    world = World("a")
    world.opening_seconds = 100.0
    async with world.running():
        assert world.states == {"a": "opening"}
        with pytest.raises(ConfigurationError, match="'a' is not read now"):
            world.consumer.consumer("a")
        world.consumer.remove("a")
        await trio.sleep(0.1)
        assert (world.states, world.closed) == ({}, [])


async def test_a_stream_that_is_removed_and_added_meanwhile_is_read_again(autojump_clock):
    world = World("a")
    async with world.running():
        world.consumer.remove("a")
        world.consumer.add("a")
        await trio.sleep(1)
        assert (world.names, world.states) == (["a", "a"], {"a": "reading"})


async def test_a_stream_that_was_never_read_is_removed_at_once(autojump_clock):
    world = World("a")
    world.consumer.remove("a")
    assert world.consumer.status() == {}
    with pytest.raises(ConfigurationError, match="'b' is not read: none are"):
        world.consumer.remove("b")
    with pytest.raises(ConfigurationError, match="'b' is not read now"):
        world.consumer.consumer("b")


async def test_an_update_leaves_the_streams_that_stay(autojump_clock):
    world = World("a", "b")
    async with world.running() as consumers:
        world.consumer.update(["b", "c"])
        await trio.sleep(1)
        assert (world.consumer.streams, world.names, consumers["b"].drains) == (("b", "c"), ["a", "b", "c"], 0)


async def test_streams_that_would_be_balanced_in_two_ways_are_refused_and_change_nothing(autojump_clock):
    other = StreamConfig(stream="b", settings=ConsumerSettings(balance="throughput"))
    with pytest.raises(ConfigurationError, match="balanced as one"):
        World("a", other)
    world = World("a")
    for call in (world.consumer.add, lambda stream: world.consumer.update(["a", stream])):
        with pytest.raises(ConfigurationError, match="balanced as one"):
            call(other)
    assert world.consumer.streams == ("a",)
    async with world.running():
        world.consumer.remove("a")
        world.consumer.add(other)  # what is being left does not count
        assert world.consumer.streams == ("b",)


@pytest.mark.parametrize("call", ["add", "update"])
async def test_after_a_drain_no_stream_is_added(autojump_clock, call):
    world = World("a")
    world.consumer.drain()
    with pytest.raises(ConfigurationError, match=f"{call} has no effect after drain"):
        getattr(world.consumer, call)(["b"] if call == "update" else "b")
    with trio.fail_after(1):
        await world.consumer.run(read)
    assert (world.opened, world.consumer.streams) == ([], ("a",))


# --- the run -----------------------------------------------------------------------------------------------


async def test_a_consumer_has_one_reader_and_may_be_read_again(autojump_clock):
    world = World("a")
    async with world.running():
        with pytest.raises(ConfigurationError, match=TWO_READERS):
            await world.consumer.run(read)
    world.consumer.is_closed = True
    with pytest.raises(ConfigurationError, match=CLOSED):
        await world.consumer.run(read)


@pytest.mark.parametrize(("reader", "message"), NO_READERS)
async def test_what_is_no_reader_is_refused(autojump_clock, reader, message):
    with pytest.raises(ConfigurationError, match=message):
        await World("a").consumer.run(reader)


async def test_a_consumer_with_a_time_limit_is_drained_when_it_is_over(autojump_clock):
    world = World("a", timeout=7.0)
    await world.consumer.run(read)
    assert (trio.current_time(), world.ends) == (7.0, 1)


async def test_a_drain_ends_the_streams_that_are_read_and_gives_up_those_that_open(autojump_clock):
    world = World("a")
    async with world.running() as consumers:
        consumers["a"].drain_seconds = 5.0
        world.opening_seconds = 100.0
        world.consumer.add("b")
        await trio.sleep(1)
        world.consumer.drain()
        assert world.states == {"a": "leaving", "b": "leaving"}
    assert (trio.current_time(), consumers["a"].drains, world.ends) == (7.0, 2, 2)


async def test_any_thread_may_drain(autojump_clock):
    world = World("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.consumer.run, read)
        await trio.testing.wait_all_tasks_blocked()
        await trio.to_thread.run_sync(world.consumer.drain)
    assert world.ends == 1


def test_another_run_of_trio_may_drain_also_after_the_end():
    async def make() -> World:
        return World("a")

    world = trio.run(make)

    async def drain() -> None:
        world.consumer.drain()

    trio.run(drain)
    world.consumer.drain()
    assert world.ends == 0


async def test_an_error_of_a_reader_ends_all_streams_and_is_noted_with_its_place(autojump_clock):
    world = World("a", "b", on_service_error="isolate")
    world.errors["a"] = LookupError("bad")
    with pytest.raises(LookupError, match="bad"):
        await world.consumer.run(read)
    assert world.consumer.failure is not None
    assert world.consumer.failure.startswith("LookupError at ")
    assert sorted(world.closed) == ["a", "b"]


async def test_the_first_failure_is_kept(autojump_clock):
    world = World("a")
    world.consumer.failure = "the first"
    world.errors["a"] = HandlerError("bad")
    with pytest.raises(HandlerError):
        await world.consumer.run(read)
    assert world.consumer.failure == "the first"


# --- a tracker ---------------------------------------------------------------------------------------------


async def test_a_tracker_is_asked_again_after_the_interval(autojump_clock):
    asked: list[float] = []

    async def tracker() -> list[str]:
        asked.append(trio.current_time())
        await trio.sleep(0.5)
        return ["a"] if len(asked) < 3 else ["a", "b"]

    world = World(tracker=tracker, refresh_interval=20.0)
    assert world.consumer.streams == ()
    async with world.running() as consumers:
        await trio.sleep(44)
        assert (asked, world.names) == ([0.0, 20.5, 41.0], ["a", "b"])
        assert consumers["a"].drains == 0


async def test_a_drain_waits_for_no_tracker(autojump_clock):
    world = World(tracker=trio.sleep_forever)
    async with world.running():
        assert not world.consumer.caught_up()
    assert trio.current_time() == 1.0


async def test_what_a_tracker_names_during_a_drain_is_not_read(autojump_clock):
    async def tracker() -> list[str]:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)
        return ["a"]

    world = World(tracker=tracker)
    async with world.running():
        pass
    assert (world.opened, world.consumer.streams, trio.current_time()) == ([], (), 3.0)


async def test_streams_that_a_tracker_has_not_named_yet_are_neither_complete_nor_caught_up(autojump_clock):
    async def tracker() -> list[str]:
        await trio.sleep(5)
        return ["a"]

    world = World(tracker=tracker)
    world.consumer._add(StreamConfig(stream="a"))
    async with world.running() as consumers:
        consumers["a"].complete()
        await trio.sleep(1)
        assert (world.ends, world.consumer.caught_up()) == (0, False)
        await trio.sleep(4)
        assert (world.ends, world.consumer.caught_up()) == (1, True)


# --- the end -----------------------------------------------------------------------------------------------


async def test_a_consumer_ends_when_all_its_streams_are_complete(autojump_clock):
    world = World("a", "b")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.consumer.run, read)
        await trio.sleep(1)
        world.consumers["a"].complete()
        await trio.sleep(4)
        assert (world.ends, world.states) == (0, {"a": "complete", "b": "reading"})
        world.consumers["b"].complete()
        assert world.ends == 1
    assert (trio.current_time(), world.ends, world.names) == (5.0, 1, ["a", "b"])
    assert world.consumer.caught_up()


async def test_a_consumer_ends_when_the_last_stream_that_is_not_complete_is_removed(autojump_clock):
    world = World("a", "b")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.consumer.run, read)
        await trio.sleep(1)
        world.consumers["a"].complete()
        world.consumers["b"].drain_seconds = 3.0
        await trio.sleep(1)
        world.consumer.remove("b")
        assert world.ends == 1
    assert trio.current_time() == 5.0


async def test_a_consumer_without_streams_does_not_end(autojump_clock):
    world = World("a")
    async with world.running():
        world.consumer.remove("a")
        await trio.sleep(10)
        assert world.ends == 0
        world.consumer.add("b")
        await trio.sleep(1)
        assert world.states == {"b": "reading"}


async def test_a_stream_that_is_complete_is_opened_again_if_its_configuration_changes(autojump_clock):
    world = World("a", "b")
    async with world.running() as consumers:
        consumers["a"].complete()
        await trio.sleep(1)
        world.consumer.add(at("a"))
        await trio.sleep(1)
        assert (world.names, world.states) == (["a", "a", "b"], {"a": "reading", "b": "reading"})
        consumers["b"].complete()
        assert world.ends == 0
        consumers["a"].complete()
        assert world.ends == 1


async def test_a_stream_that_ends_by_itself_without_being_complete_is_opened_again(autojump_clock):
    world = World("a")
    async with world.running() as consumers:
        consumers["a"].end()
        await trio.sleep(1)
        assert (world.names, world.states) == (["a", "a"], {"a": "reading"})


async def test_a_stream_that_is_complete_while_it_is_changed_is_opened_again(autojump_clock):
    world = World("a", "b")
    async with world.running() as consumers:
        consumers["a"].is_complete = True
        world.consumer.add(at("a"))
        await trio.sleep(1)
        assert (world.names, world.states) == (["a", "a", "b"], {"a": "reading", "b": "reading"})


@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
@pytest.mark.parametrize("is_left", [False, True])
async def test_it_is_caught_up_when_each_stream_is_or_was_when_it_was_left(autojump_clock, a, b, is_left):
    world = World("a", "b")
    async with world.running() as consumers:
        if is_left:
            consumers["a"].complete(is_caught_up=a)
            await trio.sleep(1)
        consumers["a"].is_caught_up, consumers["b"].is_caught_up = a, b
        assert world.consumer.caught_up() is (a and b)
    assert world.consumer.caught_up() is (a and b)


async def test_what_opens_or_was_never_read_is_not_caught_up_and_what_was_removed_does_not_count(autojump_clock):
    world = World("a", "b")
    assert not world.consumer.caught_up()
    world.opening_seconds = 5.0
    async with world.running():
        assert not world.consumer.caught_up()
        await trio.sleep(5)
        world.consumers["b"].is_caught_up = True
        world.consumers["a"].drain_seconds = 2.0
        world.consumer.remove("a")
        assert world.consumer.caught_up()
        world.consumer.remove("b")
        assert not world.consumer.caught_up()
        await trio.sleep(5)
    assert world.consumer.caught_up() is False


# --- errors of one stream ----------------------------------------------------------------------------------


async def test_by_default_a_stream_that_the_service_refuses_ends_all(autojump_clock):
    world = World("a", "b")
    world.failing["a"] = [DENIED]
    with pytest.raises(ServiceError, match="permission"):
        await world.consumer.run(read)


async def test_isolated_a_stream_that_the_service_refuses_is_tried_again_after_each_pause(autojump_clock):
    world = World("a", "b", on_service_error="isolate", retry_after=10.0)
    world.failing["a"] = [DENIED, DENIED]
    async with world.running() as consumers:
        status = world.consumer.status()["a"]
        assert (status.state, status.error, status.consumer) == ("isolated", DENIED, None)
        assert world.states["b"] == "reading"
        await trio.sleep(25)
        assert [time for config, time in world.opened if config.name == "a"] == [0.0, 10.0, 20.0]
        assert world.consumer.status()["a"].error is None
        assert consumers["b"].drains == 0
    isolated = StreamIsolated("a", 10.0, DENIED.error_type, "AccessDeniedException: no permission")
    assert world.seen == [isolated, isolated]


async def test_an_isolated_stream_is_left_or_opened_at_once_if_it_is_removed_or_changed(autojump_clock):
    world = World("a", "b", on_service_error="isolate", retry_after=1000.0)
    world.failing["a"], world.failing["b"] = [DENIED], [DENIED]
    async with world.running():
        world.consumer.remove("a")
        world.consumer.add(at("b"))
        assert world.states == {"a": "leaving", "b": "leaving"}
        await trio.sleep(1)
        assert world.states == {"b": "reading"}


async def test_a_drain_waits_for_no_isolated_stream(autojump_clock):
    world = World("a", on_service_error="isolate", retry_after=1000.0)
    world.failing["a"] = [DENIED]
    async with world.running():
        pass
    assert trio.current_time() == 1.0


@pytest.mark.parametrize(
    ("retry_after", "pauses"),
    [
        (100.0, [100.0, 200.0, 400.0, MAX_PAUSE, MAX_PAUSE]),
        (0.25, [1.0, 2.0, 4.0, 8.0, 16.0]),
        (700.0, [700.0] * 5),
    ],
)
async def test_a_stream_that_was_created_again_is_tried_with_growing_pauses_and_reported_once(
    autojump_clock, retry_after, pauses
):
    world = World("a", on_service_error="isolate", retry_after=retry_after)
    world.failing["a"] = [RECREATED] * 5
    async with world.running() as consumers:
        await trio.sleep(sum(pauses))
        times = [time for _, time in world.opened]
        assert [after - before for before, after in pairwise(times)] == pauses
        assert world.states == {"a": "isolated"}  # until its shards are listed
        await trio.sleep(3)
        consumers["a"].observe(ShardsListed(1))
        assert world.states == {"a": "reading"}
        assert world.consumer.status()["a"].error is None
    isolated, restored, listed = world.seen
    assert isolated == StreamIsolated("a", pauses[0], "stream_recreated", "created again")
    assert restored == StreamRestored("a", "stream_recreated", 4 + sum(pauses), 5)
    assert listed == ShardsListed(1)


async def test_after_another_error_or_a_success_the_pauses_begin_anew(autojump_clock):
    world = World("a", on_service_error="isolate", retry_after=10.0)
    world.failing["a"] = [RECREATED, RECREATED, DENIED, RECREATED]
    async with world.running() as consumers:
        await trio.sleep(60)  # 10 + 20 + 10 + 10
        consumers["a"].observe(ShardsListed(1))
        consumers["a"].end(RECREATED)
        await trio.sleep(5)
        assert len(world.opened) == 5
        await trio.sleep(6)
        assert len(world.opened) == 6
    assert [event.cooldown for event in world.seen if isinstance(event, StreamIsolated)] == [10.0] * 4


async def test_what_was_left_unacked_of_a_stream_does_not_count_once_it_is_removed(autojump_clock):
    world = World("a", "b")
    async with world.running() as consumers:
        consumers["a"].complete(is_caught_up=False)
        consumers["b"].is_caught_up = True
        await trio.sleep(1)
        assert not world.consumer.caught_up()
        world.consumer.remove("a")
        await trio.sleep(1)
        assert world.consumer.caught_up()
    assert world.consumer.caught_up()


async def test_a_very_long_refusal_has_the_longest_pause(autojump_clock):
    world = World("a", on_service_error="isolate", retry_after=1e-6)
    world.failing["a"] = [RECREATED] * 40
    async with world.running():
        await trio.sleep(20_000)
    assert len(world.opened) == 41
    assert MAX_PAUSE == 600.0
