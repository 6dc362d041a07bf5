"""Functions of applications that do not fit efo: rejected at the call, or when they raise because of it."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
import trio

import efo
from efo.checks import check_async, name_of
from efo.consumer.callables import in_thread, misuse_of_efo
from efo.consumer.handler import Handler
from efo.errors import ConfigurationError, HandlerError
from efo.events import ignore_events
from efo.model import Batch, Record
from efo.protocol.batch_slice import BatchSlice

RECORD = Record("1", 0.0, b"{}", "key")
BATCH = Batch("orders", "shardId-000000000000", (RECORD,), "2", 0, 0)


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


# --- exceptions of the call itself, and of groups ----------------------------------------------------------


class Order:
    def __init__(self, number): ...


def call_of_handler(handler):
    """Return the exception that a handler raises when efo calls it."""

    reader = Handler(handler)

    async def main():
        await reader._failure_handler(FakeShard(), ignore_events).process(BatchSlice.whole(BATCH))

    with pytest.raises(Exception) as raised:  # noqa: PT011 - the tests look at it
        trio.run(main)
    return raised.value


class FakeShard:
    shard_id = "shardId-000000000000"

    def is_wanted(self, _batch):
        return True


def passes_on(function):
    async def call(*args, **kwargs):
        return await function(*args, **kwargs)

    return call


async def wants_more(batch, connection):
    """Handle a batch, but with a parameter that nobody passes."""


async def builds_an_order(batch):
    Order(**json.loads('{"id": 1}'))


async def in_a_nursery(batch):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)
        batch.recrods  # noqa: B018


async def isolates_and_misspells(batch):
    raise ExceptionGroup("both", [efo.IsolateShardError("bad"), misspelling()])


def misspelling():
    try:
        BATCH.recrods  # noqa: B018
    except AttributeError as error:
        return error


async def reads_a_field_of_records(batch):
    batch.records.data  # noqa: B018


async def takes_bytes_for_text(batch):
    batch.records[0].data.encode()


async def isolates_with_a_wrong_cooldown(batch):
    raise efo.IsolateShardError("bad", cooldown=-1)


@pytest.mark.parametrize(
    "handler",
    [
        passes_on(wants_more),
        passes_on(passes_on(wants_more)),
        in_a_nursery,
        isolates_and_misspells,
        reads_a_field_of_records,
        takes_bytes_for_text,
        isolates_with_a_wrong_cooldown,
    ],
    ids=name_of,
)
def test_a_handler_that_fails_because_of_how_it_is_written_is_a_handler_error(handler):
    assert isinstance(call_of_handler(handler), HandlerError)


@pytest.mark.parametrize("handler", [builds_an_order, passes_on(builds_an_order)], ids=name_of)
def test_a_call_that_data_makes_fail_is_left_to_the_policy(handler):
    assert type(call_of_handler(handler)) is TypeError


def test_a_class_of_the_application_may_have_the_name_of_one_of_efo():
    class Record:
        """A record of the application."""

    def fails():
        Record()["id"]

    with pytest.raises(TypeError) as raised:
        fails()
    assert misuse_of_efo(raised.value) is None


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_generator_function_in_a_thread_is_rejected(function):
    with pytest.raises(ConfigurationError, match="a call of a generator function runs nothing"):
        in_thread(function)
