"""The subscription of one shard: renewals, failures, silence and back-pressure, over hours of virtual time."""

import itertools
import json
import random
import weakref

import pytest
import trio
import trio.testing

from efo.errors import (
    AccessDeniedError,
    ConsumerReplacedError,
    GoAwayError,
    InternalFailureError,
    ProtocolError,
    ResourceInUseError,
    ResourceNotFoundError,
    ServiceError,
    ShardGoneError,
    SilenceError,
    StreamResetError,
    ThrottledError,
    TlsError,
    TransportError,
)
from efo.events import DeliveryBlocked, EventReceived, SubscribeAttempted, SubscriptionEnded
from efo.kinesis.pacing import SubscribePacer
from efo.kinesis.response_stream import ResponseStream
from efo.kinesis.shard_subscription import ShardEnd, ShardSubscription, end_reason
from efo.kinesis.subscribe_call import EventStream
from efo.model import ChildShard, HashKeyRange, Position, PositionType, Record
from efo.protocol.eventstream import encode
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.subscription import SubscriptionTiming

START = Position.trim_horizon()
PART = "part"
EVENT_HEADERS = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
CHILDREN = (ChildShard("child", ("shard",), HashKeyRange("0", "1")),)
IN_USE = ResourceInUseError("ResourceInUseException", "wait")
NOT_FOUND = ResourceNotFoundError("ResourceNotFoundException", "not found")
DENIED = AccessDeniedError("AccessDeniedException", "no")


def event(*numbers, continuation=None):
    records = tuple(Record(str(number), 0.0, b"", "k") for number in numbers)
    return SubscribeToShardEvent(records, 0, str(numbers[-1] if continuation is None else continuation))


def last_event(*numbers):
    return SubscribeToShardEvent(event(*numbers, continuation=0).records, 0, None, CHILDREN)


class ScriptedEvents:
    """The events of an accepted call, from a script, one after the other as they are taken. `run` must be running.

    Numbers are seconds to wait, events are returned, errors are raised, and None is the clean end. PART: a part of an
    event arrives. `delivered`: the number of events that were returned. `on_goaway`: call it to report GOAWAY.
    """

    def __init__(self, script):
        self._script = iter(script)
        self._arrived = []
        self._taken = trio.Event()
        self.delivered = 0
        self.closed = False
        self.on_goaway = None
        self._on_change = None
        self._changed = trio.Event()

    def notify_change(self, callback):
        self._on_change = callback

    def notify_goaway(self, callback):
        self.on_goaway = callback

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_exception):
        self.closed = True
        self._taken.set()

    async def run(self):
        for step in self._script:
            if isinstance(step, int | float):
                await trio.sleep(step)
                continue
            self._arrived.append(step)
            self._taken = trio.Event()
            self._changed.set()
            if self._on_change:
                self._on_change()
            await self._taken.wait()
            if self.closed:
                return

    @property
    def has_more(self):
        return bool(self._arrived)

    def read(self):
        match self._arrived:
            case []:
                return None
            case [None]:
                return 0
            case ["part"]:
                self._take()
                return 1
            case [SubscribeToShardEvent() as arrived]:
                self._take()
                self.delivered += 1
                return arrived, 100
            case [error]:
                raise error

    async def receive(self):
        while (received := self.read()) is None or received == 1:
            self._changed = trio.Event()
            await self._changed.wait()
        return received or None

    def _take(self):
        self._arrived.clear()
        self._taken.set()


class Service:
    """Accepts each call with the next script. An error in place of a script rejects the call.

    `calls`: the time and the position of each call. `streams`: the events of the accepted calls.
    """

    def __init__(self, *scripts):
        self._scripts = iter(scripts)
        self.calls = []
        self.streams = []

    async def call(self, shard_id, position):
        assert shard_id == "shard"
        self.calls.append((round(trio.current_time(), 3), position))
        assert len(self.calls) < 1000, "it calls without end"
        await trio.lowlevel.checkpoint()
        script = next(self._scripts, [])
        if isinstance(script, Exception):
            raise script
        self.streams.append(ScriptedEvents(script))
        trio.lowlevel.spawn_system_task(self.streams[-1].run)
        return self.streams[-1]

    @property
    def positions(self):
        return [position for _, position in self.calls]


