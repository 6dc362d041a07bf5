"""Of many failures at once, one error; cancellations pass."""

import pytest
import trio

from efo.errors import TransportError
from efo.exception_groups import collapse_groups


def grouped(*errors):
    return ExceptionGroup("some", errors)


def test_without_a_failure_nothing_happens():
    with collapse_groups():
        pass


def test_an_error_alone_passes():
    with pytest.raises(KeyError), collapse_groups():
        raise KeyError("alone")


def test_the_first_error_of_ours_is_the_one():
    ours = TransportError("ours")
    with pytest.raises(TransportError) as raised, collapse_groups():
        raise grouped(KeyError("a"), grouped(grouped(ours), TransportError("another")), ValueError("b"))
    assert raised.value is ours
    assert raised.value.__notes__ == [
        "at the same time: KeyError: 'a'",
        "at the same time: TransportError: another",
        "at the same time: ValueError: b",
    ]


def test_without_one_of_ours_the_first():
    with pytest.raises(KeyError), collapse_groups():
        raise grouped(KeyError("a"), ValueError("b"))


def test_an_error_that_several_tasks_raised_is_not_noted_on_itself():
    shared = TransportError("shared")
    with pytest.raises(TransportError) as raised, collapse_groups():
        raise grouped(shared, grouped(shared))
    assert not hasattr(raised.value, "__notes__")


def test_its_cause_stays():
    error = TransportError("ours")
    error.__cause__ = cause = OSError("theirs")
    with pytest.raises(TransportError) as raised, collapse_groups():
        raise grouped(error)
    assert raised.value.__cause__ is cause


def test_what_is_no_failure_is_not_swallowed():
    with pytest.raises(BaseExceptionGroup) as raised, collapse_groups():
        raise BaseExceptionGroup("some", [KeyboardInterrupt(), KeyError("a")])
    assert raised.group_contains(KeyboardInterrupt)


async def test_a_nursery_that_was_cancelled(autojump_clock):
    with trio.move_on_after(1) as scope, collapse_groups():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)
    assert scope.cancelled_caught


async def test_a_nursery_in_which_a_task_failed():
    async def fail():
        raise TransportError("broke")

    with pytest.raises(TransportError, match="broke"), collapse_groups():  # noqa: PT012 - a nursery is one statement
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail)


async def test_a_failure_beside_a_cancellation_from_outside():
    """What fails just as it is cancelled is one error all the same: it takes the place of the cancellations."""

    async def fail_when_cancelled():
        try:
            await trio.sleep_forever()
        finally:
            raise TransportError("broke")

    with pytest.raises(TransportError, match="broke"), trio.CancelScope() as scope, collapse_groups():  # noqa: PT012
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail_when_cancelled)
            await trio.lowlevel.checkpoint()
            scope.cancel()
