from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import BinaryIO

import pytest
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pydantic import ValidationError
from structlog.testing import capture_logs

from efo.errors import ConfigurationError
from efo.events import RecordDeadLettered, RecordSkipped, SinkRecovered
from efo.model import Batch, Record
from efo_service.config.settings import Settings
from efo_service.factories.sinks import SYSTEMS, _Reports, open_sink
from efo_service.log.disk import DiskFiles
from efo_service.log.reader_offsets import commit_reader
from efo_service.log.segments import list_segments
from efo_service.log.sink import LogSink
from efo_service.relay.destination import Destination, SinkRetries
from efo_service.relay.errors import LogIncompleteError, RecordRefusedError, SinkFullError, SinkUnavailableError
from efo_service.relay.measured import SinkMeter
from efo_service.relay.plugins import BUILT_IN
from efo_service.relay.relay import relay_shard
from tests.efo_service.relay.all_sinks import read_log
from tests.efo_service.relay.relaying import ListedShard, relay_all

STREAM, SHARD = "orders", "shardId-000000000000"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BATCH = Batch(
    "s", SHARD, (Record("1", 1.0, b"a", "k", tags=(("traceparent", TRACE),)), Record("2", 1.0, b"\xff", "k")), "3", 0, 0
)


def settings(path, **relay) -> Settings:
    return Settings(
        kinesis={"stream": STREAM},
        relay={
            "directory": path / "log",
            "jsonl_file": path / "lines",
            "trace_extractor": "efo_service.relay.mapping:from_tags",
            **relay,
        },
    )


async def write_batch(chosen: Settings) -> None:
    async with open_sink(chosen) as destination:
        await relay_all(destination, BATCH)


async def test_the_default_sink_is_the_log(tmp_path) -> None:
    await write_batch(settings(tmp_path))
    first, second = read_log(tmp_path, SHARD, STREAM)
    assert (first.value, second.value) == (b"a", b"\xff")
    assert ("traceparent", TRACE.encode()) in first.headers


async def test_dead_letters_of_the_jsonl_sink_are_written_to_the_log(tmp_path) -> None:
    await write_batch(settings(tmp_path, sink="jsonl", jsonl_encoding="utf-8", dead_letters="refused"))
    (line,) = map(json.loads, (tmp_path / "lines").read_text().splitlines())
    assert line["value"] == "a"
    assert ["traceparent", TRACE] in line["headers"]
    (dead_letter,) = read_log(tmp_path, SHARD, "refused")
    assert dead_letter.value == b"\xff"


@pytest.mark.parametrize(
    ("relay", "event"),
    [
        ({"dead_letters": "refused"}, RecordDeadLettered),
        ({"on_refused_record": "skip"}, RecordSkipped),
    ],
)
async def test_each_refused_record_is_reported(tmp_path, relay, event) -> None:
    seen = []
    chosen = settings(tmp_path, sink="jsonl", jsonl_encoding="utf-8", **relay)
    async with open_sink(chosen, seen.append) as destination:
        await relay_all(destination, BATCH)
    assert seen == [event(SHARD, "2", 0, "record_refused", "its value is not UTF-8: invalid start byte at byte 0")]
    assert len((tmp_path / "lines").read_text().splitlines()) == 1


@pytest.mark.parametrize("action", ["isolate", "stop"])
async def test_without_a_place_for_it_a_refused_record_is_an_error(tmp_path, action) -> None:
    with pytest.raises(RecordRefusedError, match="record 2 cannot be written"):
        await write_batch(settings(tmp_path, sink="jsonl", jsonl_encoding="utf-8", on_refused_record=action))


@pytest.mark.parametrize(
    ("relay", "expected"),
    [
        # Only a full disk is waited for; then the error decides as [relay] on_sink_error says.
        (
            {},
            SinkRetries(
                errors=(SinkFullError, SinkUnavailableError), seconds=70, initial=1, limit=30, jitter=0, isolates=False
            ),
        ),
        ({"sink": "jsonl"}, SinkRetries(seconds=70)),
    ],
)
async def test_a_failing_sink_is_waited_for_as_the_settings_say(tmp_path, relay, expected) -> None:
    async with open_sink(settings(tmp_path, **relay, retry_seconds=70, dead_letters="refused")) as destination:
        assert destination.retries == expected
        assert destination.dead_letters.retries.errors == (SinkFullError, SinkUnavailableError)
        assert destination.dead_letters.retries.seconds == 70


