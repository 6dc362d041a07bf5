"""What the service says of a stream, and whether it is still the same one (rule R15)."""

from __future__ import annotations

import pytest
import trio

from efo.errors import AccessDeniedError, ResourceNotFoundError, StreamRecreatedError, ThrottledError
from efo.kinesis.identity import StreamIdentity
from efo.model import StreamDescription

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/s"
DENIED = AccessDeniedError("AccessDeniedException", "no")


class FakeControlPlane:
    """Describes a stream. `answers`: a time of creation or an error for each call; the last one for all that follow."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = 0
        self.latency = 0.0

    async def describe_stream(self):
        await trio.sleep(self.latency)
        answer = self.answers[min(self.calls, len(self.answers) - 1)]
        self.calls += 1
        if isinstance(answer, Exception):
            raise answer
        return StreamDescription("s", ARN, "ACTIVE", 24, created_at=answer)


async def test_the_service_is_asked_once_for_a_time(autojump_clock):
    control = FakeControlPlane(1000.0)
    identity = StreamIdentity(control)
    assert identity.created_at is None
    for _ in range(5):
        assert (await identity.look(0.0)).created_at == 1000.0
    assert control.calls == 1
    assert identity.created_at == 1000.0
    await trio.sleep(10)
    await identity.look(trio.current_time())
    assert control.calls == 2


async def test_all_that_ask_at_the_same_time_share_one_call(autojump_clock):
    control = FakeControlPlane(1000.0)
    control.latency = 1.0
    identity = StreamIdentity(control)
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(identity.look, trio.current_time())
    assert control.calls == 1


async def test_another_time_of_creation_is_another_stream(autojump_clock):
    control = FakeControlPlane(1000.0, 1060.0)
    identity = StreamIdentity(control)
    await identity.describe()
    with pytest.raises(StreamRecreatedError, match=r"'s' was deleted and created again.*1970-01-01T00:17:40Z.*reset"):
        await identity.describe()
    assert control.calls == 3  # it asked once more before it said so


async def test_times_that_change_from_call_to_call_say_nothing(autojump_clock):
    control = FakeControlPlane(*(1000.0 + 10 * n for n in range(10)))
    identity = StreamIdentity(control)
    for _ in range(4):
        await identity.describe()
    assert identity.created_at is None  # no lease is stamped with it
    assert not await identity.differs_from(5.0)


async def test_times_that_are_those_of_the_calls_say_nothing(autojump_clock):
    control = FakeControlPlane(1000.0)

    async def describe_now():
        control.answers = [1000.0 + trio.current_time()]
        return await FakeControlPlane.describe_stream(control)

    control.describe_stream = describe_now
    identity = StreamIdentity(control)
    await identity.describe()
    await trio.sleep(60)
    await identity.describe()
    assert identity.created_at is None


async def test_times_of_a_second_more_or_less_are_one(autojump_clock):
    control = FakeControlPlane(1000.25, 1000.0, 1001.0)
    identity = StreamIdentity(control)
    for _ in range(3):
        await identity.describe()
    assert identity.created_at == 1000.25


async def test_a_server_that_tells_no_time_is_not_compared(autojump_clock):
    identity = StreamIdentity(FakeControlPlane(None))
    await identity.describe()
    assert identity.created_at is None
    assert not await identity.differs_from(5.0)


async def test_a_time_that_is_reported_later_counts_from_then(autojump_clock):
    identity = StreamIdentity(FakeControlPlane(None, 1000.0))
    await identity.describe()
    await identity.describe()
    assert identity.created_at == 1000.0


async def test_without_permission_nothing_is_known_and_nothing_fails(autojump_clock):
    control = FakeControlPlane(DENIED)
    identity = StreamIdentity(control)
    for _ in range(3):
        assert await identity.look(0.0) is None
    assert control.calls == 1  # a refusal is an answer
    assert identity.created_at is None


@pytest.mark.parametrize(
    "error", [ThrottledError("LimitExceededException", "slow"), ResourceNotFoundError("R", "gone")]
)
async def test_what_passes_or_explains_more_is_raised(autojump_clock, error):
    identity = StreamIdentity(FakeControlPlane(error))
    with pytest.raises(type(error)):
        await identity.look(0.0)


async def test_after_a_failure_it_asks_again(autojump_clock):
    control = FakeControlPlane(ThrottledError("LimitExceededException", "slow"), 1000.0)
    identity = StreamIdentity(control)
    with pytest.raises(ThrottledError):
        await identity.look(0.0)
    assert (await identity.look(0.0)).created_at == 1000.0
