"""Record processors in KCL's manner: when their methods are called, and what is refused."""

from __future__ import annotations

import random

import pytest
import trio

import efo
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
