"""One shard stays subscribed: renewals, failures, silence and back-pressure, over hours of virtual time."""

import itertools
import random

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
from efo.kinesis.shard_subscription import ShardEnd, ShardSubscription, end_reason
from efo.kinesis.subscribe_limiter import SubscribeLimiter
from efo.model import ChildShard, HashKeyRange, Position, PositionType, Record
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.subscription import SubscriptionTiming

START = Position.trim_horizon()
PART = "part"
CHILDREN = (ChildShard("child", ("shard",), HashKeyRange("0", "1")),)
IN_USE = ResourceInUseError("ResourceInUseException", "wait")
NOT_FOUND = ResourceNotFoundError("ResourceNotFoundException", "nobody knows it")
DENIED = AccessDeniedError("AccessDeniedException", "no")


def event(*numbers, continuation=None):
    records = tuple(Record(str(number), 0.0, b"", "k") for number in numbers)
    return SubscribeToShardEvent(records, 0, str(numbers[-1] if continuation is None else continuation))


def last_event(*numbers):
    return SubscribeToShardEvent(event(*numbers, continuation=0).records, 0, None, CHILDREN)


class Stream:
    """An accepted call, as a script: numbers are seconds to wait, events are given, errors raised, None ends it.

    PART: a part of an event arrives.
    """

    def __init__(self, script):
        self._script = iter(script)
        self.given = 0
        self.closed = False
        self.leave = None
        self._arrive = None

    def notify_data(self, tell):
        self._arrive = tell

    def notify_goaway(self, tell):
        self.leave = tell

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_exception):
        self.closed = True

    async def receive(self):
        await trio.lowlevel.checkpoint()
        for step in self._script:
            match step:
                case int() | float():
                    await trio.sleep(step)
                case "part":
                    self._arrive()
                case SubscribeToShardEvent():
                    self.given += 1
                    return step, 100
                case None:
                    return None
                case error:
                    raise error
        return await trio.sleep_forever()


class Service:
    """Answers calls with scripts, one after the other; an error in place of a script refuses."""

    def __init__(self, *answers):
        self._answers = iter(answers)
        self.calls = []
        self.streams = []

    async def call(self, shard_id, position):
        assert shard_id == "shard"
        self.calls.append((round(trio.current_time(), 3), position))
        assert len(self.calls) < 1000, "it calls for ever"
        await trio.lowlevel.checkpoint()
        answer = next(self._answers, [])
        if isinstance(answer, Exception):
            raise answer
        self.streams.append(Stream(answer))
        return self.streams[-1]

    @property
    def positions(self):
        return [position for _, position in self.calls]


class LiveShard:
    """A shard that gets a record each second, and a service that lets calls live for five minutes."""

    def __init__(self, lifetime=300.0):
        self.lifetime = lifetime
        self.calls = []

    async def call(self, _shard_id, position):
        self.calls.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        at = int(position.sequence_number) if position.type is PositionType.AFTER_SEQUENCE_NUMBER else -1
        return Stream(self._events(at, trio.current_time() + self.lifetime))

    def _events(self, at, until):
        while trio.current_time() < until:
            tip = int(trio.current_time())
            yield event(*range(at + 1, tip + 1), continuation=tip)
            at = tip
            yield 5.0
        yield None


@pytest.fixture
def told():
    return []


@pytest.fixture
async def subscribe(nursery, told):
    gate = SubscribeLimiter(1000.0)
    await nursery.start(gate.run)

    async def diagnose(error):
        await trio.lowlevel.checkpoint()
        return told_by.pop(0) if told_by else error

    told_by = []

    def subscribe(service, position=START, *, attempts=nursery, diagnosis=None, **timing):
        if diagnosis is not None:
            told_by.append(diagnosis)
        return ShardSubscription(
            attempts,
            "shard",
            position,
            caller=service,
            limiter=gate,
            diagnose=diagnose,
            rng=random.Random(7),
            timing=SubscriptionTiming(**timing),
            observer=told.append,
        )

    return subscribe


async def take(subscription, count):
    """Receive so many events and return their records' numbers."""
    return [[int(record.sequence_number) for record in (await subscription.receive()).records] for _ in range(count)]


