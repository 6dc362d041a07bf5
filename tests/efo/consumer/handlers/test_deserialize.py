"""Handlers of values with types, over FakeKinesis: a record that cannot be deserialized goes to the failure policy."""

from __future__ import annotations

import asyncio
import gzip
import struct
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest
import trio

import efo
from efo import deserializers, events
from efo.consumer.handlers import deserialize as module
from efo.testing import FakeKinesis

POISON = b"no order"


class Order(msgspec.Struct):
    id: int


class Shop:
    """A stream with orders, and what its handlers got."""

    def __init__(self, fake: FakeKinesis) -> None:
        self.fake = fake
        self.calls: list[list[int]] = []
        self.letters: list[efo.DeadLetter] = []
        self.seen: list[efo.events.Event] = []
        self.store = efo.leases.MemoryLeaseStore()

    def put(self, *data: bytes) -> None:
        self.fake.put_many("orders", [("customer-1", one) for one in data])

    async def handle(self, orders, batch) -> None:
        await trio.lowlevel.checkpoint()
        assert [order.id for order in orders] == [msgspec.json.decode(one.data)["id"] for one in batch]
        self.calls.append([order.id for order in orders])

    async def handle_one(self, order, record, batch) -> None:
        assert record in batch.records
        await self.handle([order], efo.Batch("s", "shard", (record,), None, 0, 0))

    async def store_letter(self, letter: efo.DeadLetter) -> None:
        self.letters.append(letter)

    async def run(self, seconds: float, on_error=None, **handlers) -> None:
        with trio.move_on_after(seconds):
            await efo.consume(
                self.fake.kinesis("orders"),
                application="billing",
                leases=self.store,
                on_error=on_error,
                observer=self.seen.append,
                **handlers,
            )


@asynccontextmanager
async def open_shop():
    async with FakeKinesis() as fake:
        fake.create_stream("orders", shards=1)
        yield Shop(fake)


def orders(*numbers):
    return [b'{"id": %d}' % number for number in numbers]


@pytest.mark.parametrize("is_batch", [True, False])
async def test_a_record_that_is_no_order_is_dead_lettered_alone_and_without_retries(is_batch, autojump_clock):
    async with open_shop() as shop:
        shop.put(*orders(0, 1), POISON, *orders(3, 4))
        policy = efo.FailurePolicy(attempts=5, then="dead_letter", dead_letter=shop.store_letter)
        read = deserializers.json(Order)
        if is_batch:
            await shop.run(20, policy, handler=efo.deserialize(shop.handle, read))
        else:
            await shop.run(20, policy, record_handler=efo.deserialize_record(shop.handle_one, read))
        assert [number for call in shop.calls for number in call] == [0, 1, 3, 4]
        (letter,) = shop.letters
        assert letter.record.data == POISON
        assert isinstance(letter.error, efo.errors.DeserializationError)
        assert letter.error.sequence_number == letter.record.sequence_number
        failed = [event for event in shop.seen if isinstance(event, events.HandlerFailed)]
        assert {event.action for event in failed} <= {"split", "dead_letter"}
        assert {event.error_type for event in failed} == {"deserialization"}
        assert "order" not in " ".join(map(str, shop.seen)).replace("orders", "")


async def test_failures_of_the_handler_itself_are_retried_as_before(autojump_clock):
    async with open_shop() as shop:
        shop.put(*orders(0))
        tries = []

        async def handle(values, batch) -> None:
            tries.append(len(values))
            if len(tries) < 3:
                raise OSError("the database is down")

        await shop.run(20, efo.FailurePolicy(attempts=3), handler=efo.deserialize(handle, deserializers.json(Order)))
        assert tries == [1, 1, 1]


async def test_without_a_policy_everything_stops_with_an_error_that_names_the_record(autojump_clock):
    async with open_shop() as shop:
        shop.put(*orders(0), POISON)
        with pytest.raises(efo.errors.DeserializationError, match=r"record \d+: not JSON that fits Order"):
            await shop.run(20, record_handler=efo.deserialize_record(shop.handle_one, deserializers.json(Order)))
        assert shop.calls == [[0]]


async def test_hold_reaches_the_consumer(autojump_clock):
    async with open_shop() as shop:
        shop.put(*orders(0))
        flushed = []

        async def flush(shard_id: str) -> None:
            flushed.append(shard_id)

        async def hold(_values, _batch) -> efo.HandlerResult:
            return efo.HOLD

        async with trio.open_nursery() as nursery:
            consumer = await nursery.start(
                partial(
                    efo.consume,
                    shop.fake.kinesis("orders"),
                    efo.deserialize(hold, deserializers.json(Order)),
                    application="billing",
                    leases=shop.store,
                    flush=flush,
                    observer=efo.events.ignore_events,
                )
            )
            await trio.sleep(5)
            consumer.drain()
        assert len(flushed) == 1


