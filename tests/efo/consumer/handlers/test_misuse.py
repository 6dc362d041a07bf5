"""Failures that come from how a handler is written against efo, and failures that come from data."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
import trio

import efo
from efo.checks import name_of
from efo.consumer.handlers.batched import in_thread
from efo.consumer.handlers.handler import Handler
from efo.consumer.handlers.misuse import misuse_of_efo
from efo.errors import HandlerError
from efo.events import ignore_events
from efo.model import Batch, Record
from efo.protocol.per_key_order import BatchSlice

RECORD = Record("1", 0.0, b"{}", "key")
BATCH = Batch("orders", "shardId-000000000000", (RECORD,), "2", 0, 0)


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
    assert "trio and asyncio are mixed" in (misuse_of_efo(raised.value) or "")


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
    ages = None
    shard_id = "shardId-000000000000"
    observer = staticmethod(ignore_events)

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
    raise ExceptionGroup("both", [efo.errors.IsolateShardError("bad"), misspelling()])


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
    raise efo.errors.IsolateShardError("bad", cooldown=-1)


async def raises_without_a_message(batch):
    raise efo.errors.IsolateShardError(1, 2, 3)


async def iterates_asynchronously(batch):
    async for _record in batch:
        pass


async def changes_a_batch(batch):
    dataclasses.replace(batch, topic="orders")


async def formats_a_record(batch):
    return f"{batch.records[0]:>10}"


async def assigns_to_a_record(batch):
    batch.records[0].data = b""


async def assigns_to_a_batch(batch):
    batch.records = ()


async def starts_a_task_with_too_few_arguments(batch):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wants_more, batch)


async def starts_a_coroutine(batch):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wants_more(batch, None))


async def runs_trio_in_trio(batch):
    trio.run(wants_more, batch, None)


async def calls_a_helper_with_too_few_arguments(batch):
    await wants_more(batch)


async def wraps_what_it_catches(batch):
    try:
        batch.recrods  # noqa: B018
    except AttributeError as error:
        raise ValueError("processing failed") from error


async def forgets_the_cause(batch):
    try:
        batch.recrods  # noqa: B018
    except AttributeError:
        raise ValueError("processing failed")  # noqa: B904 - the subject


async def imports_what_does_not_exist(batch):
    from efo import Hold  # noqa: F401, PLC0415


async def names_hold_without_an_import(batch):
    return HOLD  # noqa: F821


async def passes_a_wrong_setting(batch):
    efo.ConsumerSettings(max_leases=0)


MISTAKES = [
    passes_on(wants_more),
    passes_on(passes_on(wants_more)),
    in_a_nursery,
    isolates_and_misspells,
    reads_a_field_of_records,
    takes_bytes_for_text,
    isolates_with_a_wrong_cooldown,
    raises_without_a_message,
    iterates_asynchronously,
    in_thread(lambda batch: wants_more(batch, None)),
    changes_a_batch,
    formats_a_record,
    assigns_to_a_record,
    assigns_to_a_batch,
    starts_a_task_with_too_few_arguments,
    starts_a_coroutine,
    runs_trio_in_trio,
    calls_a_helper_with_too_few_arguments,
    wraps_what_it_catches,
    forgets_the_cause,
    imports_what_does_not_exist,
    names_hold_without_an_import,
    passes_a_wrong_setting,
]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("handler", MISTAKES, ids=name_of)
def test_a_handler_that_fails_because_of_how_it_is_written_is_a_handler_error(handler):
    assert isinstance(call_of_handler(handler), HandlerError)


async def varargs_of_its_own(batch, *more):
    Order(**json.loads('{"id": 1}'))


async def saves_what_data_names(batch):
    await save(**json.loads('{"id": 1}'))


async def save(number): ...


async def makes_a_checkpoint_of_data(batch):
    efo.Checkpoint(batch.records[0].data.decode())


async def refuses_data(batch):
    raise efo.errors.ConfigurationError("no such customer")


async def quotes_trio(batch):
    raise RuntimeError("customer: Trio expected a delivery")


DATA = [
    builds_an_order,
    passes_on(builds_an_order),
    varargs_of_its_own,
    passes_on(varargs_of_its_own),
    saves_what_data_names,
    makes_a_checkpoint_of_data,
    refuses_data,
    quotes_trio,
]


@pytest.mark.parametrize("handler", DATA, ids=name_of)
def test_a_failure_because_of_data_is_left_to_the_policy(handler):
    assert not isinstance(call_of_handler(handler), HandlerError)


def test_a_class_of_the_application_may_have_the_name_of_one_of_efo():
    class Record:
        """A record of the application."""

    def fails():
        Record()["id"]

    with pytest.raises(TypeError) as raised:
        fails()
    assert misuse_of_efo(raised.value) is None


def test_exceptions_that_caused_each_other_are_looked_at_once():
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__context__ = other, one
    assert misuse_of_efo(ExceptionGroup("both", [one, other])) is None