def reasons(told):
    return [e.reason for e in told if isinstance(e, SubscriptionEnded)]


class TestForHours:
    @pytest.mark.parametrize(
        ("lifetime", "renew_from", "reason", "calls"),
        [(300.0, 240.0, "renewed", range(24, 31)), (300.0, 1000.0, "expired", range(23, 26))],
        ids=["renewed before it ends", "ended by the service"],
    )
    @pytest.mark.scenario("G45")
    async def test_each_record_comes_once(self, subscribe, told, autojump_clock, lifetime, renew_from, reason, calls):
        shard = LiveShard(lifetime)
        subscription = subscribe(shard, renew_from=renew_from, renew_to=renew_from + 45)
        got = []
        while trio.current_time() < 7200:
            received = await subscription.receive()
            got += (int(record.sequence_number) for record in received.records)
        assert got == list(range(len(got)))
        assert len(got) > 7190
        assert set(reasons(told)) == {reason}
        assert len(shard.calls) in calls
        assert all(later - earlier >= 5.0 for earlier, later in itertools.pairwise(shard.calls))

    async def test_renewing_leaves_no_gap(self, subscribe, told, autojump_clock):
        subscription = subscribe(LiveShard())
        while trio.current_time() < 3600:
            await subscription.receive()
        intervals = [e.interval for e in told if isinstance(e, EventReceived) and e.interval is not None]
        assert max(intervals) <= 5.1

    async def test_a_reader_that_pauses_for_long_misses_nothing(self, subscribe, told, autojump_clock):
        subscription = subscribe(LiveShard())
        got = []
        for pause in (0, 60, 0, 400, 0, 0, 1000, 0, 0, 7200, 0, 0, 0):
            await trio.sleep(pause)
            got += (int(record.sequence_number) for record in (await subscription.receive()).records)
        while got[-1] < trio.current_time() - 6:
            got += (int(record.sequence_number) for record in (await subscription.receive()).records)
        assert got == list(range(len(got)))
        assert "silence" not in reasons(told)