class LiveShard:
    """A service with one shard that gets a record each second. Subscriptions last `lifetime` seconds."""

    def __init__(self, lifetime=300.0):
        self.lifetime = lifetime
        self.calls = []

    async def call(self, _shard_id, position):
        self.calls.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        at = int(position.sequence_number) if position.type is PositionType.AFTER_SEQUENCE_NUMBER else -1
        events = ScriptedEvents(self._events(at, trio.current_time() + self.lifetime))
        trio.lowlevel.spawn_system_task(events.run)
        return events

    def _events(self, at, until):
        while trio.current_time() < until:
            tip = int(trio.current_time())
            yield event(*range(at + 1, tip + 1), continuation=tip)
            at = tip
            yield 5.0
        yield None


def arrive(response, data):
    response.on_data((data,), len(data), 0)


def iter_and_forget(script):
    """Yield the steps of a script, and keep none that was yielded."""
    while script:
        yield script.pop(0)


@pytest.fixture
def reported():
    return []


@pytest.fixture
async def subscribe(nursery, reported):
    limiter = SubscribePacer(1000.0)
    await nursery.start(limiter.run)

    async def diagnose(error):
        await trio.lowlevel.checkpoint()
        return diagnoses.pop(0) if diagnoses else error

    diagnoses = []

    def subscribe(service, position=START, *, attempts=nursery, diagnosis=None, **timing):
        if diagnosis is not None:
            diagnoses.append(diagnosis)
        return ShardSubscription(
            attempts,
            "shard",
            position,
            caller=service,
            limiter=limiter,
            diagnose=diagnose,
            rng=random.Random(7),
            timing=SubscriptionTiming(**timing),
            observer=reported.append,
        )

    return subscribe


async def take(subscription, count):
    """Receive `count` events and return the sequence numbers of their records."""
    return [[int(record.sequence_number) for record in (await subscription.receive()).records] for _ in range(count)]


def reasons(reported):
    return [e.reason for e in reported if isinstance(e, SubscriptionEnded)]


class TestHours:
    @pytest.mark.parametrize(
        ("lifetime", "renew_from", "reason", "calls"),
        [(300.0, 240.0, "renewed", range(24, 31)), (300.0, 1000.0, "expired", range(23, 26))],
        ids=["renewed before the end", "ended by the service"],
    )
    @pytest.mark.scenario("G45")
    async def test_each_record_is_received_once(
        self, subscribe, reported, autojump_clock, lifetime, renew_from, reason, calls
    ):
        shard = LiveShard(lifetime)
        subscription = subscribe(shard, renew_from=renew_from, renew_to=renew_from + 45)
        numbers = []
        while trio.current_time() < 7200:
            received = await subscription.receive()
            numbers += (int(record.sequence_number) for record in received.records)
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > 7190
        assert set(reasons(reported)) == {reason}
        assert len(shard.calls) in calls
        assert all(later - earlier >= 5.0 for earlier, later in itertools.pairwise(shard.calls))

    async def test_no_event_is_kept_after_its_delivery(self, subscribe, autojump_clock):
        class Event(SubscribeToShardEvent, weakref=True):
            pass

        first, second = (Event((), 0, "1"), Event((), 0, "2"))
        script, delivered = [first, 1.0, second, 1.0], [weakref.ref(first), weakref.ref(second)]
        del first, second
        subscription = subscribe(Service(iter_and_forget(script)))
        for _ in delivered:
            assert await subscription.receive() is not None
        await trio.testing.wait_all_tasks_blocked()
        assert [kept() for kept in delivered] == [None, None]

    async def test_renewals_leave_no_gap_between_events(self, subscribe, reported, autojump_clock):
        subscription = subscribe(LiveShard())
        while trio.current_time() < 3600:
            await subscription.receive()
        intervals = [e.interval for e in reported if isinstance(e, EventReceived) and e.interval is not None]
        assert max(intervals) <= 5.1

    async def test_a_reader_that_pauses_for_long_misses_nothing(self, subscribe, reported, autojump_clock):
        subscription = subscribe(LiveShard())
        numbers = []
        for pause in (0, 60, 0, 400, 0, 0, 1000, 0, 0, 7200, 0, 0, 0):
            await trio.sleep(pause)
            numbers += (int(record.sequence_number) for record in (await subscription.receive()).records)
        while numbers[-1] < trio.current_time() - 6:
            numbers += (int(record.sequence_number) for record in (await subscription.receive()).records)
        assert numbers == list(range(len(numbers)))
        assert "silence" not in reasons(reported)