@pytest.mark.parametrize("is_batch", [True, False])
async def test_schemas_are_loaded_while_the_records_wait(is_batch, autojump_clock):
    async with open_shop() as shop:
        shop.put(*[struct.pack(">bI", 0, schema_id) + b"\x02" for schema_id in (7, 7, 8, 7)])
        asked, values = [], []

        async def find(schema_id: int) -> str:
            asked.append(schema_id)
            await trio.sleep(1)
            return '"long"'

        async def handle(numbers, _batch) -> None:
            values.extend(numbers)

        async def handle_one(number, _record, _batch) -> None:
            values.append(number)

        read = deserializers.confluent(deserializers.by_schema(find, deserializers.avro))
        handlers = (
            {"handler": efo.deserialize(handle, read)}
            if is_batch
            else {"record_handler": efo.deserialize_record(handle_one, read)}
        )
        await shop.run(20, **handlers)
        assert (asked, values) == ([7, 8], [1, 1, 1, 1])


async def test_a_registry_that_is_down_is_a_failure_of_its_own_kind(autojump_clock):
    async with open_shop() as shop:
        shop.put(struct.pack(">bI", 0, 7) + b"\x02")
        tries, values = [], []

        async def find(_schema_id: int) -> str:
            tries.append(trio.current_time())
            if len(tries) < 3:
                raise OSError("the registry is down")
            return '"long"'

        async def handle(numbers, _batch) -> None:
            values.extend(numbers)

        read = deserializers.confluent(deserializers.by_schema(find, deserializers.avro))
        await shop.run(60, efo.FailurePolicy(attempts=5), handler=efo.deserialize(handle, read))
        assert (len(tries), values) == (3, [1])


def batch_of(count: int) -> efo.Batch:
    records = tuple(efo.Record(str(n), 0.0, b"%d" % n, "k") for n in range(count))
    return efo.Batch("orders", "shard", records, None, 0, 0)


async def test_other_tasks_get_a_turn_while_a_large_batch_is_deserialized(monkeypatch):
    monkeypatch.setattr(
        module, "perf_counter", iter(range(10_000)).__next__
    )  # each look at the clock is a second later
    turns = []

    async def others() -> None:
        while True:
            turns.append(1)
            await trio.lowlevel.checkpoint()

    async def handle(values, _batch) -> None:
        assert values == list(range(500))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await efo.deserialize(handle, deserializers.json(int))(batch_of(500))
        nursery.cancel_scope.cancel()
    assert len(turns) >= 30


def test_a_wrapped_handler_also_runs_under_asyncio(monkeypatch):
    monkeypatch.setattr(module, "perf_counter", iter(range(10_000)).__next__)
    got = []

    async def handle(values, _batch) -> None:
        await asyncio.sleep(0)
        got.extend(values)

    asyncio.run(efo.deserialize(handle, deserializers.json(int))(batch_of(100)))
    assert got == list(range(100))


# --- a batch that is far larger without its compression ---


def compressed(*sizes: int) -> list[bytes]:
    return [gzip.compress(b"x" * size) for size in sizes]


@pytest.mark.parametrize("key_concurrency", [1, 2])
async def test_a_batch_that_unpacks_to_much_is_handled_and_acked_in_parts(key_concurrency, monkeypatch, autojump_clock):
    monkeypatch.setattr(module, "MAX_UNPACKED", 1000)
    async with open_shop() as shop:
        shop.put(*compressed(400, 400, 400, 10, 5000, 10, 10))
        calls, acked = [], []

        async def handle(values, batch) -> None:
            await trio.lowlevel.checkpoint()
            assert [len(value) for value in values] == [len(gzip.decompress(one.data)) for one in batch]
            calls.append([len(value) for value in values])
            await trio.sleep(30)  # the checkpoint of the part before is saved meanwhile
            acked.append((await shop.store.list())[0].checkpoint)

        read = deserializers.gzip(deserializers.raw)
        await shop.run(200, handler=efo.deserialize(handle, read), key_concurrency=key_concurrency)
        assert calls == [[400, 400, 400], [10, 5000], [10, 10]]
        assert acked[0] < acked[1] < acked[2]


