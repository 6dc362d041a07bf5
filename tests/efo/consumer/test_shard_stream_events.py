"""What a shard stream makes of each event of its source, of acks, and of a seek: the tests are the source."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import inf
from types import SimpleNamespace

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from efo import events
from efo.consumer import shard_stream
from efo.consumer.age_limits import AgeLimits
from efo.consumer.deaggregator import Deaggregator, EventPart
from efo.consumer.shard_stream import ShardStream
from efo.errors import (
    AccessDeniedError,
    ConfigurationError,
    ServiceError,
    ShardGoneError,
    ShardNotReadError,
    StreamRecreatedError,
)
from efo.health import Overdue, ShardReading
from efo.kinesis.shard_source import ShardEnd
from efo.model import Batch, Checkpoint, ChildShard, HashKeyRange, Position, Record
from efo.protocol.aggregation import AggregateMode
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.until import ShardLimit
from efo.telemetry.tracing import NO_SPAN
from tests.packing import pack

WALL = 1_700_000_000.0
START = Checkpoint("100")
CHILD = ChildShard("s-1", ("s-0",), HashKeyRange("0", "1"))


def record(number: int, arrived: float = WALL, data: bytes = b"1234567") -> Record:
    return Record(str(number), arrived, data, "key")


def event(*numbers: int, to: str | None = "199", behind: int = 0, arrived: float = WALL) -> SubscribeToShardEvent:
    """Return an event with these records, of 7 bytes each. `to`: its continuation."""
    return SubscribeToShardEvent(tuple(record(number, arrived) for number in numbers), behind, to)


class Source:
    """A shard source. `send` sends what `receive` returns or raises. `meanwhile`: called before it returns an event."""

    read_mode = "fanout"

    def __init__(self) -> None:
        self.opened_at = self.position = Position.latest()
        self.state = "live"
        self.has_pending = False
        self.pending_since: float | None = None
        self.closed: list[tuple[str, float]] = []
        self.meanwhile = lambda: None
        self._send, self._sent = trio.open_memory_channel[object](inf)

    def send(self, *sent: object) -> None:
        for one in sent:
            self._send.send_nowait(one)

    async def receive(self) -> object:
        sent = await self._sent.receive()
        if isinstance(sent, Exception):
            raise sent
        if isinstance(sent, SubscribeToShardEvent) and sent.continuation_sequence_number is not None:
            self.position = Position.after(sent.continuation_sequence_number)
            self.meanwhile()
        return sent

    def interrupt(self) -> None:
        self.send(None)

    def close(self, reason: str) -> None:
        self.closed.append((reason, trio.current_time()))
        self.interrupt()


class Unread:
    """What is unread of the shard: everything since a minute ago. `calls`: what it was told."""

    since = WALL - 60

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def received(self, records: Sequence[Record], behind: int) -> None:
        self.calls.append(("received", len(records), behind))

    def gone(self) -> None:
        self.calls.append(("gone",))

    def restart(self, since: float | None, checkpoint: str | None = None) -> None:
        self.calls.append(("restart", since, checkpoint))


class World:
    """A shard stream after `START`, at 5 s of trio's clock, whose sources are the tests'."""

    def __init__(self, checkpoint: Checkpoint = START, *, parts: Sequence[EventPart] | None = None, **options) -> None:
        self.sources: list[Source] = []
        self.seen: list[events.Event] = []
        self.saves = self.completions = 0
        self.unread = Unread()
        deaggregator = Deaggregator("s-0", None, AggregateMode.KEEP, self.seen.append)
        if parts is not None:
            deaggregator = SimpleNamespace(deaggregate=lambda *_arguments: iter(parts))
        self.shard = ShardStream(
            "orders",
            "s-0",
            checkpoint,
            subscribe=self._subscribe,
            initial=Position.at_timestamp(WALL - 30),
            unread=self.unread,
            pin=lambda to: Position.at_timestamp(WALL - 1) if to == Position.latest() else to,
            save=self._save,
            deaggregator=deaggregator,
            clock=lambda: WALL,
            observer=self.seen.append,
            on_complete=self._complete,
            **options,
        )
        self.coming = Source()

    def _subscribe(self, position: Position) -> Source:
        self.coming.opened_at = self.coming.position = position
        self.sources.append(self.coming)
        self.coming = Source()
        return self.sources[-1]

    async def _save(self) -> None:
        self.saves += 1

    def _complete(self) -> None:
        self.completions += 1

    @property
    def source(self) -> Source:
        """The source that the shard has, or the one that it gets when it subscribes."""
        return self.coming if self.shard.state == "unsubscribed" else self.sources[-1]

    async def next(self, *sent: object) -> Batch | None:
        """Return the next batch, or None at the end, when the source has sent this."""
        self.source.send(*sent)
        with trio.fail_after(500):
            return await anext(self.shard, None)

    def reported(self, kind: type) -> list:
        return [event for event in self.seen if isinstance(event, kind)]


@pytest.fixture
async def world() -> World:
    await trio.sleep(5)
    return World()


async def some_of(source_of: World, count: int) -> list[Batch]:
    """Return so many batches, of one record each, which are numbered from 101 on."""
    return [await source_of.next(event(101 + n, to=str(101 + n))) for n in range(count)]


# --- what is known of it -----------------------------------------------------------------------------------


async def test_before_its_first_event_a_shard_is_unsubscribed(autojump_clock, world):
    await trio.sleep(3)
    shard = world.shard
    assert shard.reading() == ShardReading("s-0", START, "unsubscribed", 5.0, 5.0, wanted_since=None)
    assert (shard.state, shard.acks, shard.bytes_received, shard.unacked) == ("unsubscribed", 0, 0, 0)
    assert shard.has_ended is shard.is_finished is shard.is_complete is shard.is_at_tip is False
    assert shard.is_paused is shard.is_draining is shard.is_lost is shard.has_pending is False
    assert shard.has_unacked is shard.is_traced is False
    assert shard.slow_batch() is None


async def test_what_is_known_of_a_shard_follows_its_events_and_acks(autojump_clock, world):
    shard = world.shard
    await trio.sleep(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.next)
        await trio.sleep(2)
        waiting = ShardReading("s-0", START, "live", 5.0, 5.0, 6.0, wanted_since=6.0, read_mode="fanout")
        assert shard.reading() == waiting
        world.source.send(event(101, 102, behind=1500))
    delivered = replace(
        waiting,
        last_event_at=8.0,
        millis_behind_latest=1500,
        unsaved_since=8.0,
        wanted_since=None,
        unacked_since=8.0,
        unacked_behind=1.5,
    )
    assert shard.reading() == delivered
    world.source.has_pending, world.source.pending_since, world.source.state = True, 8.5, "retrying"
    shard.overdue = lambda: Overdue(8.0)
    assert shard.reading() == replace(
        delivered, has_pending=True, pending_since=8.5, state="retrying", overdue=Overdue(8.0)
    )
    assert (shard.state, shard.has_pending) == ("retrying", True)
    shard.ack_to(Checkpoint("102"))
    reading = shard.reading()
    assert (reading.checkpoint, reading.unacked_since, reading.unacked_behind) == (Checkpoint("199"), None, 0.0)


@pytest.mark.parametrize(
    ("is_acked", "acks", "unsaved_since"), [(True, 1, None), (True, 0, 7.0), (False, 0, 7.0), (False, 1, 7.0)]
)
async def test_what_is_unsaved_after_a_save_is_what_is_in_flight_or_acked_since(
    autojump_clock, world, is_acked, acks, unsaved_since
):
    batch = await world.next(event(101))
    assert world.shard.reading().unsaved_since == 5.0
    await trio.sleep(2)
    if is_acked:
        world.shard.ack(batch)
    world.shard.saved(acks)
    reading = world.shard.reading()
    assert (reading.saved_at, reading.unsaved_since) == (7.0, unsaved_since)


async def test_what_is_unsaved_counts_from_the_first_delivery(autojump_clock, world):
    await world.next(event(101))
    await trio.sleep(2)
    await world.next(event(102))
    assert world.shard.reading().unsaved_since == 5.0


async def test_a_shard_is_at_its_tip_when_all_that_had_arrived_is_delivered(autojump_clock, world):
    for behind, is_at_tip in ((1, False), (0, True)):
        await world.next(event(101, behind=behind))
        assert world.shard.is_at_tip is is_at_tip
    world.source.has_pending = True
    assert not world.shard.is_at_tip
    world.source.has_pending = False
    world.shard.seek(START)
    assert not world.shard.is_at_tip


async def test_a_shard_has_pending_what_is_not_delivered_of_an_event(autojump_clock):
    world = World(parts=[EventPart((record(101),), False), EventPart((record(102),), True)])
    await world.next(event(101, 102))
    assert world.shard.has_pending
    assert not world.shard.is_at_tip
    assert world.shard.reading().has_pending is False  # of the source
    await world.next()
    assert not world.shard.has_pending


async def test_the_oldest_unread_record_is_in_flight_or_else_not_received_yet(autojump_clock):
    world = World(parts=[EventPart((record(101, WALL - 9),), False), EventPart((), True)])
    assert world.shard.unread_since == WALL - 60
    batch = await world.next(event(101, 102))
    assert world.shard.unread_since == WALL - 9
    world.shard.ack(batch)
    assert world.shard.unread_since is None  # the rest of the event is not delivered


async def test_a_batch_that_is_in_flight_for_very_long_is_reported_unless_the_reader_says_why(autojump_clock, world):
    await world.next(event(101, 102))
    await trio.sleep(60)
    advice = world.shard.slow_batch()
    assert advice is not None
    assert "s-0: 2 records were delivered and are not acked, the first for 60 s" in advice.what
    world.shard.overdue = lambda: Overdue(5.0)
    world.shard.watch()
    assert world.shard.slow_batch() is None
    assert world.reported(events.AcksOverdue) == []
    world.shard.overdue = lambda: None
    world.shard.watch()
    assert world.reported(events.AcksOverdue) == [events.AcksOverdue("s-0", 1, 2, 60.0)]


async def test_a_reader_may_say_when_its_acks_are_overdue(autojump_clock, world):
    assert world.shard.overdue_after == 10.0
    world.shard.overdue_after = 90.0
    assert world.shard.overdue_after == 90.0
    await world.next(event(101))
    await trio.sleep(89)
    assert world.shard.slow_batch() is None
    await trio.sleep(1)
    assert world.shard.slow_batch() is not None


async def test_a_shard_without_spans_has_none_and_with_them_those_that_are_not_left_out(autojump_clock):
    world = World()
    batch = await world.next(event(101))
    assert world.shard.process_span(batch) is NO_SPAN
    spans: list[object] = ["a span", None]
    traced = World(spans=SimpleNamespace(of_batch=lambda records: (spans.pop(0), len(records))[0]))
    assert traced.shard.is_traced
    assert [traced.shard.process_span(batch) for _ in range(2)] == ["a span", NO_SPAN]


# --- batches -----------------------------------------------------------------------------------------------


async def test_a_batch_has_the_records_and_the_place_of_its_event(autojump_clock, world):
    first = await world.next(event(101, 102, to="105", behind=1500))
    assert first == Batch("orders", "s-0", (record(101), record(102)), "105", 1500, 0)
    second = await world.next(event(106, to="107"))
    assert second == Batch("orders", "s-0", (record(106),), "107", 0, 1)
    assert world.unread.calls == [("received", 2, 1500), ("received", 1, 0)]
    assert world.reported(events.BatchDelivered) == [events.BatchDelivered("s-0", n) for n in (2, 1)]
    assert world.shard.millis_behind_latest == 0
    world.shard.ack_through(second)
    assert [processed.data_bytes for processed in world.reported(events.RecordsProcessed)] == [14, 7]
    assert world.shard.bytes_received == 21


async def test_an_event_without_records_is_no_batch_and_moves_the_checkpoint(autojump_clock, world):
    batch = await world.next(event(to="150"), event(151, to="160"))
    assert [each.sequence_number for each in batch] == ["151"]
    assert world.shard.acked == Checkpoint("150")
    assert not world.shard.has_unacked_besides(batch)


async def test_only_the_last_part_of_an_event_has_its_continuation(autojump_clock):
    world = World(
        parts=[
            EventPart((record(101),), False),
            EventPart((), False),
            EventPart((record(102),), True),
        ]
    )
    first = await world.next(event(101, 102, to="150"))
    with trio.testing.assert_checkpoints():  # other tasks run between them
        second = await world.next()
    assert [(batch.continuation, batch.number) for batch in (first, second)] == [(None, 0), ("150", 1)]
    world.shard.ack(first)
    assert world.shard.acked == Checkpoint("101")
    world.shard.ack(second)
    assert world.shard.acked == Checkpoint("150")
    assert [processed.data_bytes for processed in world.reported(events.RecordsProcessed)] == [14, 0]


@pytest.mark.parametrize("how", ["python", "native", "native, with an aggregate", "packed"])
async def test_the_data_of_an_event_is_counted_by_each_step(autojump_clock, world, monkeypatch, how):
    sent = event(101, 102)
    if how == "packed":
        sent = replace(sent, records=pack(sent.records))
    step = SimpleNamespace(plain_size={"native": lambda _records: 99}.get(how, lambda _records: None))
    monkeypatch.setattr(shard_stream, "STEP", step if how.startswith("native") else None)
    batch = await world.next(sent)
    assert [each.data for each in batch.records] == [b"1234567"] * 2
    expected = 99 if how == "native" else 14
    assert world.shard.bytes_received == expected
    world.shard.ack(batch)
    assert [processed.data_bytes for processed in world.reported(events.RecordsProcessed)] == [expected]


async def test_records_up_to_the_checkpoint_are_not_delivered(autojump_clock, world):
    batch = await world.next(event(99, 100, 101))
    assert [each.sequence_number for each in batch] == ["101"]


# --- its source --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checkpoint", "position"),
    [
        (START, Position.at("100")),
        (Checkpoint.TRIM_HORIZON, Position.trim_horizon()),
        (Checkpoint.LATEST, Position.at_timestamp(WALL - 30)),
    ],
)
async def test_a_shard_is_read_from_its_checkpoint_on(autojump_clock, checkpoint, position):
    world = World(checkpoint)
    with trio.move_on_after(1):
        await anext(world.shard)
    assert [source.opened_at for source in world.sources] == [position]
    assert world.shard.acked == (None if checkpoint.is_sentinel else START)


async def test_an_interrupt_without_a_reason_ends_no_iteration(autojump_clock, world):
    batch = await world.next(None, event(101))
    assert len(batch) == 1
    assert len(world.sources) == 1


async def test_the_end_of_a_shard_ends_the_iteration(autojump_clock, world):
    assert await world.next(ShardEnd((CHILD,))) is None
    assert (world.shard.children, world.shard.is_finished, world.shard.has_ended) == ((CHILD,), True, True)
    assert world.completions == 0
    with pytest.raises(ShardNotReadError, match="has ended"):
        world.shard.seek(START)


@pytest.mark.parametrize("is_acked", [False, True])
async def test_a_shard_that_is_gone_ends_without_children(autojump_clock, world, is_acked):
    batch = await world.next(event(101, to="150"))
    if is_acked:
        world.shard.ack(batch)
    assert await world.next(ShardGoneError("gone")) is None
    assert world.reported(events.ShardGone) == [events.ShardGone("s-0", Checkpoint("150") if is_acked else START)]
    assert world.unread.calls[-1] == ("gone",)
    assert world.shard.children == ()


async def test_a_shard_that_is_gone_and_was_never_read_is_reported_with_its_first_checkpoint(autojump_clock):
    world = World(Checkpoint.TRIM_HORIZON)
    assert await world.next(ShardGoneError("gone")) is None
    assert world.reported(events.ShardGone) == [events.ShardGone("s-0", Checkpoint.TRIM_HORIZON)]


async def test_an_error_of_the_source_is_the_readers(autojump_clock, world):
    with pytest.raises(AccessDeniedError):
        await world.next(AccessDeniedError("AccessDeniedException", "no"))
    assert world.shard.reading().wanted_since is None


async def test_a_position_of_another_shard_is_that_of_a_former_stream(autojump_clock, world):
    text = "StartingSequenceNumber 100 used in SubscribeToShard on shard s-0 in stream orders is invalid."
    with pytest.raises(StreamRecreatedError, match="s-0 was to be read from 100 on"):
        await world.next(ServiceError("InvalidArgumentException", text))


async def test_an_event_that_was_on_its_way_when_a_seek_came_is_not_delivered(autojump_clock, world):
    world.source.meanwhile = lambda: world.shard.seek(Checkpoint("300"))
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def send() -> None:
            await trio.sleep(1)
            world.source.send(event(301))

        batch = await world.next(event(101))
    assert [each.sequence_number for each in batch] == ["301"]
    assert [source.opened_at for source in world.sources] == [Position.at("100"), Position.at("300")]


async def test_an_idle_source_is_closed_and_continued_after_what_it_delivered(autojump_clock, world):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.shard.unsubscribe_when_idle, 10.0)
        await trio.testing.wait_all_tasks_blocked()
        await world.next(event(101, to="150"))
        await trio.sleep(20)
        assert world.sources[0].closed == [("idle", 15.0)]
        assert world.shard.state == "unsubscribed"

        @nursery.start_soon
        async def send() -> None:
            await trio.sleep(32)
            world.source.send(event(151, to="160"))

        assert await world.next() is not None  # it was waited for longer than it may be idle
        await trio.sleep(20)
        assert [source.closed for source in world.sources] == [[("idle", 15.0)], [("idle", 67.0)]]
        nursery.cancel_scope.cancel()
    assert world.sources[1].opened_at == Position.after("150")


async def test_a_source_that_has_sent_the_last_event_of_its_shard_is_not_idle(autojump_clock, world):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.shard.unsubscribe_when_idle, 10.0)
        await world.next(event(101, to=None))
        await trio.sleep(100)
        assert world.source.closed == []
        world.shard.seek(START)
        with trio.move_on_after(1):
            await world.next()
        await trio.sleep(100)
        assert [reason for source in world.sources for reason, _ in source.closed] == ["seek", "idle"]
        nursery.cancel_scope.cancel()


# --- pauses and drains -------------------------------------------------------------------------------------


async def test_a_pause_and_its_end_are_reported_once(autojump_clock, world):
    world.shard.resume()
    for _ in range(2):
        world.shard.pause()
    assert world.shard.is_paused
    assert world.shard.reading().is_paused
    for _ in range(2):
        world.shard.resume()
    assert not world.shard.is_paused
    assert world.seen == [events.ShardPaused("s-0"), events.ShardResumed("s-0")]


async def test_a_paused_shard_delivers_what_has_arrived_when_it_is_resumed(autojump_clock, world):
    await world.next(event(101))
    world.shard.pause()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def resume() -> None:
            await trio.sleep(7)
            world.shard.resume()

        batch = await world.next(event(102))
    assert (len(batch), trio.current_time()) == (1, 12.0)


async def test_a_pause_that_comes_with_an_event_holds_its_batch(autojump_clock, world):
    world.source.meanwhile = world.shard.pause
    with trio.move_on_after(10) as scope:
        await world.next(event(101))
    assert scope.cancelled_caught
    world.shard.resume()
    assert len(await world.next()) == 1


@pytest.mark.parametrize("how", ["not paused", "resumed", "drained"])
async def test_a_reader_may_wait_until_its_shard_is_resumed_or_drained(autojump_clock, world, how):
    if how != "not paused":
        world.shard.pause()

    async def end() -> None:
        await trio.sleep(4)
        (world.shard.resume if how == "resumed" else world.shard.drain)()

    async with trio.open_nursery() as nursery:
        if how != "not paused":
            nursery.start_soon(end)
        await world.shard.resumed()
    assert trio.current_time() == (5.0 if how == "not paused" else 9.0)


async def test_a_drain_ends_an_iteration_that_waits(autojump_clock, world):
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def drain() -> None:
            await trio.sleep(4)
            world.shard.drain()

        assert await world.next() is None
    assert (world.shard.is_draining, world.shard.has_ended, world.shard.is_finished) == (True, True, False)


@pytest.mark.parametrize("ends_by", [None, "seek", "drain"])
async def test_a_pause_between_retries_ends_when_the_batch_is_no_longer_wanted(autojump_clock, world, ends_by):
    batch = await world.next(event(101))
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def end() -> None:
            await trio.sleep(2)
            world.shard.pause()  # which changes nothing for a batch that was delivered
            if ends_by == "seek":
                world.shard.seek(START)
            elif ends_by == "drain":
                world.shard.drain()

        is_wanted = await world.shard.wait(batch, 10.0)
    assert (is_wanted, trio.current_time()) == ((True, 15.0) if ends_by is None else (False, 7.0))


async def test_after_a_drain_a_batch_is_current_and_not_wanted_and_after_a_seek_neither(autojump_clock, world):
    first = await world.next(event(101))
    assert world.shard.is_wanted(first) is world.shard.is_current(first) is True
    world.shard.seek(START)
    second = dataclasses.replace(first, number=1)
    assert world.shard.is_wanted(first) is world.shard.is_current(first) is False
    assert world.shard.is_wanted(second) is world.shard.is_current(second) is True
    world.shard.drain()
    assert (world.shard.is_wanted(second), world.shard.is_current(second)) == (False, True)


async def test_a_reader_that_has_ended_cannot_iterate(autojump_clock, world):
    world.shard.is_left = True
    with pytest.raises(ConfigurationError, match="its reader has ended"):
        await world.next()


# --- acks --------------------------------------------------------------------------------------------------

ACKS = {
    "ack": lambda shard, batch: shard.ack(batch),
    "ack_record": lambda shard, batch: shard.ack_record(batch, batch.records[0]),
    "ack_records": lambda shard, batch: shard.ack_records(batch, iter([0])),
    "ack_through": lambda shard, batch: shard.ack_through(batch, 0),
}


@pytest.mark.parametrize("ack", ACKS.values(), ids=ACKS)
async def test_each_ack_counts_and_moves_the_checkpoint(autojump_clock, world, ack):
    (batch,) = await some_of(world, 1)
    assert (world.shard.has_unacked, world.shard.unacked, world.shard.is_in_flight(batch)) == (True, 1, True)
    ack(world.shard, batch)
    assert (world.shard.acks, world.shard.acked) == (1, Checkpoint("101"))
    assert (world.shard.has_unacked, world.shard.unacked, world.shard.is_in_flight(batch)) == (False, 0, False)
    assert len(world.reported(events.RecordsProcessed)) == 1


@pytest.mark.parametrize("ack", ACKS.values(), ids=ACKS)
@pytest.mark.parametrize("change", [{"shard_id": "s-1"}, {"stream": "clicks"}, {"number": 1}, {"number": -1}])
async def test_an_ack_of_a_batch_that_the_shard_did_not_deliver_is_refused(autojump_clock, world, ack, change):
    (batch,) = await some_of(world, 1)
    assert world.shard.has_delivered(batch)
    assert not world.shard.has_delivered(dataclasses.replace(batch, **change))
    with pytest.raises(ConfigurationError, match="which it did not deliver"):
        ack(world.shard, dataclasses.replace(batch, **change))
    assert world.shard.acks == 0


async def test_an_ack_of_an_index_that_the_batch_does_not_have_is_refused(autojump_clock, world):
    (batch,) = await some_of(world, 1)
    for ack in (lambda: world.shard.ack_records(batch, [1]), lambda: world.shard.ack_through(batch, 1)):
        with pytest.raises(ConfigurationError, match="expected 0 to 0"):
            ack()


async def test_an_ack_through_a_batch_acks_those_before_it_and_an_ack_does_not(autojump_clock, world):
    first, second = await some_of(world, 2)
    assert world.shard.has_unacked_besides(first)
    world.shard.ack(second)
    assert not world.shard.has_unacked_besides(first)
    assert world.shard.acked == START
    world.shard.ack_through(second)
    assert world.shard.acked == Checkpoint("102")


@pytest.mark.parametrize(
    ("options", "acked"), [({}, "102"), ({"inclusive": True}, "102"), ({"inclusive": False}, "101")]
)
async def test_an_ack_to_a_checkpoint_includes_it_by_default(autojump_clock, world, options, acked):
    await some_of(world, 3)
    world.shard.ack_to(Checkpoint("102"), **options)
    assert (world.shard.acked, world.shard.acks) == (Checkpoint(acked), 1)


async def test_an_ack_to_a_sentinel_is_refused(autojump_clock, world):
    with pytest.raises(ConfigurationError, match="ack to the checkpoint SHARD_END"):
        world.shard.ack_to(Checkpoint.SHARD_END)


async def test_a_save_on_request_is_the_leases(autojump_clock, world):
    await world.shard.save()
    assert world.saves == 1


# --- seeks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "checkpoint", "position", "unread"),
    [
        (Checkpoint("300"), Checkpoint("300"), Position.at("300"), (WALL - 60, "300")),
        (START, START, Position.at("100"), (WALL - 60, "100")),
        (Checkpoint("99"), Checkpoint("99"), Position.at("99"), (None, "99")),
        (Checkpoint.TRIM_HORIZON, Checkpoint.TRIM_HORIZON, Position.trim_horizon(), (None, None)),
        (Position.after("200"), Checkpoint("200"), Position.after("200"), (None, None)),
        (Position.at("200"), Checkpoint.TRIM_HORIZON, Position.at("200"), (None, None)),
        (
            Position.at_timestamp(WALL - 5),
            Checkpoint.AT_TIMESTAMP,
            Position.at_timestamp(WALL - 5),
            (WALL - 5, None),
        ),
        ("LATEST", Checkpoint.AT_TIMESTAMP, Position.at_timestamp(WALL - 1), (WALL - 1, None)),
    ],
    ids=str,
)
async def test_after_a_seek_nothing_is_known_but_the_new_place(autojump_clock, world, to, checkpoint, position, unread):
    shard = world.shard
    await world.next(event(101, behind=0))
    await trio.sleep(2)
    shard.seek(to)
    is_acked = isinstance(to, Checkpoint) and not to.is_sentinel
    assert shard.reading() == replace(
        ShardReading("s-0", checkpoint, "unsubscribed", 7.0, 5.0, wanted_since=None), unsaved_since=None
    )
    assert (shard.checkpoint, shard.acked) == (checkpoint, to if is_acked else None)
    assert (shard.has_unacked, shard.unacked, shard.acks, shard.has_pending) == (False, 0, 1, False)
    assert world.unread.calls[-1] == ("restart", *unread)
    assert world.sources[0].closed == [("seek", 7.0)]
    (moved,) = world.reported(events.ShardRepositioned)
    assert moved == events.ShardRepositioned("s-0", Position.latest() if to == "LATEST" else to)
    with trio.move_on_after(1):
        await anext(shard)
    assert world.source.opened_at == position


@pytest.mark.parametrize("to", [Checkpoint.LATEST, Checkpoint.SHARD_END, Checkpoint.AT_TIMESTAMP], ids=str)
async def test_a_seek_to_a_checkpoint_that_names_no_place_changes_nothing(autojump_clock, world, to):
    before = world.shard.reading()
    with pytest.raises(ConfigurationError, match="it names no place"):
        world.shard.seek(to)
    assert (world.shard.reading(), world.shard.acks, world.seen) == (before, 0, [])


async def test_a_seek_ends_a_wait_for_an_event(autojump_clock, world):
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def seek() -> None:
            await trio.sleep(1)
            world.shard.seek(Checkpoint("300"))
            await trio.sleep(1)
            world.source.send(event(301))

        batch = await world.next()
    assert [each.sequence_number for each in batch] == ["301"]


async def test_a_seek_forgets_the_batch_that_waits_and_the_rest_of_an_event(autojump_clock):
    world = World(parts=[EventPart((record(101),), False), EventPart((record(102),), True)])
    await world.next(event(101, 102))
    world.shard.seek(START)
    assert not world.shard.has_pending
    with trio.move_on_after(1) as scope:
        await anext(world.shard)
    assert scope.cancelled_caught  # it waits for its new source


# --- where it ends -----------------------------------------------------------------------------------------


async def test_a_shard_is_complete_when_all_before_its_limit_is_delivered(autojump_clock):
    world = World(limit=ShardLimit(WALL + 5, lambda: False))
    late = replace(event(101, 102), records=(record(101), record(102, WALL + 5)))
    batch = await world.next(late)
    assert [each.sequence_number for each in batch] == ["101"]
    assert batch.continuation is None
    assert world.shard.is_complete
    assert await world.next() is None
    assert (world.completions, world.shard.has_ended, world.shard.is_finished) == (1, True, False)


async def test_a_batch_that_waits_is_delivered_before_the_end(autojump_clock):
    world = World(limit=ShardLimit("now", lambda: False))
    world.source.meanwhile = world.shard.pause
    with trio.move_on_after(1):
        await world.next(event(101))
    assert not world.shard.is_complete
    world.shard.resume()
    assert len(await world.next()) == 1
    assert world.shard.is_complete


async def test_all_parts_of_an_event_are_delivered_before_the_end(autojump_clock):
    world = World(
        parts=[EventPart((record(101),), False), EventPart((record(102),), True)],
        limit=ShardLimit("now", lambda: False),
    )
    await world.next(event(101, 102))
    assert not world.shard.is_complete
    assert len(await world.next()) == 1
    assert world.shard.is_complete


async def test_a_seek_begins_the_way_to_the_limit_again(autojump_clock):
    world = World(limit=ShardLimit("now", lambda: False))
    await world.next(event(101))
    assert world.shard.is_complete
    world.shard.seek(START)
    assert not world.shard.is_complete


@pytest.mark.parametrize(("options", "is_complete"), [({"service_time": lambda: WALL + 9}, True), ({}, False)])
async def test_the_tip_is_beyond_a_time_by_the_clock_of_the_service(autojump_clock, options, is_complete):
    world = World(limit=ShardLimit(WALL + 5, lambda: False), **options)
    await world.next(event(101))
    assert world.shard.is_complete is is_complete


# --- limits of age -----------------------------------------------------------------------------------------


def limits(world: World, max_age: float | None = None, max_behind: float | None = None) -> AgeLimits:
    return AgeLimits("s-0", max_age, max_behind, lambda: WALL, world.seen.append)


async def test_a_backlog_is_skipped_to_the_tip_and_acks_still_count(autojump_clock, world):
    world.shard.ages = limits(world, max_behind=600)
    batch = await world.next(event(101))
    await trio.sleep(3)
    with trio.move_on_after(1):
        await world.next(event(102, behind=700_000))
    first, second = world.sources
    assert (first.closed, second.position) == ([("seek", 8.0)], Position.at_timestamp(WALL - 1))
    assert world.unread.calls == [("received", 1, 0), ("restart", WALL - 1, None)]
    reading = world.shard.reading()
    assert (reading.known_since, reading.last_event_at, reading.unacked_since) == (8.0, None, 5.0)
    world.shard.ack(batch)
    assert not world.shard.has_unacked


async def test_records_that_are_too_old_are_not_delivered_and_the_checkpoint_passes_them(autojump_clock, world):
    world.shard.ages = limits(world, max_age=600)
    old = replace(event(101, 102, to="150"), records=(record(101, WALL - 601), record(102)))
    batch = await world.next(event(90, arrived=WALL - 601, to="100"), event(to="100"), old)
    assert [each.sequence_number for each in batch] == ["102"]
    world.shard.ack(batch)
    assert world.shard.acked == Checkpoint("150")


@pytest.mark.parametrize("by", ["the dead-letter sink", "a seek", "both"])
async def test_records_that_are_too_old_are_read_again_if_they_are_not_stored(autojump_clock, world, by):
    world.shard.ages = limits(world, max_age=600)
    stored: list[tuple[int, int]] = []

    async def store(batch: Batch) -> bool:
        stored.append((batch.number, len(batch)))
        if len(stored) == 1 and by != "the dead-letter sink":
            world.shard.seek(START)
            world.source.send(event(103))
        return len(stored) > 1 or by == "a seek"

    world.shard.ages.dead_letter = store
    mixed = replace(event(101, 102), records=(record(101, WALL - 601), record(102)))
    batch = await world.next(mixed)
    assert [each.sequence_number for each in batch] == (["102"] if by == "the dead-letter sink" else ["103"])
    assert stored == ([(0, 1), (1, 1)] if by == "the dead-letter sink" else [(0, 1)])