async def test_a_missing_trace_extractor_is_refused_when_the_sink_is_opened(tmp_path) -> None:
    with pytest.raises(ConfigurationError, match="trace_extractor"):
        async with open_sink(settings(tmp_path, trace_extractor="nothing:at_all")):
            pass


def drop_first(record):
    return None if record.sequence_number == "1" else record


@pytest.mark.parametrize("sink", ["log", "jsonl"])
async def test_what_the_transform_drops_is_counted_for_each_sink(tmp_path, sink) -> None:
    reader = InMemoryMetricReader()
    chosen = settings(tmp_path, sink=sink, transform=f"{__name__}:drop_first")
    async with open_sink(chosen, meter_provider=MeterProvider([reader])) as destination:
        shard = await relay_all(destination, BATCH)
    assert shard.acked == [(0, None)]
    system = {"log": "efo_log", "jsonl": "efo_jsonl"}[sink]
    attributes = {"messaging.system": system, "messaging.destination.name": STREAM}
    assert points(reader, "efo.relay.dropped") == [(attributes, 1)]


async def test_a_missing_transform_is_refused_when_the_sink_is_opened(tmp_path) -> None:
    with pytest.raises(ConfigurationError, match="transform"):
        async with open_sink(settings(tmp_path, transform="nothing:at_all")):
            pass


def numbered(number: int) -> Batch:
    return Batch("s", SHARD, (Record(str(number), 1.0, b"v", "k"),), None, 0, 0)


async def commit(destination: Destination, *numbers: int) -> None:
    await relay_all(destination, *map(numbered, numbers), each=True)


async def test_maintenance_runs_while_the_log_is_open(tmp_path) -> None:
    with capture_logs() as logs:
        async with open_sink(settings(tmp_path, retention_bytes=1, maintenance_seconds=0.01)) as destination:
            await commit(destination, 1, 2, 3)
            while len(list_segments(tmp_path / "log" / STREAM / "0")) > 1:  # noqa: ASYNC110 - it happens on disk
                await trio.sleep(0.01)
            await commit(destination, 4)
    assert sum(line["expired"] for line in logs if line["event"] == "maintenance_done") >= 2
    assert read_log(tmp_path, SHARD, STREAM)[-1].headers[2] == ("kinesis.sequence", b"4")


async def test_what_retention_leaves_for_a_reader_is_reported(tmp_path) -> None:
    with capture_logs() as logs:
        async with open_sink(settings(tmp_path, retention_bytes=1, maintenance_seconds=0.01)) as destination:
            await commit(destination, 1)
            commit_reader(DiskFiles(tmp_path / "log"), STREAM, "slow", {0: 0}, time.time())
            await commit(destination, 2, 3)
            while not any(line["event"] == "retention_waits_for_readers" for line in logs):  # noqa: ASYNC110 - the same
                await trio.sleep(0.01)
    (held_back, *_) = (line["bytes"] for line in logs if line["event"] == "retention_waits_for_readers")
    assert held_back > 0


async def test_failed_maintenance_is_logged_and_the_sink_stays_open(tmp_path) -> None:
    with capture_logs() as logs:
        async with open_sink(settings(tmp_path, retention_bytes=1, maintenance_seconds=0.01)) as destination:
            await commit(destination, 1)
            (segment,) = list_segments(tmp_path / "log" / STREAM / "0")
            good = segment.path.read_bytes()
            segment.path.write_bytes(b"damaged")
            segment.path.with_name(segment.path.name.replace("0-", "1-", 1).replace("-00", "-02", 1)).write_bytes(good)
            while not any(line["event"] == "maintenance_failed" for line in logs):  # noqa: ASYNC110 - the same
                await trio.sleep(0.01)
    # The disk of this machine may be full too.
    assert next(line["error_type"] for line in logs if line["event"] == "maintenance_failed") == "segment_corrupt"


