"""`efo.in_thread`: blocking functions as handlers."""

from __future__ import annotations

import threading

import pytest
import trio

from efo.checks import check_async, name_of
from efo.consumer.handlers.in_thread import in_thread
from efo.errors import ConfigurationError
from efo.model import Batch, Record

BATCH = Batch("orders", "shardId-000000000000", (Record("1", 0.0, b"{}", "key"),), "2", 0, 0)


async def handle(batch):
    """Handle a batch."""


def blocking(batch):
    return threading.current_thread()


def generator(batch):
    yield batch


async def async_generator(batch):
    yield batch


class Processor:
    async def __call__(self, batch): ...

    async def method(self, batch): ...

    def blocking(self, batch): ...


async def test_in_thread_runs_a_blocking_function_in_another_thread():
    assert await in_thread(blocking)(BATCH) is not threading.current_thread()


async def test_in_thread_keeps_name_arguments_and_exceptions():
    def refuse(number, *, by):
        raise ValueError(number + by)

    called = in_thread(refuse)
    assert name_of(called) == name_of(refuse)
    with pytest.raises(ValueError, match="5"):
        await called(2, by=3)


def test_in_thread_checks_the_parameters_of_the_function_that_it_wraps():
    with pytest.raises(ConfigurationError, match="cannot be called"):
        check_async(in_thread(lambda: None), "handler", "batch")


@pytest.mark.parametrize("function", [handle, Processor()])
def test_in_thread_of_an_async_function_is_rejected(function):
    with pytest.raises(ConfigurationError, match="the function is async"):
        in_thread(function)


@pytest.mark.parametrize("function", [None, "print", 7])
def test_what_is_no_function_is_rejected(function):
    with pytest.raises(ConfigurationError, match="expected a function"):
        in_thread(function)


def test_a_limiter_of_another_kind_is_rejected():
    with pytest.raises(ConfigurationError, match="CapacityLimiter"):
        in_thread(blocking, limiter=4)


async def test_the_limiter_bounds_the_number_of_threads():
    limiter, running, most = trio.CapacityLimiter(2), 0, 0
    lock = threading.Lock()

    def work():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        trio.from_thread.run(trio.lowlevel.checkpoint)
        with lock:
            running -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(in_thread(work, limiter=limiter))
    assert most <= 2
    assert (limiter.total_tokens, limiter.borrowed_tokens) == (2, 0)


async def test_a_running_thread_is_waited_for_when_its_caller_is_cancelled():
    started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work():
        started.set()
        assert may_end.wait(60)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread(work))
        await trio.to_thread.run_sync(started.wait, 60)
        nursery.cancel_scope.cancel()
        may_end.set()
    assert ended.is_set()


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_generator_function_in_a_thread_is_rejected(function):
    with pytest.raises(ConfigurationError, match="a call of a generator function runs nothing"):
        in_thread(function)