class TestFailures:
    @pytest.mark.scenario("G54", "G55")
    async def test_before_the_first_event_it_starts_where_it_was_told(self, subscribe, autojump_clock):
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
    async def test_afterwards_behind_what_it_has_delivered(self, subscribe, told, autojump_clock, ending, reason):
        service = Service([event(1), event(2, continuation=4), 7, ending], [event(5)])
        subscription = subscribe(service)
        assert await take(subscription, 3) == [[1], [2], [5]]
        # At once: more than five seconds have passed since the last success.
        assert service.calls == [(0.0, Position.trim_horizon()), (7.0, Position.after("4"))]
        assert reasons(told) == [reason]
        assert service.streams[0].closed

    async def test_after_five_seconds_where_it_ended_early(self, subscribe, autojump_clock):
        service = Service([event(1), None], [event(2)])
        assert await take(subscribe(service), 2) == [[1], [2]]
        assert service.calls[1] == (5.0, Position.after("1"))

    @pytest.mark.scenario("G52")
    async def test_resource_in_use_waits_five_seconds_each_time(self, subscribe, told, autojump_clock):
        service = Service(IN_USE, IN_USE, IN_USE, [event(1)])
        await take(subscribe(service), 1)
        times = [at for at, _ in service.calls]
        assert all(later - earlier >= 5.0 for earlier, later in itertools.pairwise(times))
        attempted = [e.error_type for e in told if isinstance(e, SubscribeAttempted)]
        assert attempted == ["ResourceInUseException"] * 3 + [None]

    async def test_failures_back_off(self, subscribe, autojump_clock):
        service = Service(*[TransportError("broke")] * 40, [event(1)])
        await take(subscribe(service), 1)
        # 36 of them with up to 30 s each: full jitter halves it, on the average.
        assert 200 < service.calls[-1][0] < 36 * 30

    @pytest.mark.parametrize("where", ["on the call", "in the stream"])
    async def test_what_cannot_be_cured_is_raised(self, subscribe, autojump_clock, where):
        service = Service(DENIED) if where == "on the call" else Service([event(1), DENIED])
        subscription = subscribe(service)
        if where == "in the stream":
            await take(subscription, 1)
        with pytest.raises(AccessDeniedError):
            await subscription.receive()
        await trio.sleep(1000)
        assert len(service.calls) == 1

    @pytest.mark.parametrize("where", ["on the call", "in the stream"])
    async def test_not_found_is_diagnosed(self, subscribe, autojump_clock, where):
        service = Service(NOT_FOUND if where == "on the call" else [NOT_FOUND], [event(1)])
        assert await take(subscribe(service, diagnosis=ConsumerReplacedError("anew")), 1) == [[1]]
        with pytest.raises(ShardGoneError):
            await subscribe(Service(NOT_FOUND), diagnosis=ShardGoneError("gone")).receive()

    async def test_a_renewal_that_fails_changes_nothing(self, subscribe, told, autojump_clock):
        steady = [step for n in range(80) for step in (event(n), 5)]
        service = Service(steady, IN_USE, TransportError("broke"), [1, event(60)])
        subscription = subscribe(service)
        got = []
        while 60 not in got:
            got += (await take(subscription, 1))[0]
        assert got == [*range(len(got) - 1), 60]
        assert len(got) > 45
        assert len(service.calls) == 4
        await trio.testing.wait_all_tasks_blocked()
        assert reasons(told) == ["renewed"]

    @pytest.mark.scenario("G52")
    async def test_a_renewal_that_is_refused_in_its_stream_is_not_told_as_a_take_over(
        self, subscribe, told, autojump_clock
    ):
        """The call is accepted, and then the service says that it keeps the live subscription."""
        steady = [step for n in range(80) for step in (event(n), 5)]
        service = Service(steady, [IN_USE])
        assert await take(subscribe(service, renew_from=240, renew_to=240), 50) == [[n] for n in range(50)]
        assert [at for at, _ in service.calls] == [0.0, 240.0]
        assert reasons(told) == ["service"]

    async def test_a_take_over_that_the_live_stream_tells_first_is_one(self, subscribe, told, autojump_clock):
        service = Service([event(1), 250, IN_USE], [20, event(2)])
        subscription = subscribe(service, renew_from=240, renew_to=240, silence_timeout=1000)
        assert await take(subscription, 2) == [[1], [2]]
        assert reasons(told) == ["renewed"]

    @pytest.mark.parametrize("is_waiting", [True, False])
    async def test_a_connection_that_goes_away_is_left_at_once(
        self, subscribe, nursery, told, is_waiting, autojump_clock
    ):
        service = Service([event(1), 30, event(2)], [event(2)])
        subscription = subscribe(service)
        got = await take(subscription, 1)

        async def go_on():
            got.extend(await take(subscription, 1))

        await trio.sleep(9)
        if is_waiting:
            nursery.start_soon(go_on)
        await trio.sleep(1)
        service.streams[0].leave()
        if not is_waiting:
            nursery.start_soon(go_on)
        await trio.sleep(1)
        assert got == [[1], [2]]
        assert service.calls == [(0.0, START), (10.0, Position.after("1"))]
        assert reasons(told) == ["renewed"]


class TestTheEnd:
    async def test_it_comes_after_the_last_records(self, subscribe, told, autojump_clock):
        service = Service([event(1), last_event(2, 3)])
        subscription = subscribe(service)
        assert await take(subscription, 2) == [[1], [2, 3]]
        assert await subscription.receive() == ShardEnd(CHILDREN)
        await trio.sleep(1000)
        assert len(service.calls) == 1
        assert service.streams[0].closed
        assert reasons(told) == ["shard_end"]


