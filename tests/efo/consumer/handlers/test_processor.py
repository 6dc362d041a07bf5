"""Record processors in KCL's manner: when their methods are called, and what is refused."""

from __future__ import annotations

import random
from functools import partial
from types import SimpleNamespace

import pytest
import trio

import efo
from efo.consumer.handlers.processor import LEASE_LOST_TIMEOUT, Checkpointer
from efo.protocol.per_key_order import BatchSlice
from efo.testing import InMemoryStream


class Recorder(efo.RecordProcessor):
    """Records the calls of its methods; `stream` and `consumer` are set by the test."""

    calls: list[tuple[str, object]]

    async def initialize(self, shard_id, checkpoint):
        self.calls.append(("initialize", str(checkpoint)))

    async def process_records(self, batch, checkpointer):
        self.calls.append(("process_records", [record.data for record in batch]))

    async def lease_lost(self):
        self.calls.append(("lease_lost", None))

    async def shard_ended(self, checkpointer):
        self.calls.append(("shard_ended", None))
        checkpointer.checkpoint()

    async def shutdown_requested(self, checkpointer):
        self.calls.append(("shutdown_requested", None))


async def run(stream, kind, seconds=10.0, **options):
    """Run processors for some seconds, then drain; return their calls."""
    kind.calls = []
    async with (
        stream.open() as kinesis,
        efo.open_consumer(kinesis, application="app", leases=stream.leases, observer=stream.events.append) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, efo.ProcessorReader(kind, rng=random.Random(1), **options))
        await trio.sleep(seconds)
        consumer.drain()
    return kind.calls


def stream_of(*data):
    stream = InMemoryStream(batch_records=2)
    stream.put("key", *data)
    return stream


async def test_a_drain_requests_the_shutdown_and_acks_nothing_by_itself(autojump_clock):
    stream = stream_of(b"1", b"2", b"3")
    calls = await run(stream, Recorder)
    assert calls == [
        ("initialize", "TRIM_HORIZON"),
        ("process_records", [b"1", b"2"]),
        ("process_records", [b"3"]),
        ("shutdown_requested", None),
    ]
    assert stream.processed() == []


async def test_by_default_the_shutdown_checkpoints(autojump_clock):
    class Processor(efo.RecordProcessor):
        calls: list

        async def process_records(self, batch, checkpointer):
            """Leave the checkpoint to the default."""

    stream = stream_of(b"1", b"2", b"3")
    await run(stream, Processor)
    assert stream.processed() == [b"1", b"2", b"3"]


async def test_the_end_of_a_shard_comes_before_its_children(autojump_clock):
    class Processor(Recorder):
        async def process_records(self, batch, checkpointer):
            await super().process_records(batch, checkpointer)
            if batch.records[-1].data == b"1":
                stream.split(batch.shard_id)
                stream.put("key", b"2")

    stream = stream_of(b"1")
    calls = [name for name, _ in await run(stream, Processor)]
    assert calls[:3] == ["initialize", "process_records", "shard_ended"]
    assert calls.count("initialize") == 3
    assert efo.Checkpoint.SHARD_END in stream.checkpoints().values()


async def test_a_shard_that_is_not_checkpointed_at_its_end_stops_everything(autojump_clock):
    class Processor(Recorder):
        async def process_records(self, batch, checkpointer):
            stream.split(batch.shard_id)

        async def shard_ended(self, checkpointer):
            """Forget to checkpoint."""

    stream = stream_of(b"1")
    with pytest.raises(efo.errors.EfoError, match="read to its end"):
        await run(stream, Processor)


async def test_a_lost_lease_is_reported_while_a_batch_is_processed(autojump_clock):
    class Processor(Recorder):
        async def process_records(self, batch, checkpointer):
            stream.lose_lease(batch.shard_id)
            await trio.sleep_forever()

    stream = stream_of(b"1")
    assert await run(stream, Processor) == [("initialize", "TRIM_HORIZON"), ("lease_lost", None)]