def points(reader: InMemoryMetricReader, name: str) -> list[tuple[dict[str, object], float]]:
    """Return the attributes and the value of each point of a counter."""
    return [
        (dict(point.attributes), point.value)
        for resource in getattr(reader.get_metrics_data(), "resource_metrics", ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


class DownSink:
    """A sink whose shards cannot be opened `failures` times."""

    def __init__(self, failures: int) -> None:
        self._failures = failures

    @asynccontextmanager
    async def open(self, *_):
        self._failures -= 1
        if self._failures >= 0:
            raise SinkFullError("no room")
        yield SimpleNamespace(position=None, refusal=None)


async def test_each_retry_of_a_sink_is_reported_and_that_it_works_again_once(autojump_clock) -> None:
    reader, seen = InMemoryMetricReader(), []
    meter = SinkMeter("efo_log", STREAM, MeterProvider(metric_readers=[reader], shutdown_on_exit=False))
    destination = Destination(DownSink(241), SinkRetries(seconds=3600), _Reports(meter, seen.append, "isolate"))
    await relay_shard(ListedShard([]), destination, rng=Random(1))
    await relay_all(destination)
    *retried, recovered = seen
    assert {(event.shard_id, event.error_type, event.detail) for event in retried} == {(SHARD, "sink_full", "no room")}
    assert (len(retried), recovered) == (241, SinkRecovered(SHARD))
    assert all(0 <= event.delay <= 5 for event in retried)
    attributes = {"messaging.system": "efo_log", "messaging.destination.name": STREAM, "error.type": "sink_full"}
    assert points(reader, "efo.sink.retries") == [(attributes, 241)]


@pytest.fixture
def full_device() -> Iterator[BinaryIO]:
    """A device without space."""
    with Path("/dev/full").open("wb") as full:
        yield full


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
async def test_a_commit_is_counted_while_it_is_tried_again(full_device, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout", SimpleNamespace(fileno=full_device.fileno))
    reader = InMemoryMetricReader()
    meters = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    config = settings(tmp_path, sink="jsonl", jsonl_file="-", retry_seconds=60)
    async with open_sink(config, meter_provider=meters) as destination, trio.open_nursery() as nursery:
        with capture_logs():
            nursery.start_soon(relay_all, destination, BATCH)
            while not (counted := points(reader, "efo.sink.retries")):  # noqa: ASYNC110 - the sink writes in a thread
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    ((attributes, count),) = counted
    assert attributes == {
        "messaging.system": "efo_jsonl",
        "messaging.destination.name": STREAM,
        "error.type": "sink_full",
    }
    assert count >= 1


def test_the_dead_letter_topic_must_not_be_the_topic_of_the_records(tmp_path) -> None:
    with pytest.raises(ValidationError, match="choose another name"):
        settings(tmp_path, dead_letters=STREAM)


def test_only_the_jsonl_sink_without_a_file_writes_to_stdout(tmp_path) -> None:
    assert settings(tmp_path, sink="jsonl", jsonl_file="-").relay.writes_to_stdout
    assert not settings(tmp_path, sink="jsonl").relay.writes_to_stdout
    assert not settings(tmp_path).relay.writes_to_stdout


def test_every_sink_has_a_name_in_metrics() -> None:
    kinds = BUILT_IN
    assert set(kinds) <= set(SYSTEMS)


@pytest.mark.parametrize(("failover", "expected"), [(10.0, 30.0), (120.0, 120.0)])
async def test_the_lock_timeout_of_the_log_is_at_least_the_failover_time(tmp_path, failover, expected) -> None:
    chosen = Settings(
        kinesis={"stream": STREAM}, relay={"directory": tmp_path / "log"}, leases={"failover_seconds": failover}
    )
    async with open_sink(chosen) as destination:
        assert isinstance(destination.sink, LogSink)
        assert destination.sink.lock_timeout == expected


async def test_a_log_with_an_emptied_partition_is_refused_at_the_start(tmp_path) -> None:
    await write_batch(settings(tmp_path))
    for segment in list_segments(tmp_path / "log" / STREAM / "0"):
        segment.path.unlink()
    with pytest.raises(LogIncompleteError, match="has no segment"):
        async with open_sink(settings(tmp_path)):
            pass