class TestFailures:
    @pytest.mark.scenario("G54", "G55")
    async def test_attempts_before_the_first_event_start_at_the_initial_position(self, subscribe, autojump_clock):
        service = Service(TransportError("broke"), ThrottledError("Limit", ""), [None], [event(5)])
        subscription = subscribe(service, Position.latest())
        assert await take(subscription, 1) == [[5]]
        assert service.positions == [Position.latest()] * 4
        times = [at for at, _ in service.calls]
        assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(times))

    @pytest.mark.parametrize(
        ("ending", "reason"),
        [
            (None, "expired"),
            (StreamResetError("reset", code=2), "reset"),
            (GoAwayError("bye"), "goaway"),
            (TransportError("cut"), "transport"),
            (ProtocolError("nonsense"), "protocol"),
            (InternalFailureError("InternalFailure", ""), "service"),
            (IN_USE, "service"),
            (ThrottledError("KMSThrottlingException", ""), "throttled"),
        ],
    )
    @pytest.mark.scenario("G46")
    async def test_the_next_attempt_starts_after_the_delivered_events(
        self, subscribe, reported, autojump_clock, ending, reason
    ):
        service = Service([event(1), event(2, continuation=4), 7, ending], [event(5)])
        subscription = subscribe(service)
        assert await take(subscription, 3) == [[1], [2], [5]]
        # The next attempt starts at once, since the last success was more than five seconds ago.
        assert service.calls == [(0.0, Position.trim_horizon()), (7.0, Position.after("4"))]
        assert reasons(reported) == [reason]
        assert service.streams[0].closed

    async def test_the_next_attempt_starts_five_seconds_after_the_last_success(self, subscribe, autojump_clock):
        service = Service([event(1), None], [event(2)])
        assert await take(subscribe(service), 2) == [[1], [2]]
        assert service.calls[1] == (5.0, Position.after("1"))

    @pytest.mark.scenario("G52")
    async def test_resource_in_use_at_the_start_is_repeated_each_second_for_five_seconds(
        self, subscribe, reported, autojump_clock
    ):
        """The last success, of a process that was killed, may be up to five seconds ago."""
        service = Service(*[IN_USE] * 8, [event(1)])
        await take(subscribe(service), 1)
        times = [at for at, _ in service.calls]
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert pauses[:5] == [1.0] * 5
        assert all(pause >= 5.0 for pause in pauses[5:])
        attempted = [e.error_type for e in reported if isinstance(e, SubscribeAttempted)]
        assert attempted == ["ResourceInUseException"] * 8 + [None]

    async def test_a_killed_process_is_replaced_within_a_second_of_the_services_rule(self, subscribe, autojump_clock):
        service = Service(IN_USE, IN_USE, [event(1)])
        await take(subscribe(service), 1)
        assert [at for at, _ in service.calls] == [0.0, 1.0, 2.0]

    async def test_repeated_failures_back_off(self, subscribe, autojump_clock):
        service = Service(*[TransportError("broke")] * 40, [event(1)])
        await take(subscribe(service), 1)
        # 36 of them wait up to 30 s each. Full jitter halves that on average.
        assert 200 < service.calls[-1][0] < 36 * 30

    @pytest.mark.parametrize("where", ["rejected call", "event stream"])
    async def test_an_error_that_is_not_retryable_is_raised_and_ends_the_attempts(
        self, subscribe, autojump_clock, where
    ):
        service = Service(DENIED) if where == "rejected call" else Service([event(1), DENIED])
        subscription = subscribe(service)
        if where == "event stream":
            await take(subscription, 1)
        with pytest.raises(AccessDeniedError):
            await subscription.receive()
        await trio.sleep(1000)
        assert len(service.calls) == 1

    @pytest.mark.parametrize("where", ["rejected call", "event stream"])
    async def test_resource_not_found_is_diagnosed(self, subscribe, autojump_clock, where):
        service = Service(NOT_FOUND if where == "rejected call" else [NOT_FOUND], [event(1)])
        assert await take(subscribe(service, diagnosis=ConsumerReplacedError("replaced")), 1) == [[1]]
        with pytest.raises(ShardGoneError):
            await subscribe(Service(NOT_FOUND), diagnosis=ShardGoneError("gone")).receive()

    async def test_failed_renewals_do_not_disturb_the_live_subscription(self, subscribe, reported, autojump_clock):
        steady = [step for n in range(80) for step in (event(n), 5)]
        service = Service(steady, IN_USE, TransportError("broke"), [1, event(60)])
        subscription = subscribe(service)
        numbers = []
        while 60 not in numbers:
            numbers += (await take(subscription, 1))[0]
        assert numbers == [*range(len(numbers) - 1), 60]
        assert len(numbers) > 45
        assert len(service.calls) == 4
        await trio.testing.wait_all_tasks_blocked()
        assert reasons(reported) == ["renewed"]

    @pytest.mark.scenario("G52")
    async def test_a_renewal_that_is_rejected_in_its_event_stream_is_not_a_take_over(
        self, subscribe, reported, autojump_clock
    ):
        """The call is accepted. Then ResourceInUse in its event stream means that the live subscription stays."""
        steady = [step for n in range(80) for step in (event(n), 5)]
        service = Service(steady, [IN_USE])
        assert await take(subscribe(service, renew_from=240, renew_to=240), 50) == [[n] for n in range(50)]
        assert [at for at, _ in service.calls] == [0.0, 240.0]
        assert reasons(reported) == ["service"]

    async def test_a_take_over_that_ends_the_live_stream_first_is_reported_as_renewed(
        self, subscribe, reported, autojump_clock
    ):
        service = Service([event(1), 250, IN_USE], [20, event(2)])
        subscription = subscribe(service, renew_from=240, renew_to=240, silence_timeout=1000)
        assert await take(subscription, 2) == [[1], [2]]
        assert reasons(reported) == ["renewed"]

    @pytest.mark.parametrize("is_waiting", [True, False], ids=["receive waits", "receive is called later"])
    async def test_goaway_starts_a_renewal_at_once(self, subscribe, nursery, reported, is_waiting, autojump_clock):
        service = Service([event(1), 30, event(2)], [event(2)])
        subscription = subscribe(service)
        numbers = await take(subscription, 1)

        async def take_one():
            numbers.extend(await take(subscription, 1))

        await trio.sleep(9)
        if is_waiting:
            nursery.start_soon(take_one)
        await trio.sleep(1)
        service.streams[0].on_goaway()
        if not is_waiting:
            nursery.start_soon(take_one)
        await trio.sleep(1)
        assert numbers == [[1], [2]]
        assert service.calls == [(0.0, START), (10.0, Position.after("1"))]
        assert reasons(reported) == ["renewed"]