async def test_a_cancellation_is_no_lost_lease(autojump_clock):
    stream = stream_of(b"1")
    with trio.move_on_after(5):
        await run(stream, Recorder)
    assert ("lease_lost", None) not in Recorder.calls


async def test_a_drain_between_two_attempts_does_not_checkpoint_what_failed(autojump_clock):
    class Processor(efo.RecordProcessor):
        calls: list

        async def process_records(self, batch, checkpointer):
            if batch.records[0].data == b"3":
                raise OSError("the database is down")

    stream = stream_of(b"1", b"2", b"3")
    policy = efo.FailurePolicy(attempts=None, retry_for=3600, backoff=1000, backoff_limit=1000)
    await run(stream, Processor, on_error=policy)
    assert stream.processed() == [b"1", b"2"]


async def test_a_record_of_the_batch_may_be_checkpointed(autojump_clock):
    class Processor(Recorder):
        async def process_records(self, batch, checkpointer):
            checkpointer.checkpoint(batch.records[0])
            with pytest.raises(efo.errors.ConfigurationError, match="not one of its batch"):
                checkpointer.checkpoint(efo.Record("1", 1.0, b"", "key"))

    stream = stream_of(b"1", b"2")
    await run(stream, Processor)
    assert stream.processed() == [b"1"]


class NoMethod(efo.RecordProcessor):
    pass


class Plain(efo.RecordProcessor):
    def process_records(self, batch, checkpointer):
        pass


class TooFew(efo.RecordProcessor):
    async def process_records(self, batch):
        pass


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (NoMethod, "has no process_records"),
        (Plain, "write `async def`"),
        (TooFew, r"expected \(batch, checkpointer\)"),
        (Recorder(), "pass its class"),
        (dict, "expected one derived from efo.RecordProcessor"),
        (None, "expected a class, or a function"),
    ],
)
def test_what_is_no_record_processor_is_refused_at_the_call(factory, message):
    with pytest.raises(efo.errors.ConfigurationError, match=message):
        efo.ProcessorReader(factory)


async def test_a_factory_that_returns_something_else_stops_everything(autojump_clock):
    async def main():
        async with (
            stream.open() as kinesis,
            efo.open_consumer(kinesis, application="app", leases=stream.leases) as consumer,
        ):
            await consumer.run(efo.ProcessorReader(lambda: "processor"))

    stream = stream_of(b"1")
    with pytest.raises(efo.errors.HandlerError, match=r"expected an efo\.RecordProcessor"):
        await main()


# --- the reader and its checkpointer, of a shard that the test is ------------------------------------------


def batch_of(*numbers):
    return efo.Batch("orders", "s-0", tuple(efo.Record(str(n), 0.0, b"1", "key") for n in numbers), None, 0, 0)


FIRST, SECOND = batch_of(101, 102, 103), batch_of(104)


class Shard:
    """A shard with these batches. `acked`: what was acked through. `spans`: how many batches were processed in one."""

    shard_id = "s-0"
    stream = "orders"
    ages = None
    is_traced = False

    def __init__(self, *batches, is_finished=False):
        self.batches = [*batches]
        self.is_finished = is_finished
        self.is_lost = False
        self.checkpoint = efo.Checkpoint("100")
        self.acked = []
        self.seen = []
        self.observer = self.seen.append
        self.spans = 0

    def ack_through(self, batch, index):
        self.acked.append(batch.records[index].sequence_number)

    def is_wanted(self, _batch):
        return True

    async def wait(self, _batch, seconds):
        await trio.sleep(seconds)
        return True

    def process_span(self, _batch):
        self.spans += 1
        return trio.CancelScope()

    async def __anext__(self):
        await trio.lowlevel.checkpoint()
        if not self.batches:
            raise StopAsyncIteration
        return self.batches.pop(0)


