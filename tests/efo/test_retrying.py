"""A call that is repeated, in virtual time."""

from __future__ import annotations

import pytest
import trio

from efo.errors import EfoError, LeaseStoreUnavailableError
from efo.retrying import retry


class PassingError(EfoError):
    retryable = True


class FinalError(EfoError):
    retryable = False


class Call:
    """Raises errors in order, the last one for ever; then returns how often it was called. Each call takes 1 s."""

    def __init__(self, *errors: BaseException, repeats_last: bool = False) -> None:
        self.errors = list(errors)
        self.repeats_last = repeats_last
        self.times: list[float] = []
        self._started = trio.current_time()

    async def __call__(self) -> int:
        self.times.append(round(trio.current_time() - self._started, 3))
        await trio.sleep(1)
        if self.errors:
            raise self.errors[0] if self.repeats_last and len(self.errors) == 1 else self.errors.pop(0)
        return len(self.times)


async def test_a_call_that_succeeds_is_made_once(autojump_clock):
    call = Call()
    assert await retry(call, lambda: 1 / 0) == 1


async def test_a_call_is_repeated_after_the_waits_until_it_succeeds(autojump_clock):
    call, waits, seen = Call(PassingError("a"), LeaseStoreUnavailableError("b")), iter([5.0, 7.0]), []
    assert await retry(call, lambda: next(waits), on_failure=lambda *failure: seen.append(failure)) == 3
    assert call.times == [0, 6, 14]
    assert [(str(error), delay) for error, delay in seen] == [("a", 5.0), ("b", 7.0)]


@pytest.mark.parametrize("error", [FinalError("no"), ValueError("no"), trio.BrokenResourceError("no")])
async def test_what_cannot_pass_is_raised_at_once(error, autojump_clock):
    call = Call(PassingError("a"), error)
    with pytest.raises(type(error), match="no"):
        await retry(call, lambda: 1.0)
    assert call.times == [0, 2]


async def test_the_caller_may_say_what_is_worth_another_call(autojump_clock):
    call = Call(FinalError("a"), PassingError("b"))
    with pytest.raises(PassingError):
        await retry(call, lambda: 1.0, repeats=lambda error: isinstance(error, FinalError))


async def test_the_last_call_is_made_when_the_time_since_the_first_failure_is_over(autojump_clock):
    call, delays = Call(PassingError("a"), repeats_last=True), []
    with pytest.raises(PassingError):
        await retry(call, lambda: 4.0, seconds=10.0, on_failure=lambda _, delay: delays.append(delay))
    assert call.times == [0, 5, 10]  # the first failure is at 1 s
    assert delays == [4.0, 4.0]
    call = Call(PassingError("a"), repeats_last=True)
    with pytest.raises(PassingError):
        await retry(call, lambda: 100.0, seconds=10.0)
    assert call.times == [0, 11]


@pytest.mark.parametrize(("limits", "calls"), [({"seconds": 0.0}, 1), ({"attempts": 1}, 1), ({"attempts": 3}, 3)])
async def test_a_call_is_repeated_so_often(limits, calls, autojump_clock):
    call = Call(PassingError("a"), repeats_last=True)
    with pytest.raises(PassingError):
        await retry(call, lambda: 1.0, **limits)
    assert len(call.times) == calls


async def test_a_wait_can_be_cancelled(autojump_clock):
    with trio.move_on_after(5) as scope:
        await retry(Call(PassingError("a"), repeats_last=True), lambda: 100.0)
    assert scope.cancelled_caught
