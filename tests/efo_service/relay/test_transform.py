"""The transform of the relay: what it drops, changes and routes, what it fails on; and that nothing is lost by it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from efo.consumer.age_limits import AgeLimits
from efo.errors import ConfigurationError
from efo.model import Record, checkpoint_of
from efo_service.log.disk import DiskFiles
from efo_service.log.sink import LogSink
from efo_service.relay.destination import Destination, SkippingSink
from efo_service.relay.errors import RecordRefusedError
from efo_service.relay.jsonlines import open_json_lines
from efo_service.relay.relay import relay_shard
from efo_service.relay.transform import ROUTE_TAG, Failed, Transform, load_transform, unrouted
from tests.efo_service.relay.all_sinks import read_log
from tests.efo_service.relay.relaying import ONCE, ListedShard, Reports, relay_all

SHARD = "shardId-000000000000"


def number(record: Record) -> int:
    return int(record.data.rpartition(b"-")[2])


def drop_odd(record: Record) -> Record | None:
    return None if number(record) % 2 else record


def mask(record: Record) -> Record:
    return msgspec.structs.replace(record, data=b"masked-%d" % number(record), partition_key=None)


def fail_on_three(record: Record) -> Record:
    if number(record) == 3:
        raise LookupError("value-3 is secret")
    return record


def to_log(tmp_path, function, dead_letters=None, reports=None):
    dropped = []
    destination = Destination(
        LogSink(DiskFiles(tmp_path / "log"), "topic"),
        ONCE,
        reports or Reports(),
        None if dead_letters is None else Destination(dead_letters, ONCE),
        Transform(function, dropped.append),
    )
    return destination, dropped


def values(tmp_path, topic="topic"):
    return [message.value for message in read_log(tmp_path, SHARD, topic)]


async def test_dropped_records_are_counted_and_the_shard_is_acked_past_them(tmp_path, make_batch):
    destination, dropped = to_log(tmp_path, drop_odd)
    shard = await relay_all(destination, make_batch(4), make_batch(1, 5, 1), make_batch(2, 6, 2), each=True)
    assert values(tmp_path) == [b"value-0", b"value-2", b"value-6"]
    assert dropped == [2, 1, 1]
    assert shard.acked[-1] == (2, None)


async def test_a_shard_of_which_everything_is_dropped_is_acked_and_read_again_after_a_crash(tmp_path, make_batch):
    destination, dropped = to_log(tmp_path, lambda _: None)
    shard = await relay_all(destination, make_batch(4), make_batch(1, 4, 1))
    assert shard.acked == [(0, None), (1, None)]
    assert sum(dropped) == 5
    again = await relay_all(destination, make_batch(4))
    assert again.seeks == []  # the log has no position: the lease's counts


@pytest.mark.parametrize("function", [None, mask])
async def test_records_that_are_too_old_are_dead_letters_as_they_were_read(tmp_path, make_batch, function):
    reports, now = Reports(), make_batch(6).records[-1].approximate_arrival_timestamp
    of_log = to_log(tmp_path, function, LogSink(DiskFiles(tmp_path / "log"), "old"), reports)[0]
    destination = replace(of_log, takes_old=True, transform=None if function is None else of_log.transform)
    batch = make_batch(6)
    records = [
        msgspec.structs.replace(record, approximate_arrival_timestamp=now - (3600 if number(record) % 2 else 0))
        for record in batch.records
    ]
    shard = ListedShard([replace(batch, records=tuple(records))])
    shard.ages = AgeLimits(SHARD, 600.0, None, lambda: now, refuse_event)
    await relay_shard(shard, destination)
    kept = b"value-%d" if function is None else b"masked-%d"
    assert values(tmp_path) == [kept % n for n in (0, 2, 4)]
    assert values(tmp_path, "old") == [b"value-%d" % n for n in (1, 3, 5)]
    assert {refused.reason for _, refused in reports.refusals} == {
        "the record is older than max_record_age_seconds, 600 s"
    }
    assert shard.acked == [(0, None)]


def refuse_event(event):
    raise AssertionError(event)


async def test_after_a_crash_the_position_is_that_of_the_last_record_that_was_written(tmp_path, make_batch):
    destination, _ = to_log(tmp_path, drop_odd)
    await relay_all(destination, make_batch(4))
    shard = await relay_all(destination, make_batch(3, 3, 1))
    assert shard.seeks == [checkpoint_of(make_batch(1, 2).records[0])]
    assert values(tmp_path) == [b"value-0", b"value-2", b"value-4"]


async def test_a_changed_record_keeps_its_place(tmp_path, make_batch):
    destination, _ = to_log(tmp_path, mask)
    await relay_all(destination, make_batch(2))
    first, second = read_log(tmp_path, SHARD, "topic")
    assert (first.value, first.key, second.value) == (b"masked-0", None, b"masked-1")
    assert dict(second.headers)["kinesis.sequence"] == make_batch(2).records[1].sequence_number.encode()


async def test_a_record_on_which_it_fails_is_a_dead_letter_without_the_errors_text(tmp_path, make_batch):
    reports = Reports()
    destination, _ = to_log(tmp_path, fail_on_three, LogSink(DiskFiles(tmp_path / "log"), "refused"), reports)
    shard = await relay_all(destination, make_batch(5))
    assert values(tmp_path) == [b"value-%d" % n for n in (0, 1, 2, 4)]
    assert values(tmp_path, "refused") == [b"value-3"]
    ((_, refused),) = reports.refusals
    assert refused.reason.startswith("[relay] transform raised LookupError at test_transform.py:")
    assert "secret" not in refused.reason
    assert shard.acked == [(0, None)]


async def test_without_dead_letters_a_failure_ends_the_shard_after_what_is_before_it(tmp_path, make_batch):
    destination, _ = to_log(tmp_path, fail_on_three)
    with pytest.raises(RecordRefusedError, match="transform raised LookupError"):
        await relay_all(destination, make_batch(5))
    assert values(tmp_path) == [b"value-0", b"value-1", b"value-2"]


async def test_failures_can_be_skipped(tmp_path, make_batch):
    destination, _ = to_log(tmp_path, fail_on_three, SkippingSink())
    await relay_all(destination, make_batch(5))
    assert values(tmp_path) == [b"value-%d" % n for n in (0, 1, 2, 4)]


async def test_what_it_masks_is_masked_in_a_dead_letter_of_the_sink(tmp_path, make_batch):
    def not_text(record):
        return msgspec.structs.replace(record, data=b"\xff")

    async with open_json_lines(tmp_path / "a", encoding="utf-8") as sink:
        letters = Destination(LogSink(DiskFiles(tmp_path / "log"), "refused"), ONCE)
        await relay_all(Destination(sink, ONCE, Reports(), letters, Transform(not_text, print)), make_batch(1))
    assert values(tmp_path, "refused") == [b"\xff"]


async def test_a_large_batch_is_split_by_what_is_written(tmp_path, make_batch):
    destination, _ = to_log(tmp_path, drop_odd)
    shard = ListedShard([make_batch(64)])
    await relay_shard(shard, destination, commit_bytes=2_000)
    assert values(tmp_path) == [b"value-%d" % n for n in range(0, 64, 2)]
    assert shard.acked == [(0, 30), (0, None)]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (b"bytes", "returned bytes: expected an efo.Record"),
        (True, "returned bool"),
        (("a", "b", "c"), "returned tuple"),
        ((None, "eu"), "returned NoneType"),
        (Record("1", 0.0, "text"), "returned data of type str: expected bytes"),
        (Record("1", 0.0, b"", 5), "returned a partition_key of type int"),
        (Record("2", 0.0, b""), "changed the record's sequence number or arrival time"),
        ((Record("1", 0.0, b""), "us"), r"none of \[relay.kafka\] routes \(eu\)"),
        ((Record("1", 0.0, b""), ["eu"]), r"none of \[relay.kafka\] routes"),
    ],
)
def test_what_cannot_be_used_is_a_failure_of_the_record(result, expected):
    record = Record("1", 0.0, b"data")
    (failed,) = Transform(lambda _: result, print, ["eu"])([record])
    assert isinstance(failed, Failed)
    assert failed.record is record
    with pytest.raises(AssertionError, match=expected):
        raise AssertionError(failed.reason)


def test_a_topic_is_named_by_a_tag_that_a_producer_cannot_set():
    record = Record("1", 0.0, b"data", tags=(("a", "b"),))
    (routed,) = Transform(lambda record: (record, "eu"), print, ["eu"])([record])
    assert unrouted(routed) == ("eu", record)
    assert unrouted(record) == (None, record)
    forged = Record("1", 0.0, b"data", tags=(("efo." + "topic".lower(), "eu"),))
    assert forged.tags[0][0] == ROUTE_TAG
    assert unrouted(forged) == (None, forged)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing:at_all", r"\[relay\] transform 'nothing:at_all' cannot be imported"),
        ("efo.model:MAX_HASH_KEY", "is not a function"),
        ("tests.efo_service.relay.test_transform:wait", "is async: write `def`"),
        ("efo.model", "cannot be imported"),
    ],
)
def test_what_is_no_function_is_refused_at_the_start(name, expected):
    with pytest.raises(ConfigurationError, match=expected):
        load_transform(name)
    assert load_transform("tests.efo_service.relay.test_transform:mask") is not None


async def wait(record):
    return record