def test_a_checkpointer_acks_what_was_passed_last_and_once():
    shard = Shard()
    checkpointer = Checkpointer(shard)
    checkpointer.checkpoint()  # nothing was passed
    assert checkpointer._passed(BatchSlice(FIRST, (0, 1))) is None
    assert checkpointer._passed(BatchSlice(FIRST, (0, 1))) == BatchSlice(FIRST, (0, 1))
    checkpointer.checkpoint(FIRST.records[0])
    checkpointer.checkpoint(FIRST.records[1])
    assert shard.acked == ["101", "102"]
    checkpointer.checkpoint()
    checkpointer.checkpoint()
    assert shard.acked == ["101", "102", "102"]


@pytest.mark.parametrize(
    ("part", "record", "message"),
    [
        (None, FIRST.records[0], "s-0: no record has been passed to the processor yet"),
        (BatchSlice(FIRST, (0, 1)), FIRST.records[2], "s-0: that record was not passed to the processor yet"),
        (BatchSlice(FIRST, (0, 1)), SECOND.records[0], "not one of its batch"),
    ],
)
def test_a_record_that_was_not_passed_cannot_be_checkpointed(part, record, message):
    shard = Shard()
    checkpointer = Checkpointer(shard)
    checkpointer._passed(part)
    with pytest.raises(efo.errors.ConfigurationError, match=message):
        checkpointer.checkpoint(record)
    assert shard.acked == []


def test_a_surface_may_post_the_acks_elsewhere():
    posted = []
    checkpointer = Checkpointer(Shard(), lambda *call: posted.append(call[1:]))
    checkpointer._passed(BatchSlice.whole(SECOND))
    checkpointer.checkpoint()
    assert posted == [(SECOND, 0)]


class Scripted(efo.RecordProcessor):
    """`calls`: those of its methods. `failing`: what `process_records` raises or returns, one after the other."""

    calls: list
    failing: list
    lost_seconds = 0.0

    async def initialize(self, shard_id, checkpoint):
        self.calls.append((shard_id, str(checkpoint)))

    async def process_records(self, batch, checkpointer):
        self.calls.append([int(record.sequence_number) for record in batch])
        outcome = self.failing.pop(0) if self.failing else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def lease_lost(self):
        await trio.sleep(self.lost_seconds)
        self.calls.append("lost")


async def read(shard, *failing, kind=Scripted, **options):
    """Read a shard by a processor; return its calls."""
    kind.calls, kind.failing = [], [*failing]
    await efo.ProcessorReader(kind, rng=random.Random(1), **options)(shard)
    return kind.calls


async def test_a_processor_begins_with_its_shard_and_gets_each_batch_in_a_span(autojump_clock):
    shard = Shard(FIRST, SECOND)
    assert await read(shard) == [("s-0", "100"), [101, 102, 103], [104]]
    assert (shard.acked, shard.spans) == (["104"], 2)


@pytest.mark.parametrize("is_finished", [False, True])
async def test_by_default_both_ends_of_a_shard_checkpoint(autojump_clock, is_finished):
    shard = Shard(SECOND, is_finished=is_finished)
    ended = []

    class Processor(Scripted):
        async def shutdown_requested(self, checkpointer):
            ended.append(False)
            await super().shutdown_requested(checkpointer)

        async def shard_ended(self, checkpointer):
            ended.append(True)
            await super().shard_ended(checkpointer)

    await read(shard, kind=Processor)
    assert (shard.acked, ended) == (["104"], [is_finished])


async def test_what_failed_is_not_checkpointed_and_is_tried_again(autojump_clock):
    shard = Shard(SECOND)
    seen = []
    policy = efo.FailurePolicy(attempts=2)
    assert await read(shard, OSError("down"), on_error=policy, observer=seen.append) == [("s-0", "100"), [104], [104]]
    assert [type(event) for event in seen] == [efo.events.HandlerFailed]
    assert shard.seen == []
    shard = Shard(FIRST, SECOND)
    with pytest.raises(OSError, match="down"):
        await read(shard, None, OSError("down"))
    assert shard.acked == []