class TestSilence:
    @pytest.mark.scenario("G50")
    async def test_a_call_that_is_accepted_and_says_nothing(self, subscribe, told, autojump_clock):
        service = Service([], [event(1)])
        assert await take(subscribe(service), 1) == [[1]]
        assert 35.0 <= service.calls[1][0] <= 36.0
        assert reasons(told) == ["silence"]

    @pytest.mark.scenario("G57")
    async def test_one_that_falls_silent(self, subscribe, told, autojump_clock):
        service = Service([event(1)], [event(2)])
        subscription = subscribe(service)
        assert await take(subscription, 2) == [[1], [2]]
        assert service.calls[1] == (35.0, Position.after("1"))
        assert reasons(told) == ["silence"]
        assert service.streams[0].closed

    @pytest.mark.parametrize("before", [[], [event(1)]], ids=["first", "later"])
    async def test_an_event_that_comes_slowly_is_none(self, subscribe, told, autojump_clock, before):
        service = Service([*before, *[20, PART] * 5, 20, event(2)])
        assert await take(subscribe(service), len(before) + 1) == [*([[1]] if before else []), [2]]
        assert (len(service.calls), reasons(told), trio.current_time()) == (1, [], 120.0)

    @pytest.mark.parametrize("before", [[], [event(1)]], ids=["first", "later"])
    async def test_but_one_that_only_drips_is_given_up(self, subscribe, told, autojump_clock, before):
        service = Service([*before, *[20, PART] * 100], [event(2)])
        subscription = subscribe(service, renew_from=1000, renew_to=1000)
        assert (await take(subscription, len(before) + 1))[-1] == [2]
        assert 300.0 <= service.calls[1][0] <= 301.0
        assert reasons(told) == ["silence"]

    @pytest.mark.scenario("G57")
    async def test_a_busy_handler_is_not_silence(self, subscribe, told, autojump_clock):
        service = Service([event(1), event(2), event(3)])
        subscription = subscribe(service)
        await take(subscription, 1)
        await trio.sleep(100)
        assert await take(subscription, 2) == [[2], [3]]
        assert len(service.calls) == 1
        assert reasons(told) == []
        # The second waited for its reader, and with it, unfetched, the third.
        assert [e.duration for e in told if isinstance(e, DeliveryBlocked)] == [100.0]


class TestBackPressure:
    @pytest.mark.scenario("G56")
    async def test_without_demand_one_event_is_fetched_and_no_more(self, subscribe, autojump_clock):
        service = Service([event(n) for n in range(100)])
        subscription = subscribe(service)
        assert await take(subscription, 1) == [[0]]
        await trio.sleep(30)
        assert service.streams[0].given == 2
        assert await take(subscription, 3) == [[1], [2], [3]]
        await trio.testing.wait_all_tasks_blocked()
        assert service.streams[0].given == 5

    @pytest.mark.scenario("G56")
    async def test_before_the_first_demand_nothing_is_asked(self, subscribe, autojump_clock):
        service = Service([event(1)])
        subscribe(service)
        await trio.sleep(30)
        assert service.calls == []


class TestCancellation:
    async def test_of_receive_loses_nothing(self, subscribe, autojump_clock):
        service = Service([step for n in range(20) for step in (1, event(n))], [event(20)])
        subscription = subscribe(service)
        got = []
        while len(got) < 20:
            with trio.move_on_after(0.3):
                received = await subscription.receive()
                got += (int(record.sequence_number) for record in received.records)
        assert got == list(range(20))
        assert len(service.calls) == 1

    async def test_of_the_nursery_closes_the_streams(self, subscribe, told, autojump_clock):
        service = Service([event(1)])
        async with trio.open_nursery() as attempts:
            await take(subscribe(service, attempts=attempts), 1)
            attempts.cancel_scope.cancel()
        assert service.streams[0].closed
        assert reasons(told) == ["shutdown"]

    @pytest.mark.parametrize("after", [0.0, 0.5, 1.5, 20.0])
    async def test_whatever_an_attempt_is_doing(self, subscribe, told, autojump_clock, after):
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
        assert len(reasons(told)) == len(service.streams)


async def test_what_an_observer_is_told(subscribe, told, autojump_clock):
    service = Service([event(1), 5, event(continuation=2), 5, None], [])
    await take(subscribe(service), 2)
    assert told == [
        SubscribeAttempted("shard", 0.0, 0.0, None),
        EventReceived("shard", 1, 100, 0, None),
        EventReceived("shard", 0, 100, 0, 5.0),
    ]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(SilenceError(""), "silence"), (TlsError(""), "transport"), (ServiceError("X", ""), "service")],
)
def test_end_reasons(error, reason):
    assert end_reason(error) == reason
