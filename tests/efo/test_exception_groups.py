"""`collapse_groups`: one exception instead of an exception group, and cancellations pass through."""

import pytest
import trio

from efo.errors import IsolateShardError, LeaseLostError, TransportError
from efo.exception_groups import collapse_groups


def grouped(*errors):
    return ExceptionGroup("some", errors)


def test_without_a_failure_nothing_is_raised():
    with collapse_groups():
        pass


def test_a_single_exception_passes_unchanged():
    with pytest.raises(KeyError), collapse_groups():
        raise KeyError("alone")


def test_the_first_efo_error_is_raised_with_notes_about_the_others():
    first = TransportError("first")
    with pytest.raises(TransportError) as raised, collapse_groups():
        raise grouped(KeyError("a"), grouped(grouped(first), TransportError("another")), ValueError("b"))
    assert raised.value is first
    assert raised.value.__notes__ == [
        "at the same time: KeyError: 'a'",
        "at the same time: TransportError: another",
        "at the same time: ValueError: b",
    ]


@pytest.mark.parametrize("other", [ValueError("data"), TransportError("broken"), IsolateShardError("bad")])
def test_an_error_that_ends_one_shard_alone_hides_no_other(other):
    alone = LeaseLostError("stolen") if isinstance(other, IsolateShardError) else IsolateShardError("bad")
    with pytest.raises(type(other)) as raised, collapse_groups():
        raise grouped(alone, other)
    assert raised.value is other


def test_without_an_efo_error_the_first_exception_is_raised():
    with pytest.raises(KeyError), collapse_groups():
        raise grouped(KeyError("a"), ValueError("b"))


def test_an_error_that_several_tasks_raised_has_no_note_about_itself():
    shared = TransportError("shared")
    with pytest.raises(TransportError) as raised, collapse_groups():
        raise grouped(shared, grouped(shared))
    assert not hasattr(raised.value, "__notes__")


def test_the_cause_of_the_raised_error_is_kept():
    error = TransportError("broke")
    error.__cause__ = cause = OSError("reset")
    with pytest.raises(TransportError) as raised, collapse_groups():
        raise grouped(error)
    assert raised.value.__cause__ is cause


@pytest.mark.parametrize("exit_", [KeyboardInterrupt(), SystemExit(3)])
def test_an_exit_goes_before_all_failures(exit_):
    with pytest.raises(type(exit_)) as raised, collapse_groups():
        raise BaseExceptionGroup("some", [TransportError("broken"), BaseExceptionGroup("more", [exit_])])
    assert raised.value is exit_


async def test_the_cancellation_of_a_nursery_passes(autojump_clock):
    with trio.move_on_after(1) as scope, collapse_groups():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)
    assert scope.cancelled_caught


async def test_the_failure_of_one_task_of_a_nursery_is_raised_alone():
    async def fail():
        raise TransportError("broke")

    with pytest.raises(TransportError, match="broke"), collapse_groups():  # noqa: PT012 - a nursery is one statement
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail)


async def test_a_failure_during_a_cancellation_replaces_the_cancellation():
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