async def test_a_part_that_fails_does_not_repeat_those_before_it(monkeypatch, autojump_clock):
    monkeypatch.setattr(module, "MAX_UNPACKED", 1000)
    async with open_shop() as shop:
        shop.put(*compressed(2000, 2000), POISON, *compressed(10))
        calls = []

        async def handle(values, _batch) -> None:
            await trio.lowlevel.checkpoint()
            calls.append([len(value) for value in values])

        policy = efo.FailurePolicy(then="dead_letter", dead_letter=shop.store_letter)
        await shop.run(20, policy, handler=efo.deserialize(handle, deserializers.gzip(deserializers.raw)))
        assert calls == [[2000], [2000], [10]]
        assert [letter.record.data for letter in shop.letters] == [POISON]


async def test_a_part_may_be_held(monkeypatch, autojump_clock):
    monkeypatch.setattr(module, "MAX_UNPACKED", 1000)
    async with open_shop() as shop:
        shop.put(*compressed(2000, 2000, 10))
        held, flushed = [], []

        async def handle(values, _batch) -> efo.HandlerResult:
            held.extend(len(value) for value in values)
            return efo.HOLD

        async def flush(_shard_id: str) -> None:
            flushed.extend(held)

        async with trio.open_nursery() as nursery:
            consumer = await nursery.start(
                partial(
                    efo.consume,
                    shop.fake.kinesis("orders"),
                    efo.deserialize(handle, deserializers.gzip(deserializers.raw)),
                    application="billing",
                    leases=shop.store,
                    flush=flush,
                    observer=efo.events.ignore_events,
                )
            )
            await trio.sleep(5)
            consumer.drain()
        assert flushed == [2000, 2000, 10]


async def test_a_seek_between_two_parts_abandons_the_second(monkeypatch, autojump_clock):
    monkeypatch.setattr(module, "MAX_UNPACKED", 1000)
    async with open_shop() as shop:
        shop.put(*compressed(2000, 2000))
        calls = []

        async def handle(values, batch) -> None:
            await trio.lowlevel.checkpoint()
            calls.append(batch.records[0].sequence_number)
            if len(calls) == 1:
                consumers[0].seek(batch.shard_id, efo.Checkpoint.TRIM_HORIZON)

        consumers = []
        with trio.move_on_after(20):
            async with trio.open_nursery() as nursery:
                consumers.append(
                    await nursery.start(
                        partial(
                            efo.consume,
                            shop.fake.kinesis("orders"),
                            efo.deserialize(handle, deserializers.gzip(deserializers.raw)),
                            application="billing",
                            leases=shop.store,
                            observer=efo.events.ignore_events,
                        )
                    )
                )
        assert len(calls) == 3
        assert calls[0] == calls[1] < calls[2]


async def test_each_large_record_gives_other_tasks_a_turn(monkeypatch):
    monkeypatch.setattr(module, "perf_counter", iter(range(10_000)).__next__)
    turns = []

    async def others() -> None:
        while True:
            turns.append(1)
            await trio.lowlevel.checkpoint()

    async def handle(*_values) -> None: ...

    records = tuple(efo.Record(str(n), 0.0, gzip.compress(bytes(50_000)), "k") for n in range(30))
    batch = efo.Batch("orders", "shard", records, None, 0, 0)
    read = deserializers.gzip(deserializers.raw)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await efo.deserialize(handle, read)(batch)
        assert len(turns) >= 29
        turns.clear()
        handle_record = efo.deserialize_record(handle, read)
        for record in records:
            await handle_record(record, batch)
        nursery.cancel_scope.cancel()
    assert len(turns) >= 29


@pytest.mark.parametrize("is_batch", [True, False])
async def test_attempts_that_fail_give_other_tasks_turns(is_batch, monkeypatch):
    """Each half of a batch that is split is tried at once, without a pause."""
    monkeypatch.setattr(module, "perf_counter", iter(range(10_000)).__next__)
    turns = []

    async def others() -> None:
        while True:
            turns.append(1)
            await trio.lowlevel.checkpoint()

    async def handle(*_values) -> None: ...

    record = efo.Record("1", 0.0, POISON, "k")
    batch = efo.Batch("orders", "shard", (record,), None, 0, 0)
    read = deserializers.json(Order)
    tried = efo.deserialize(handle, read) if is_batch else efo.deserialize_record(handle, read)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        for _ in range(10):
            with pytest.raises(efo.errors.DeserializationError):
                await (tried(batch) if is_batch else tried(record, batch))
        nursery.cancel_scope.cancel()
    assert len(turns) >= 8