class TestShardEnd:
    async def test_the_shard_end_follows_the_last_records(self, subscribe, reported, autojump_clock):
        service = Service([event(1), last_event(2, 3)])
        subscription = subscribe(service)
        assert await take(subscription, 2) == [[1], [2, 3]]
        assert await subscription.receive() == ShardEnd(CHILDREN)
        await trio.sleep(1000)
        assert len(service.calls) == 1
        assert service.streams[0].closed
        assert reasons(reported) == ["shard_end"]


class TestSilence:
    @pytest.mark.scenario("G50")
    async def test_an_accepted_call_without_an_event_is_replaced_after_the_silence_timeout(
        self, subscribe, reported, autojump_clock
    ):
        service = Service([], [event(1)])
        assert await take(subscribe(service), 1) == [[1]]
        assert 35.0 <= service.calls[1][0] <= 36.0
        assert reasons(reported) == ["silence"]

    @pytest.mark.scenario("G57")
    async def test_a_live_subscription_that_becomes_silent_is_replaced(self, subscribe, reported, autojump_clock):
        service = Service([event(1)], [event(2)])
        subscription = subscribe(service)
        assert await take(subscription, 2) == [[1], [2]]
        assert service.calls[1] == (35.0, Position.after("1"))
        assert reasons(reported) == ["silence"]
        assert service.streams[0].closed

    @pytest.mark.parametrize("before", [[], [event(1)]], ids=["first event", "later event"])
    async def test_an_event_that_arrives_slowly_is_not_silence(self, subscribe, reported, autojump_clock, before):
        service = Service([*before, *[20, PART] * 5, 20, event(2)])
        assert await take(subscribe(service), len(before) + 1) == [*([[1]] if before else []), [2]]
        assert (len(service.calls), reasons(reported), trio.current_time()) == (1, [], 120.0)

    @pytest.mark.parametrize("before", [[], [event(1)]], ids=["first event", "later event"])
    async def test_an_event_that_is_never_complete_is_silence_after_five_minutes(
        self, subscribe, reported, autojump_clock, before
    ):
        service = Service([*before, *[20, PART] * 100], [event(2)])
        subscription = subscribe(service, renew_from=1000, renew_to=1000)
        assert (await take(subscription, len(before) + 1))[-1] == [2]
        assert 300.0 <= service.calls[1][0] <= 301.0
        assert reasons(reported) == ["silence"]

    @pytest.mark.scenario("G57")
    async def test_a_busy_reader_is_not_silence(self, subscribe, reported, autojump_clock):
        service = Service([event(1), event(2), event(3)])
        subscription = subscribe(service)
        await take(subscription, 1)
        await trio.sleep(100)
        assert await take(subscription, 2) == [[2], [3]]
        assert len(service.calls) == 1
        assert reasons(reported) == []
        # Only the second event waited for the reader. The third one was not fetched meanwhile.
        assert [e.duration for e in reported if isinstance(e, DeliveryBlocked)] == [100.0]

    async def test_an_event_is_blocked_from_its_arrival_until_the_reader_takes_it(
        self, subscribe, reported, autojump_clock
    ):
        subscription = subscribe(Service([event(1), 7, event(2), 9, event(3), 1]))
        await take(subscription, 1)
        await trio.sleep(10)
        await take(subscription, 2)
        assert [e.duration for e in reported if isinstance(e, DeliveryBlocked)] == [3.0]

    @pytest.mark.parametrize("end", [None, StreamResetError("reset", code=2)], ids=["a clean end", "a reset"])
    async def test_an_end_that_waits_for_the_reader_is_blocked_as_an_event_is(
        self, subscribe, reported, autojump_clock, end
    ):
        subscription = subscribe(Service([event(1), 7, end], [event(2)]))
        await take(subscription, 1)
        await trio.sleep(10)
        assert subscription.pending_since == 7.0
        await take(subscription, 1)
        assert [e.duration for e in reported if isinstance(e, DeliveryBlocked)] == [3.0]

    async def test_the_first_event_of_a_renewal_that_waits_for_the_reader_is_blocked(
        self, subscribe, reported, autojump_clock
    ):
        subscription = subscribe(Service([event(1), 200], [5, event(2)]), renew_from=20, renew_to=20)
        await take(subscription, 1)
        with trio.move_on_after(21):
            await subscription.receive()  # so that the renewal is due, and asked for
        await trio.sleep(9)
        assert subscription.pending_since == 25.0
        await take(subscription, 1)
        assert [e.duration for e in reported if isinstance(e, DeliveryBlocked)] == [5.0]

    async def test_what_waits_when_a_subscription_is_closed_was_blocked_until_then(
        self, subscribe, reported, autojump_clock
    ):
        subscription = subscribe(Service([event(1), event(2)]))
        await take(subscription, 1)
        await trio.sleep(10)
        subscription.close("seek")
        assert [e.duration for e in reported if isinstance(e, DeliveryBlocked)] == [10.0]


