"""Failures that come from how a handler is written against efo, and failures that come from data."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from decimal import Decimal
from types import FunctionType

import pytest
import trio

import efo
from efo.checks import name_of
from efo.consumer.handlers.batched import in_thread
from efo.consumer.handlers.handler import Handler
from efo.consumer.handlers.misuse import check_no_handler, check_surface, misuse_of_efo
from efo.consumer.handlers.processor import ProcessorReader
from efo.errors import ConfigurationError, DeserializationError, HandlerError
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
OPERATIONS = {
    "joined": lambda: b"".join(BATCH),
    "joined as text": lambda: ",".join(BATCH),
    "added to bytes": lambda: b"" + RECORD,
    "added to a buffer": lambda: bytearray() + RECORD,
    "added to text": lambda: "" + RECORD,
    "added to a list": lambda: [] + BATCH,  # noqa: RUF005 - the operator
    "added": lambda: 1 + RECORD,
    "one character": lambda: ord(RECORD),
    "rounded": lambda: round(RECORD),
    "converted": lambda: Decimal(RECORD),
    "a duration": lambda: time.sleep(RECORD),
    "hexadecimal": lambda: bytes.fromhex(RECORD),
}
"""Python words them differently: Record found, concat Record, "Record", type Record, from Record, efo.model.Record."""


@pytest.mark.parametrize("function", MISUSES, ids=name_of)
def test_an_exception_about_efos_own_objects_is_misuse(function):
    with pytest.raises((AttributeError, TypeError)) as raised:
        function()
    assert misuse_of_efo(raised.value)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_an_operation_that_a_record_or_batch_does_not_have_is_misuse(operation):
    with pytest.raises(TypeError) as raised:
        operation()
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
        TypeError("in this document there is no Record found"),
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


# --- what is looked at -------------------------------------------------------------------------------------


def caused(error, cause):
    error.__cause__ = cause
    return error


UNREADABLE = DeserializationError("no JSON", sequence_number="1")


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (HandlerError("no parameter"), "no parameter"),
        (misspelling(), "'Batch' object has no attribute 'recrods'"),
        (ExceptionGroup("two", [ValueError("1"), HandlerError("no parameter")]), "no parameter"),
        (ExceptionGroup("two", [ValueError("1"), misspelling()]), "'Batch' object has no attribute 'recrods'"),
        (caused(ValueError("1"), ExceptionGroup("two", [KeyError("2"), HandlerError("no")])), "no"),
        (caused(ValueError("1"), KeyboardInterrupt()), None),
        (caused(UNREADABLE, misspelling()), None),  # it is about data, or a schema that data named
        (ExceptionGroup("two", [UNREADABLE, HandlerError("no")]), "no"),
    ],
)
def test_each_exception_of_a_group_and_each_cause_is_looked_at(error, found):
    text = misuse_of_efo(error)
    assert (text if found is None or text is None else text.partition(".")[0]) == found


def test_an_exception_that_is_there_twice_hides_no_other():
    twice = ValueError("1")
    assert misuse_of_efo(ExceptionGroup("three", [twice, twice, HandlerError("no")])) == "no"


def without(obj):
    """Return the exception of an attribute that an object does not have."""
    with pytest.raises(AttributeError) as raised:
        obj.nothing  # noqa: B018
    return raised.value


KEYLESS = Record("7", 0.0, b"data", None, tags=(("a", "b"),))
TWO = Batch("orders", "s-0", (KEYLESS, dataclasses.replace(BATCH).records[0]), "2", 0, 0)


@pytest.mark.parametrize(
    ("obj", "batch", "is_misuse"),
    [
        (BATCH, None, True),
        (efo, None, True),
        ((RECORD,), None, True),
        ((RECORD, 7), None, True),
        ((), None, False),
        ((7, RECORD), None, False),
        ("s-0", None, False),
        (TWO.shard_id, TWO, True),
        (TWO.stream, TWO, True),
        (KEYLESS.data, TWO, True),
        (KEYLESS.sequence_number, TWO, True),
        (RECORD.partition_key, TWO, True),
        (None, TWO, False),  # the partition key that a record does not have is nobody's mistake
        (7, TWO, False),
    ],
)
def test_an_attribute_that_an_object_of_efo_or_a_field_of_the_batch_does_not_have_is_misuse(obj, batch, is_misuse):
    assert (misuse_of_efo(without(obj), batch) is not None) is is_misuse


@dataclasses.dataclass(frozen=True)
class Customer:
    name: str


def raised_by(function):
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the test looks at it
        function()
    return raised.value


@pytest.mark.parametrize(
    ("function", "is_misuse"),
    [
        (lambda: setattr(BATCH, "records", ()), True),
        (lambda: delattr(BATCH, "records"), True),
        (lambda: setattr(RECORD, "data", b""), True),
        (lambda: setattr(Customer("ann"), "name", "bob"), False),
        (lambda: delattr(Customer("ann"), "name"), False),
        (lambda: len(RECORD), True),
        (lambda: [*RECORD], True),
        (lambda: "a" in RECORD, True),
        (lambda: Batch(7), True),
        (lambda: efo.errors.IsolateShardError(1, 2, 3), True),
        (lambda: json.loads(Customer("ann")), False),
        (lambda: len(Customer("ann")), False),
        (lambda: json.dumps(1, 2), False),  # a call of a library is not looked into
        (lambda: efo.nothing, True),
        (lambda: __import__("efo.nothing"), True),
        (lambda: __import__("nothing"), False),
        (lambda: HOLD, True),  # noqa: F821
        (lambda: HELD, False),  # noqa: F821
    ],
)
def test_what_python_says_of_an_object_of_efo_is_misuse_and_of_others_not(function, is_misuse):
    error = raised_by(function)
    assert (misuse_of_efo(error) is not None) is is_misuse, error


async def calls(handler):
    await handler(BATCH)


async def test_only_a_call_of_efo_that_is_passed_on_is_misuse():
    """What the application calls itself with `*` or `**` may be made of data."""
    efos = FunctionType(calls.__code__, {**calls.__globals__, "__name__": "efo.consumer.handlers.handler"})
    for call, is_misuse in ((efos, True), (calls, False)):
        with pytest.raises(TypeError) as raised:
            await call(passes_on(wants_more))
        assert (misuse_of_efo(raised.value) is not None) is is_misuse
    with pytest.raises(TypeError) as raised:
        await passes_on(wants_more)(BATCH)
    assert misuse_of_efo(raised.value) is None


def test_a_mix_of_event_loops_is_told_in_one_sentence():
    error = raised_by(asyncio.get_running_loop)
    assert misuse_of_efo(error) == (
        "trio and asyncio are mixed: what efo.aio calls runs on asyncio, what efo calls on trio, and what efo.sync"
        " calls on neither: no running event loop"
    )
    assert misuse_of_efo(RuntimeError("no running event loop")) is not None  # it was raised nowhere


# --- readers -----------------------------------------------------------------------------------------------


class OtherHandler(Handler):
    surface = "efo.aio"


class SubHandler(OtherHandler):
    """A class of the application."""


class OtherProcessor(ProcessorReader):
    surface = "efo.sync"


class Stranger:
    surface = "elsewhere"


async def handle(batch): ...


async def handle_records(records): ...


async def read(shard): ...


class Processor(efo.RecordProcessor):
    async def process_records(self, batch, checkpointer): ...


OF_SYNC = (
    "efo.sync.ProcessorReader, whose functions run on no event loop, and this consumer runs them on asyncio: use"
    " efo.aio.ProcessorReader"
)


@pytest.mark.parametrize(
    ("reader", "surface", "message"),
    [
        (Handler(handle), "efo", None),
        (OtherHandler(handle), "efo.aio", None),
        (read, "efo", None),
        (Stranger(), "efo", None),
        (
            SubHandler(handle),
            "efo",
            "efo.aio.Handler, whose functions run on asyncio, and this consumer runs them on trio: use efo.Handler",
        ),
        (OtherProcessor(Processor), "efo.aio", OF_SYNC),
    ],
)
def test_a_reader_of_another_surface_is_refused(reader, surface, message):
    if message is None:
        check_surface(reader, surface)
        return
    with pytest.raises(ConfigurationError) as raised:
        check_surface(reader, surface)
    assert str(raised.value) == f"reader is an {message}"


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (read, None),
        (lambda: None, None),
        (7, None),
        (int, None),  # Python does not know its parameters
        (handle, r"reader handle\(batch\) looks like a handler, .*: pass efo.aio.Handler\(handle\)"),
        (handle_records, r"reader handle_records\(records\) looks like a handler"),
    ],
)
def test_a_handler_is_no_reader_of_shards(reader, message):
    if message is None:
        check_no_handler(reader, "efo.aio")
        return
    with pytest.raises(ConfigurationError, match=message):
        check_no_handler(reader, "efo.aio")