@pytest.mark.parametrize("error", [OSError("down"), trio.TooSlowError()])
async def test_a_checkpoint_after_a_failure_is_that_of_the_records_before(autojump_clock, error):
    shard = Shard(FIRST, SECOND)
    kept = []

    class Processor(Scripted):
        async def process_records(self, batch, checkpointer):
            kept.append(checkpointer)
            await super().process_records(batch, checkpointer)

    with pytest.raises(type(error)):
        await read(shard, None, error, kind=Processor)
    kept[0].checkpoint()
    assert shard.acked == ["103"]


async def test_a_processor_that_returns_something_is_refused(autojump_clock):
    with pytest.raises(efo.errors.HandlerError, match="process_records returned int: expected None"):
        await read(Shard(SECOND), 7)


@pytest.mark.parametrize(("is_lost", "seconds", "calls"), [(True, 1.0, ["lost"]), (True, 9.0, []), (False, 1.0, [])])
async def test_a_lost_lease_gives_a_processor_a_moment_to_clean_up(autojump_clock, is_lost, seconds, calls):
    class Processor(Scripted):
        lost_seconds = seconds

        async def process_records(self, batch, checkpointer):
            await trio.sleep_forever()

    shard = Shard(SECOND)
    shard.is_lost = is_lost
    with trio.move_on_after(5):
        await read(shard, kind=Processor)
    assert Processor.calls[1:] == calls
    assert trio.current_time() == 5 + (min(seconds, LEASE_LOST_TIMEOUT) if is_lost else 0.0)
    assert LEASE_LOST_TIMEOUT == 2.0


class Sync:
    """A base class of processors of another surface."""

    def initialize(self, shard_id, checkpoint): ...

    def process_records(self, batch, checkpointer): ...

    def lease_lost(self): ...

    def shard_ended(self, checkpointer): ...

    def shutdown_requested(self, checkpointer): ...


class SyncReader(efo.ProcessorReader):
    processor_type = Sync
    are_async = False
    takes_kcl_classes = False


class AsyncOne(Sync):
    async def process_records(self, batch, checkpointer): ...


class Wrong(Scripted):
    async def lease_lost(self, reason): ...


@pytest.mark.parametrize(
    ("reader", "factory", "message"),
    [
        (SyncReader, AsyncOne, r"AsyncOne.process_records: write `def`, not `async def` for an efo.RecordProcessor"),
        (SyncReader, Sync, "Sync has no process_records: define it"),
        (SyncReader, Scripted, "factory Scripted is a class: expected one derived from efo.RecordProcessor"),
        (efo.ProcessorReader, Wrong, r"Wrong.lease_lost\(self, reason\): expected \(\)"),
        (efo.ProcessorReader, 7, "factory=7: expected a class, or a function"),
    ],
)
def test_a_class_that_does_not_fit_its_surface_is_refused(reader, factory, message):
    with pytest.raises(efo.errors.ConfigurationError, match=message):
        reader(factory)


@pytest.mark.parametrize("on_error", [7, lambda: None])
def test_a_policy_that_is_none_is_refused(on_error):
    with pytest.raises(efo.errors.ConfigurationError, match="on_error"):
        efo.ProcessorReader(Scripted, on_error=on_error)
    efo.ProcessorReader(Scripted, on_error=lambda _error: efo.FailurePolicy())


async def test_what_a_factory_makes_is_checked_as_a_class_is(autojump_clock):
    with pytest.raises(efo.errors.ConfigurationError, match="expected"):
        await efo.ProcessorReader(partial(Wrong))(Shard())
    with pytest.raises(efo.errors.HandlerError, match="the factory returned <SimpleNamespace>: expected an efo"):
        await efo.ProcessorReader(partial(SimpleNamespace))(Shard())


@pytest.mark.parametrize("surface", ["efo.aio", "efo.sync"])
def test_a_message_names_the_class_of_its_surface(surface):
    base = type("RecordProcessor", (Sync,), {"__module__": f"{surface}.processor"})
    reader = type("Reader", (SyncReader,), {"processor_type": base})
    with pytest.raises(efo.errors.ConfigurationError, match=f"derived from {surface}.RecordProcessor"):
        reader(Scripted)
