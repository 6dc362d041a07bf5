"""Functions of applications that do not fit efo: rejected at the call, or when they raise because of it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import threading

import pytest
import trio

import efo
from efo.consumer.callables import check_async, in_thread, is_async, misuse_of_efo, name_of
from efo.errors import ConfigurationError
from efo.model import Batch, Record

RECORD = Record("1", 0.0, b"{}", "key")
BATCH = Batch("orders", "shardId-000000000000", (RECORD,), "2", 0, 0)


async def handle(batch):
    """Handle a batch."""


def blocking(batch):
    return threading.current_thread()


def wrapped(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


class Processor:
    async def __call__(self, batch): ...

    async def method(self, batch): ...

    def blocking(self, batch): ...


ASYNC = [
    handle,
    functools.partial(handle),
    wrapped(handle),
    Processor(),
    Processor().method,
    functools.partial(Processor()),
    in_thread(blocking),
]
NOT_ASYNC = [
    blocking,
    print,
    Processor,
    Processor().blocking,
    lambda batch: handle(batch) or 1,
    functools.partial(blocking),
]


@pytest.mark.parametrize("function", ASYNC, ids=name_of)
def test_an_async_function_is_accepted_in_every_form(function):
    assert is_async(function)
    check_async(function, "handler", "batch")


@pytest.mark.parametrize("function", NOT_ASYNC, ids=name_of)
def test_a_function_that_is_not_async_is_rejected_with_the_way_to_wrap_it(function):
    with pytest.raises(ConfigurationError, match=r"handler .* is not an async function.*efo\.in_thread"):
        check_async(function, "handler", "batch")


@pytest.mark.parametrize("value", [None, "handle", 7, BATCH])
def test_a_value_that_cannot_be_called_is_rejected(value):
    with pytest.raises(ConfigurationError, match="expected an async function of \\(batch\\)"):
        check_async(value, "handler", "batch")


@pytest.mark.parametrize(
    "accepts",
    [lambda: None, lambda _record, _batch, _more: None, lambda *, _batch: None],
    ids=["none", "three", "keyword"],
)
def test_a_function_of_other_parameters_is_rejected(accepts):
    async def function(*args, **kwargs): ...

    function.__signature__ = inspect.signature(accepts)
    with pytest.raises(ConfigurationError, match=r"cannot be called with \(record, batch\)"):
        check_async(function, "record_handler", "record", "batch")


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


# --- misuse that only shows when the handler runs ----------------------------------------------------------


def misspelled():
    BATCH.shards  # noqa: B018 - an attribute that a batch does not have


def misspelled_record():
    RECORD.partitionKey  # noqa: B018


def misspelled_name():
    efo.HOLDD  # noqa: B018


def subscripted():
    RECORD["data"]


def passed_on():
    json.loads(RECORD)


MISUSES = [misspelled, misspelled_record, misspelled_name, subscripted, passed_on]


@pytest.mark.parametrize("function", MISUSES, ids=name_of)
def test_an_exception_about_efos_own_objects_is_misuse(function):
    with pytest.raises((AttributeError, TypeError)) as raised:
        function()
    assert misuse_of_efo(raised.value)


async def test_awaiting_asyncio_on_trio_is_misuse():
    with pytest.raises((TypeError, RuntimeError)) as raised:
        await asyncio.sleep(0.01)
    assert "asyncio" in (misuse_of_efo(raised.value) or "")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad data"),
        TypeError("unsupported operand type(s) for +: 'int' and 'str'"),
        AttributeError("'NoneType' object has no attribute 'get'", name="get", obj=None),
        RuntimeError("no more room"),
        KeyError("id"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_about_data_is_no_misuse(error):
    assert misuse_of_efo(error) is None
