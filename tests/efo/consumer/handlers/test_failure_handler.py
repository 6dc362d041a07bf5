"""What becomes of a batch slice whose handler fails, holds it, or has processed a part of it (rule R11)."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest
import trio
from opentelemetry.sdk.trace import TracerProvider

from efo.consumer.age_limits import AgeLimits
from efo.consumer.handlers.failure_handler import HOLD, FailureHandler, PartDone
from efo.errors import ConfigurationError, DeserializationError, HandlerError, IsolateShardError, RecordTooOldError
from efo.events import HandlerFailed, RecordDeadLettered, RecordSkipped
from efo.model import Batch, Checkpoint, Record
from efo.protocol.failure import DeadLetter, FailurePolicy
from efo.protocol.per_key_order import BatchSlice

SKIP = FailurePolicy(then="skip")
ISOLATE = FailurePolicy(then="isolate", cooldown=7.0)
RETRY = FailurePolicy(attempts=3, backoff=2.0)


def batch_of(*numbers: int) -> Batch:
    return Batch("orders", "s-0", tuple(Record(str(n), 0.0, b"1", "key", None, n % 10) for n in numbers), None, 0, 0)


ONE, FOUR = batch_of(105), batch_of(101, 102, 103, 104)


class Shard:
    """What a FailureHandler calls of a shard. `acked`: what it acked by checkpoint. `waits`: seconds of each pause.

    `is_wanted_until`: after so many pauses or calls of `is_wanted`, a seek or a drain came.
    """

    shard_id = "s-0"
    stream = "orders"
    is_traced = False

    def __init__(self, ages: AgeLimits | None = None) -> None:
        self.ages = ages
        self.seen: list[object] = []
        self.observer = self.seen.append
        self.acked: list[tuple[Checkpoint, bool]] = []
        self.waits: list[float] = []
        self.is_wanted_until = inf
        self.current = True

    def is_wanted(self, _batch: Batch) -> bool:
        self.is_wanted_until -= 1
        return self.is_wanted_until >= 0

    def is_current(self, _batch: Batch) -> bool:
        return self.current

    async def wait(self, batch: Batch, seconds: float) -> bool:
        self.waits.append(seconds)
        await trio.sleep(seconds)
        return self.is_wanted(batch)

    def ack_to(self, checkpoint: Checkpoint, *, inclusive: bool = True) -> None:
        self.acked.append((checkpoint, inclusive))


class World:
    """A FailureHandler of a function that returns or raises the next of `outcomes` after a second; at last None.

    `calls`: the numbers of the records of each call. `acked`: those of each slice that was acked.
    """

    def __init__(self, on_error=RETRY, *outcomes, ages=None, **options) -> None:
        self.outcomes = [*outcomes]
        self.shard = Shard(ages)
        self.calls: list[list[int]] = []
        self.acked: list[list[int]] = []
        self.handler = FailureHandler(
            self.shard,
            self._call,
            lambda part: self.acked.append(numbers_of(part)),
            on_error=on_error,
            random=lambda: 1.0,
            observer=options.get("observer"),
        )

    async def _call(self, part: BatchSlice):
        await trio.sleep(1)
        self.calls.append(numbers_of(part))
        return self._next()

    def _next(self):
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def process(self, batch: Batch = ONE, **options) -> None:
        await self.handler.process(BatchSlice.whole(batch), **options)

    def reported(self, kind: type) -> list:
        return [event for event in self.shard.seen if isinstance(event, kind)]

    @property
    def actions(self) -> list[str]:
        return [event.action for event in self.reported(HandlerFailed)]


def numbers_of(part: BatchSlice) -> list[int]:
    return [int(part.batch.records[index].sequence_number) for index in part.indexes]


# --- done, and held ----------------------------------------------------------------------------------------


async def test_a_slice_that_is_processed_is_acked(autojump_clock):
    world = World()
    await world.process(FOUR)
    assert (world.calls, world.acked, world.shard.seen) == ([[101, 102, 103, 104]], [[101, 102, 103, 104]], [])
    assert (world.handler.held, world.handler.is_abandoned) == (None, False)


async def test_a_slice_that_is_held_is_acked_with_the_next_that_is_done(autojump_clock):
    world = World(RETRY, HOLD)
    await world.process(FOUR)
    assert (world.acked, world.shard.acked) == ([], [])
    assert world.handler.held == BatchSlice.whole(FOUR)
    await world.process()
    assert (world.acked, world.handler.held) == ([[105]], None)


@pytest.mark.parametrize(
    ("first", "acked"),
    [
        (FOUR.records[2], (Checkpoint("102", 2), True)),
        (FOUR.records[3], (Checkpoint("103", 3), True)),
        (FOUR.records[1], (Checkpoint("101", 1), True)),
        (FOUR.records[0], (Checkpoint("101", 1), False)),
        (Record("90", 0.0, b"", "key"), (Checkpoint("90"), False)),  # of an earlier batch
    ],
)
async def test_what_came_before_a_record_that_is_held_is_acked(autojump_clock, first, acked):
    world = World(RETRY, HOLD.since(first))
    await world.process(FOUR)
    assert (world.shard.acked, world.acked) == ([acked], [])
    assert world.handler.held == BatchSlice.whole(FOUR)


async def test_after_a_seek_nothing_is_acked_before_a_record_that_is_held(autojump_clock):
    world = World(RETRY, HOLD.since(FOUR.records[2]))
    world.shard.current = False
    await world.process(FOUR)
    assert world.shard.acked == []


async def test_a_record_that_the_handler_was_not_called_with_cannot_be_held(autojump_clock):
    world = World(RETRY, HOLD.since(FOUR.records[2]))
    with pytest.raises(HandlerError, match="after those that the handler was called with"):
        await world.handler.process(BatchSlice(FOUR, (0, 1)))
    with pytest.raises(ConfigurationError, match="record="):
        HOLD.since(FOUR)


async def test_what_is_left_of_a_part_is_processed_next(autojump_clock):
    world = World(RETRY, PartDone(1, None), PartDone(2, HOLD))
    await world.process(FOUR)
    assert world.calls == [[101, 102, 103, 104], [102, 103, 104], [104]]
    assert world.acked == [[101], [104]]
    assert not world.handler.is_abandoned


async def test_what_is_left_of_a_part_is_abandoned_after_a_seek_or_in_a_drain(autojump_clock):
    world = World(RETRY, PartDone(1, None))
    world.shard.is_wanted_until = 0
    await world.process(FOUR)
    assert (world.calls, world.acked, world.handler.is_abandoned) == ([[101, 102, 103, 104]], [[101]], True)


async def test_what_a_handler_may_not_return_is_refused(autojump_clock):
    world = World(RETRY, 1)
    with pytest.raises(HandlerError, match=r"the handler returned int: expected None when it is done, or efo\.HOLD"):
        await world.process()


# --- retries -----------------------------------------------------------------------------------------------


async def test_each_failure_is_reported_with_its_time_and_what_happens_next(autojump_clock):
    world = World(RETRY, OSError("down"), OSError("down"))
    await trio.sleep(50)
    await world.process(FOUR)
    assert world.shard.waits == [2.0, 4.0]
    assert world.shard.seen == [
        HandlerFailed("s-0", "101", 4, 1, 1.0, "OSError", "retry", 2.0, "handler"),
        HandlerFailed("s-0", "101", 4, 2, 1.0, "OSError", "retry", 4.0, "handler"),
    ]
    assert world.acked == [[101, 102, 103, 104]]


async def test_the_last_attempt_decides(autojump_clock):
    world = World(RETRY, OSError("1"), OSError("2"), LookupError("3"))
    with pytest.raises(LookupError):
        await world.process()
    assert (world.actions, world.acked) == (["retry", "retry", "stop"], [])


async def test_the_time_for_retries_counts_from_the_first_failure(autojump_clock):
    policy = FailurePolicy(attempts=None, retry_for=10.0, backoff=4.0, backoff_limit=4.0)
    world = World(policy, *[OSError("down")] * 9)
    await trio.sleep(50)
    with pytest.raises(OSError, match="down"):
        await world.process()
    # The failures come after 0, 5 and 10 s: the last pause would be longer than the time that is left.
    assert (world.shard.waits, world.actions) == ([4.0, 4.0], ["retry", "retry", "stop"])


async def test_a_slice_is_abandoned_when_a_seek_or_a_drain_comes_between_two_attempts(autojump_clock):
    world = World(RETRY, OSError("down"))
    world.shard.is_wanted_until = 0
    await world.process()
    assert (world.calls, world.acked, world.handler.is_abandoned) == ([[105]], [], True)


async def test_data_that_cannot_be_deserialized_is_not_tried_again(autojump_clock):
    policy = FailurePolicy(attempts=None, retry_for=100.0, then="skip")
    world = World(policy, DeserializationError("no JSON", sequence_number="105"))
    await world.process()
    assert (world.actions, world.acked) == (["skip"], [[105]])


async def test_failures_are_reported_to_an_observer_of_the_handler_alone(autojump_clock):
    own: list[object] = []
    world = World(RETRY, OSError("down"), observer=own.append)
    await world.process()
    assert (len(own), world.shard.seen) == (1, [])


async def test_a_failure_is_an_event_of_the_span_of_a_shard_that_is_traced(autojump_clock):
    for is_traced in (False, True):
        world = World(RETRY, OSError("down"))
        world.shard.is_traced = is_traced
        with TracerProvider().get_tracer("tests").start_as_current_span("process") as span:
            await world.process()
        assert [event.attributes["efo.failure.action"] for event in span.events] == ["retry"] * is_traced


# --- what the policy decides -------------------------------------------------------------------------------


async def test_a_batch_is_split_down_to_the_record_that_fails_and_a_half_is_tried_once(autojump_clock):
    error = ValueError("poison")
    policy = FailurePolicy(attempts=2, backoff=0.0, then="skip")
    world = World(policy, error, error, error, None, error, error)
    await world.process(FOUR)
    assert world.calls == [[101, 102, 103, 104]] * 2 + [[101, 102], [101], [102], [102], [103, 104]]
    assert world.actions == ["retry", "split", "split", "retry", "skip"]
    assert world.acked == [[101], [102], [103, 104]]
    assert world.reported(RecordSkipped) == [RecordSkipped("s-0", "102", 2, "ValueError")]


async def test_a_record_that_is_skipped_after_one_that_is_held_waits_for_it(autojump_clock):
    world = World(SKIP, HOLD, ValueError("poison"))
    await world.process(FOUR)
    await world.process()
    assert world.acked == []
    assert world.handler.held == BatchSlice.whole(ONE)


async def test_the_halves_of_a_slice_are_abandoned_after_a_seek_or_in_a_drain(autojump_clock):
    world = World(SKIP, ValueError("poison"))
    world.shard.is_wanted_until = 1
    await world.process(FOUR)
    assert (world.calls, world.acked) == ([[101, 102, 103, 104], [101, 102]], [[101, 102]])
    assert world.handler.is_abandoned


async def test_an_isolated_shard_names_the_record_and_the_cause(autojump_clock):
    cause = ValueError("a customer")
    world = World(FailurePolicy(attempts=2, backoff=0.0, then="isolate", cooldown=7.0), cause, cause)
    with pytest.raises(IsolateShardError) as raised:
        await world.process()
    error = raised.value
    assert str(error) == "s-0: the handler failed with ValueError at sequence number 105, attempt 2"
    assert (error.cooldown, error.record, error.__cause__) == (7.0, "105/5", cause)


@pytest.mark.parametrize("is_group", [False, True])
async def test_a_handler_that_isolates_its_shard_is_obeyed_whatever_the_policy(autojump_clock, is_group):
    wanted = IsolateShardError("the table is locked")
    world = World(SKIP, ExceptionGroup("two", [ValueError("1"), wanted]) if is_group else wanted)
    with pytest.raises(IsolateShardError) as raised:
        await world.process()
    assert (raised.value, world.shard.seen) == (wanted, [])


@pytest.mark.parametrize("error", [HandlerError("no"), AttributeError("no", name="recrods", obj=ONE)], ids=repr)
async def test_a_mistake_in_the_handler_is_no_failure(autojump_clock, error):
    world = World(SKIP, error)
    with pytest.raises(HandlerError, match="no") as raised:
        await world.process()
    if isinstance(error, HandlerError):
        assert raised.value is error
    else:
        assert str(raised.value) == "the handler function does not fit efo: no"
        assert raised.value.__cause__ is error
    assert (world.shard.seen, world.acked) == ([], [])


async def test_the_strictest_policy_for_the_exceptions_of_a_group_decides(autojump_clock):
    policies = {"ValueError": SKIP, "OSError": ISOLATE}
    group = ExceptionGroup("two", [ValueError("1"), OSError("2")])
    world = World(lambda error: policies[type(error).__name__], group, ValueError("1"))
    with pytest.raises(IsolateShardError):
        await world.process()
    await world.process()
    assert world.actions == ["isolate", "skip"]


@pytest.mark.parametrize(
    ("on_error", "message"),
    [
        (lambda _error: "skip", "on_error returned 'skip' for ValueError: expected a FailurePolicy"),
        (lambda error: error.customer, "on_error raised AttributeError for ValueError, instead of .* FailurePolicy$"),
        (lambda _error: FailurePolicy(attempts=0), "raised ConfigurationError for ValueError, .*: attempts=0"),
    ],
)
async def test_a_policy_function_that_names_no_policy_stops_everything(autojump_clock, on_error, message):
    with pytest.raises(HandlerError, match=message):
        await World(on_error, ValueError("1")).process()


# --- dead letters ------------------------------------------------------------------------------------------


class Sink:
    """A dead-letter sink that returns or raises the next of `outcomes` after a second, at last None."""

    def __init__(self, *outcomes: object) -> None:
        self.outcomes = [*outcomes]
        self.letters: list[DeadLetter] = []

    async def __call__(self, dead_letter: DeadLetter) -> object:
        await trio.sleep(1)
        self.letters.append(dead_letter)
        return World._next(self)

    def policy(self, **options) -> FailurePolicy:
        async def store(dead_letter):
            return await self(dead_letter)

        return FailurePolicy(**options, then="dead_letter", dead_letter=store)


async def test_a_dead_letter_is_acked_when_it_is_stored(autojump_clock):
    error, sink = ValueError("poison"), Sink()
    world = World(sink.policy(attempts=2, backoff=0.0), error, error)
    await world.process()
    assert sink.letters == [DeadLetter("orders", "s-0", ONE.records[0], error, 2)]
    assert world.reported(RecordDeadLettered) == [RecordDeadLettered("s-0", "105", 5, "ValueError")]
    assert (world.acked, world.handler.is_abandoned) == ([[105]], False)


async def test_a_dead_letter_that_cannot_be_stored_is_tried_again_and_then_isolates_the_shard(autojump_clock):
    sink = Sink(*[OSError("down")] * 2)
    world = World(sink.policy(attempts=2, backoff=0.0, cooldown=9.0), *[ValueError("poison")] * 2)
    with pytest.raises(IsolateShardError, match="failed with OSError at sequence number 105, attempt 2") as raised:
        await world.process()
    assert raised.value.cooldown == 9.0
    assert [(event.call, event.action) for event in world.reported(HandlerFailed)] == [
        ("handler", "retry"),
        ("handler", "dead_letter"),
        ("dead_letter", "retry"),
        ("dead_letter", "isolate"),
    ]
    assert (world.acked, world.reported(RecordDeadLettered)) == ([], [])


async def test_a_dead_letter_is_abandoned_when_a_seek_or_a_drain_comes_before_it_is_stored(autojump_clock):
    sink = Sink(OSError("down"))
    world = World(sink.policy(attempts=2, backoff=0.0), *[ValueError("poison")] * 2)
    world.shard.is_wanted_until = 1
    await world.process()
    assert (world.acked, world.handler.is_abandoned, world.reported(RecordDeadLettered)) == ([], True, [])


async def test_a_dead_letter_sink_that_returns_something_is_refused(autojump_clock):
    world = World(Sink(True).policy(), ValueError("poison"))
    with pytest.raises(HandlerError, match="the dead-letter sink returned bool: expected None"):
        await world.process()


async def test_a_mistake_in_a_dead_letter_sink_names_it(autojump_clock):
    world = World(Sink(AttributeError("no", name="recrods", obj=ONE)).policy(), ValueError("poison"))
    with pytest.raises(HandlerError, match="the dead-letter function does not fit efo: no"):
        await world.process()


def limits(max_age: float | None) -> AgeLimits:
    return AgeLimits("s-0", max_age, 60.0, lambda: 0.0, lambda _event: None)


@pytest.mark.parametrize(("max_age", "then"), [(None, "dead_letter"), (600.0, "skip"), (600.0, "dead_letter")])
async def test_records_that_are_too_old_go_to_the_dead_letter_sink_if_there_is_one(autojump_clock, max_age, then):
    sink, ages = Sink(), limits(max_age)
    policies = {"skip": SKIP, "dead_letter": sink.policy()}
    asked: list[Exception] = []

    def policy(error: Exception) -> FailurePolicy:
        asked.append(error)
        return policies[then]

    world = World(policy, ages=ages)
    assert [str(error) for error in asked] == (
        [] if max_age is None else ["the record is older than max_record_age_seconds=600 s"]
    )
    if max_age is None or then == "skip":
        assert ages.dead_letter is None
        return
    assert await ages.dead_letter(FOUR)
    assert [(letter.record, letter.attempts) for letter in sink.letters] == [(record, 0) for record in FOUR.records]
    assert {type(letter.error) for letter in sink.letters} == {RecordTooOldError}
    assert [event.error_type for event in world.reported(RecordDeadLettered)] == ["record_too_old"] * 4


async def test_records_that_are_too_old_are_not_done_if_a_seek_or_a_drain_comes_first(autojump_clock):
    sink, ages = Sink(OSError("down")), limits(600.0)
    world = World(sink.policy(attempts=2, backoff=0.0), ages=ages)
    world.shard.is_wanted_until = 0
    assert not await ages.dead_letter(FOUR)
    assert len(sink.letters) == 1


# --- flush -------------------------------------------------------------------------------------------------


async def flushed(world: World, *outcomes: object) -> list[str]:
    """Let the handler hold four records, then flush; return what the flush function was called with."""
    called, script = [], SimpleNamespace(outcomes=[*outcomes])

    async def flush(shard_id: str) -> object:
        await trio.sleep(1)
        called.append(shard_id)
        return World._next(script)

    await world.handler.flush(flush)
    assert called == []  # it holds nothing
    world.outcomes.append(HOLD)
    await world.process(FOUR)
    await world.handler.flush(flush)
    return called


async def test_what_is_held_is_acked_after_it_is_flushed(autojump_clock):
    world = World(FailurePolicy(attempts=2, then="skip"))
    assert await flushed(world, OSError("down")) == ["s-0", "s-0"]
    assert (world.acked, world.handler.held) == ([[101, 102, 103, 104]], None)


async def test_what_cannot_be_flushed_is_neither_split_nor_skipped(autojump_clock):
    world = World(SKIP)
    with pytest.raises(IsolateShardError, match="OSError at sequence number 101"):
        await flushed(world, OSError("down"))
    assert (world.actions, world.acked) == (["isolate"], [])


async def test_a_flush_that_a_drain_ends_acks_nothing(autojump_clock):
    world = World(RETRY)
    world.shard.is_wanted_until = 0
    await flushed(world, OSError("down"))
    assert (world.acked, world.handler.held) == ([], BatchSlice.whole(FOUR))


async def test_a_flush_function_that_returns_something_is_refused(autojump_clock):
    with pytest.raises(HandlerError, match="the flush function returned int: expected None"):
        await flushed(World(), 1)