async def test_a_schema_that_cannot_be_used_is_a_failure_of_its_record(autojump_clock):
    """Not a mistake in the handler, which no policy may change: whoever registers schemas would end all consumers."""
    async with open_shop() as shop:
        header = b"\0" + (7).to_bytes(4, "big")
        shop.put(header, b"\0" + (8).to_bytes(4, "big") + b"\x02")
        read = deserializers.confluent(deserializers.by_schema({7: "no schema", 8: '"long"'}, deserializers.avro))
        values = []

        async def handle(found, _batch) -> None:
            values.extend(found)

        policy = efo.FailurePolicy(then="dead_letter", dead_letter=shop.store_letter)
        await shop.run(20, policy, handler=efo.deserialize(handle, read))
        assert values == [1]
        assert "schema 7 cannot be used" in shop.letters[0].error.reason


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: efo.deserialize(lambda _values, _batch: None, len), "is not an async function"),
        (lambda: efo.deserialize(one_parameter, len), "cannot be called with (values, batch)"),
        (lambda: efo.deserialize_record(one_parameter, len), "cannot be called with (value, record, batch)"),
        (lambda: efo.deserialize(two_parameters, Order), "expected a deserializer"),
        (lambda: efo.deserialize(two_parameters, one_parameter), "expected a deserializer"),
        (lambda: efo.deserialize(two_parameters, lambda: 1), "cannot be called with (record)"),
    ],
)
def test_a_function_that_does_not_fit_is_refused_at_the_call(make, message):
    with pytest.raises(efo.errors.ConfigurationError) as caught:
        make()
    assert message in str(caught.value)


async def one_parameter(_values) -> None: ...


async def two_parameters(_values, _batch) -> None: ...


async def test_a_wrapped_handler_that_misuses_efo_is_recognised(autojump_clock):
    async with open_shop() as shop:
        shop.put(*orders(0))

        async def handle(_values, batch) -> None:
            batch.shard  # noqa: B018 - the attribute is misspelt

        with pytest.raises(efo.errors.HandlerError, match="does not fit efo"):
            await shop.run(
                20, efo.FailurePolicy(then="skip"), handler=efo.deserialize(handle, deserializers.json(Order))
            )


APPLICATION = """
from collections.abc import Sequence
import efo
import msgspec

class Order(msgspec.Struct):
    id: int

async def bill(orders: Sequence[Order], batch: efo.Batch) -> None: ...
async def bill_one(order: Order, record: efo.Record, batch: efo.Batch) -> None: ...
async def count(number: int, record: efo.Record, batch: efo.Batch) -> None: ...

read = efo.deserializers.gzip(efo.deserializers.json(Order))
good = efo.deserialize(bill, read)
good_one = efo.deserialize_record(bill_one, efo.deserializers.cloudevents(read))
wrong = efo.deserialize_record(count, read)
order: int = read(efo.Record("1", 0.0, b"", "k"))
by_id: efo.deserializers.BySchema[int, Order] = efo.deserializers.by_schema(
    {7: "schema"}, lambda schema: efo.deserializers.avro(schema, Order)
)
fine = efo.deserialize(bill, efo.deserializers.confluent(by_id))
wrong_id = efo.deserializers.glue(by_id)
"""


def test_mypy_knows_the_type_of_the_value(tmp_path):
    path = tmp_path / "application.py"
    path.write_text(APPLICATION)
    command = ["-m", "mypy", "--strict", "--no-incremental", "--cache-dir=/dev/null", str(path)]
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    found = [line for line in done.stdout.splitlines() if "application.py:" in line and "error" in line]
    lines = APPLICATION.splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if line.startswith(("good_one", "wrong", "order:"))]
    assert sorted({int(line.split("application.py:")[1].split(":")[0]) for line in found}) == wrong, done.stdout


# --- when other tasks get a turn ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "seconds", "counts", "turns"),
    [
        (1, 0.001, [33], [16, 32]),  # the clock is read once for so many records
        (16 * 1024, 0.011, [5], [2, 4]),  # or for so many bytes
        (16 * 1024 + 1, 0.011, [4], [1, 2, 3]),
        (1, 0.008, [1, 1, 1, 1], [2]),  # the time of the calls before counts, until others had their turn
    ],
)
async def test_other_tasks_get_a_turn_after_so_long_by_the_clock(monkeypatch, size, seconds, counts, turns):
    now, made, passed = 0.0, 0, []

    def deserializer(_record):
        nonlocal now, made
        now += seconds
        made += 1

    async def note() -> None:
        passed.append(made)

    monkeypatch.setattr(module, "perf_counter", lambda: now)
    monkeypatch.setattr(module, "_pass", note)
    spent = module._Turns()
    for count in counts:
        records = tuple(efo.Record(str(number), 0.0, bytes(size), "key") for number in range(count))
        assert len(await module._values(deserializer, efo.Batch("orders", "s-0", records, None, 0, 0), spent)) == count
    assert passed == turns
