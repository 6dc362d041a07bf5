"""Processors of amazon_kclpy and kcl-rs, as they are. Their packages are stand-ins with the same names."""

from __future__ import annotations

import base64
import sys
from datetime import UTC, datetime
from types import ModuleType

import pytest
import trio

import efo
import efo.sync
from efo.errors import ConfigurationError
from tests.efo.consumer.handlers.test_processor import stream_of

SHARD = "shardId-000000000000"


class CheckpointError(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value


@pytest.fixture(params=["amazon_kclpy", "kcl_rs"])
def package(request, monkeypatch):
    """Return the name of a package that can be imported."""
    for name in ("amazon_kclpy", "amazon_kclpy.checkpoint_error", "kcl_rs"):
        module = ModuleType(name)
        module.CheckpointError = CheckpointError
        monkeypatch.setitem(sys.modules, name, module)
    return request.param


def base_of(package):
    """Return the base class of a package's processors."""

    class RecordProcessorBase:
        version = 3

        def process_records(self, process_records_input):
            raise NotImplementedError

    RecordProcessorBase.__module__ = f"{package}.processor"
    return RecordProcessorBase


def recorder(package, calls, **methods):
    """Return a class of processors that records what its methods are given."""

    class Recorder(base_of(package)):
        def initialize(self, initialize_input):
            calls.append(("initialize", initialize_input.shard_id, initialize_input.sequence_number))

        def process_records(self, process_records_input):
            calls.append(("process_records", [record.binary_data for record in process_records_input.records]))

        def lease_lost(self, lease_lost_input):
            calls.append(("lease_lost",))

        def shard_ended(self, shard_ended_input):
            calls.append(("shard_ended",))
            shard_ended_input.checkpointer.checkpoint()

        def shutdown_requested(self, shutdown_requested_input):
            calls.append(("shutdown_requested",))
            shutdown_requested_input.checkpointer.checkpoint()

    for name, method in methods.items():
        setattr(Recorder, name, method)
    return Recorder


async def run(stream, factory, until):
    """Run processors until something is true, then drain. In real time: virtual time does not wait for threads."""
    async with (
        stream.open() as kinesis,
        efo.open_consumer(kinesis, application="app", leases=stream.leases, observer=stream.events.append) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, efo.ProcessorReader(factory))
        while not until():  # noqa: ASYNC110 - it happens in a thread
            await trio.sleep(0.01)
        consumer.drain()


async def test_their_life_is_kcls(package):
    calls = []
    stream = stream_of(b"1", b"2", b"3")
    await run(stream, recorder(package, calls), lambda: len(calls) == 3)
    assert calls == [
        ("initialize", SHARD, "TRIM_HORIZON"),
        ("process_records", [b"1", b"2"]),
        ("process_records", [b"3"]),
        ("shutdown_requested",),
        ("lease_lost",),
    ]
    assert stream.processed() == [b"1", b"2", b"3"]


async def test_a_shard_ends_with_a_checkpoint_and_its_children_follow(package):
    calls = []
    stream = stream_of(b"1")
    stream.split(SHARD)
    await run(stream, recorder(package, calls), lambda: len(calls) == 5)
    assert calls[:3] == [("initialize", SHARD, "TRIM_HORIZON"), ("process_records", [b"1"]), ("shard_ended",)]
    assert [call[0] for call in calls].count("initialize") == 3


async def test_a_shard_that_ends_without_records_ends_with_a_checkpoint_too(package):
    calls = []
    stream = stream_of()
    stream.split(SHARD)
    await run(stream, recorder(package, calls), lambda: len(calls) == 4)
    assert calls[:2] == [("initialize", SHARD, "TRIM_HORIZON"), ("shard_ended",)]
    assert [call[0] for call in calls].count("initialize") == 3


async def test_a_record_has_the_attributes_of_its_package(package):
    seen = []

    def process_records(self, given):
        assert given.millis_behind_latest >= 0
        seen.extend(given.records)

    await run(stream_of(b"\x00\xff"), recorder(package, [], process_records=process_records), lambda: seen)
    (record,) = seen
    assert record.binary_data == b"\x00\xff"
    assert (record.partition_key, record.sub_sequence_number) == ("key", 0)
    assert record.sequence_number.isdigit()
    arrival = record.timestamp_millis / 1000
    if package == "amazon_kclpy":
        assert record.data == record.get("data") == record["data"] == base64.b64encode(b"\x00\xff").decode()
        assert record.approximate_arrival_timestamp == datetime.fromtimestamp(arrival)  # noqa: DTZ006
    else:
        assert record.data == b"\x00\xff"
        assert record.approximate_arrival_timestamp == datetime.fromtimestamp(arrival, UTC)


async def test_a_checkpoint_is_saved_when_the_call_returns_and_refused_by_kcls_names(package):
    saved, refused = [], []

    def process_records(self, given):
        first, second = (record.sequence_number for record in given.records)
        given.checkpointer.checkpoint(first, 0)
        saved.append(stream.processed())
        for position in [("9" * 60,), ("x",), (first, -1)]:
            with pytest.raises(CheckpointError) as caught:
                given.checkpointer.checkpoint(*position)
            refused.append(caught.value.value)
        with pytest.raises(CheckpointError) as caught:
            given.checkpointer.prepare_checkpoint(second)
        refused.append(caught.value.value)
        self.checkpointer = given.checkpointer

    def shutdown_requested(self, given):
        """Leave the second record."""

    def lease_lost(self, given):
        assert given.checkpointer is None
        with pytest.raises(CheckpointError) as caught:
            self.checkpointer.checkpoint()
        refused.append(caught.value.value)

    stream = stream_of(b"1", b"2")
    methods = {"process_records": process_records, "shutdown_requested": shutdown_requested, "lease_lost": lease_lost}
    await run(stream, recorder(package, [], **methods), lambda: len(refused) == 4)
    assert saved == [[b"1"]]
    assert refused == [*["IllegalArgumentException"] * 3, "UnsupportedOperationException", "InvalidStateException"]
    assert stream.processed() == [b"1"]


async def test_a_function_that_makes_them_is_taken(package):
    calls = []
    await run(stream_of(b"1"), lambda: recorder(package, calls)(), lambda: len(calls) == 2)  # noqa: PLW0108 - a function
    assert calls[1] == ("process_records", [b"1"])


async def test_a_version_that_is_unknown_is_refused(package):
    with pytest.raises(ConfigurationError, match="version is 4"):
        await run(stream_of(b"1"), recorder(package, [], version=4), lambda: False)


def test_other_surfaces_do_not_take_them(package):
    with pytest.raises(ConfigurationError, match=r"efo\.sync\.RecordProcessor"):
        efo.sync.ProcessorReader(recorder(package, []))


def test_a_class_of_nobody_is_refused_as_before():
    with pytest.raises(ConfigurationError, match=r"efo\.RecordProcessor"):
        efo.ProcessorReader(type("Other", (), {"process_records": len}))