class TestBackPressure:
    @pytest.mark.scenario("G56")
    async def test_no_event_is_fetched_ahead_of_the_reader(self, subscribe, autojump_clock):
        service = Service([event(n) for n in range(100)])
        subscription = subscribe(service)
        assert await take(subscription, 1) == [[0]]
        await trio.sleep(30)
        assert service.streams[0].delivered == 1
        assert await take(subscription, 3) == [[1], [2], [3]]
        await trio.testing.wait_all_tasks_blocked()
        assert service.streams[0].delivered == 4

    @pytest.mark.scenario("G56")
    async def test_no_call_is_made_before_the_first_receive(self, subscribe, autojump_clock):
        service = Service([event(1)])
        subscribe(service)
        await trio.sleep(30)
        assert service.calls == []

    async def test_other_tasks_run_between_events_that_have_all_arrived(self, subscribe, nursery, autojump_clock):
        class Buffered(Service):
            async def call(self, shard_id, position):
                await trio.lowlevel.checkpoint()
                return EventStream(response)

        class Owner:
            is_draining = False
            abandon = open_window = staticmethod(lambda *_arguments: None)

        response = ResponseStream(Owner(), 1, window=2**20)
        padding = {"Data": "A" * 4000, "PartitionKey": "k", "ApproximateArrivalTimestamp": 0}
        for n in range(100):
            body = {"Records": [padding | {"SequenceNumber": str(n)}], "MillisBehindLatest": 0}
            arrive(response, encode(EVENT_HEADERS, json.dumps(body | {"ContinuationSequenceNumber": str(n)}).encode()))
        subscription = subscribe(Buffered())
        await take(subscription, 1)
        turns = 0

        async def count():
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        nursery.start_soon(count)
        assert await take(subscription, 99) == [[n] for n in range(1, 100)]
        assert 4 <= turns <= 99

    async def test_other_tasks_run_between_messages_that_are_no_events(self, subscribe, nursery, autojump_clock):
        class Buffered(Service):
            async def call(self, shard_id, position):
                await trio.lowlevel.checkpoint()
                return EventStream(response)

        class Owner:
            is_draining = False
            abandon = open_window = staticmethod(lambda *_arguments: None)

        response = ResponseStream(Owner(), 1, window=2**20)
        body = {"Records": [], "MillisBehindLatest": 0, "ContinuationSequenceNumber": "0"}
        arrive(response, encode(EVENT_HEADERS, json.dumps(body).encode()))
        subscription = subscribe(Buffered())
        await take(subscription, 1)
        ignored = encode(EVENT_HEADERS | {":event-type": "Unknown"}, b"") * 700  # nearly as much as is taken at once
        for _ in range(20):
            arrive(response, ignored)
        arrive(response, encode(EVENT_HEADERS, json.dumps(body | {"ContinuationSequenceNumber": "1"}).encode()))
        turns = 0

        async def count():
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        nursery.start_soon(count)
        assert await take(subscription, 1) == [[]]
        assert turns >= 2


class TestInterrupt:
    async def test_an_interrupted_receive_returns_none_and_loses_no_event(self, subscribe, nursery, autojump_clock):
        service = Service([event(1), 10, event(2)])
        subscription = subscribe(service)
        await take(subscription, 1)

        async def interrupt():
            await trio.sleep(3)
            subscription.interrupt()

        nursery.start_soon(interrupt)
        assert await subscription.receive() is None
        assert trio.current_time() == 3.0
        assert await take(subscription, 1) == [[2]]
        assert len(service.calls) == 1

    async def test_an_interrupt_without_a_receive_has_no_effect_on_the_next_one(self, subscribe, autojump_clock):
        subscription = subscribe(Service([event(1)]))
        subscription.interrupt()
        assert await take(subscription, 1) == [[1]]

    async def test_a_close_ends_a_receive_and_calls_no_more(self, subscribe, nursery, reported, autojump_clock):
        service = Service([event(1)])
        subscription = subscribe(service)
        await take(subscription, 1)

        async def close():
            await trio.sleep(3)
            subscription.close("seek")

        nursery.start_soon(close)
        assert await subscription.receive() is None
        await trio.sleep(1000)
        assert len(service.calls) == 1
        assert service.streams[0].closed
        assert reasons(reported) == ["seek"]


class TestCancellation:
    async def test_cancelled_receives_lose_no_event(self, subscribe, autojump_clock):
        service = Service([step for n in range(20) for step in (1, event(n))], [event(20)])
        subscription = subscribe(service)
        numbers = []
        while len(numbers) < 20:
            with trio.move_on_after(0.3):
                received = await subscription.receive()
                numbers += (int(record.sequence_number) for record in received.records)
        assert numbers == list(range(20))
        assert len(service.calls) == 1

    async def test_the_cancellation_of_the_nursery_closes_the_streams(self, subscribe, reported, autojump_clock):
        service = Service([event(1)])
        async with trio.open_nursery() as attempts:
            await take(subscribe(service, attempts=attempts), 1)
            attempts.cancel_scope.cancel()
        assert service.streams[0].closed
        assert reasons(reported) == ["shutdown"]

    @pytest.mark.parametrize("after", [0.0, 0.5, 1.5, 20.0])
    async def test_a_cancellation_at_any_time_closes_all_streams_and_reports_their_ends(
        self, subscribe, reported, autojump_clock, after
    ):
        class Slow(Service):
            async def call(self, shard_id, position):
                await trio.sleep(1)
                return await super().call(shard_id, position)

        service = Slow([1, event(1), 1, event(2)])
        with trio.move_on_after(after) as scope:
            async with trio.open_nursery() as attempts:
                await take(subscribe(service, attempts=attempts), 3)
        assert scope.cancelled_caught
        assert all(stream.closed for stream in service.streams)
        assert len(reasons(reported)) == len(service.streams)


async def test_attempts_and_events_are_reported_to_the_observer(subscribe, reported, autojump_clock):
    service = Service([event(1), 5, event(continuation=2), 5, None], [])
    await take(subscribe(service), 2)
    assert reported == [
        SubscribeAttempted("shard", 0.0, 0.0, None),
        EventReceived("shard", 1, 100, 0, None),
        EventReceived("shard", 0, 100, 0, 5.0),
    ]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(SilenceError(""), "silence"), (TlsError(""), "transport"), (ServiceError("X", ""), "service")],
)
def test_each_error_has_an_end_reason(error, reason):
    assert end_reason(error) == reason
