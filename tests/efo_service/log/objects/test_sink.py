"""The sink on a store that fails: it waits, looks, and repeats. What all sinks do: relay/test_conformance.py."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import trio

from efo.model import Batch, Checkpoint
from efo_service.factories.object_log import RETRIES
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.sink import LogSink
from efo_service.relay.destination import Destination
from efo_service.relay.errors import (
    LogIncompleteError,
    LogOwnerError,
    LogVersionError,
    SegmentCorruptError,
    SinkClosedError,
    StoreDeniedError,
    StoreUnavailableError,
)
from efo_service.relay.relay import relay_shard
from tests.efo_service.log.objects.logs import SHARD, STREAM, TOPIC, make_records
from tests.efo_service.relay.relaying import ListedShard, Reports, WhenOpen, commit, relay_all


def batch(count: int, start: int = 0, number: int = 0) -> Batch:
    return Batch("s", SHARD, make_records(count, start), str(start + count), 0, number)


@pytest.fixture
def sink(log) -> LogSink:
    return LogSink(ObjectFiles(log.memory), TOPIC)


@pytest.fixture
def failing(log, sink):
    """Make the destination of a log whose store fails once the shard is open, as the service has it."""

    def failing(fault=lambda: None) -> Destination:
        def begin() -> None:
            log.memory.fault = lambda _operation, _key: fault()

        return Destination(WhenOpen(sink, begin), replace(RETRIES, seconds=300.0), Reports())

    return failing


@pytest.mark.parametrize("fault", ["refused", "lost", "late"])
async def test_a_store_that_fails_for_a_while_is_waited_for(log, failing, fault, autojump_clock) -> None:
    faults = iter([fault] * 4)
    destination = failing(lambda: next(faults, None))
    await relay_all(destination, batch(3))
    log.memory.arrive()
    await relay_all(destination, batch(2, 3))
    log.check(5)
    assert destination.reports.errors == [(SHARD, "object_store_unavailable")] * 4


async def test_the_waits_are_half_random_and_double_from_200_ms_to_20_s(failing, autojump_clock) -> None:
    destination = failing(lambda: "refused")
    shard = ListedShard([batch(3)])
    with pytest.raises(StoreUnavailableError):
        await relay_shard(shard, destination, rng=Random(1))
    rng = Random(1)
    expected = [min(20.0, 0.2 * 2**n) * (0.5 + rng.random() / 2) for n in range(30)]
    *delays, last = destination.reports.delays
    assert delays == pytest.approx(expected[: len(delays)])
    assert last <= expected[len(delays)]
    assert sum(delays) + last == pytest.approx(300)


async def test_opening_waits_for_a_store_that_fails(log, failing, autojump_clock) -> None:
    faults = iter(["refused"] * 6)
    log.memory.fault = lambda _operation, _key: next(faults, None)
    destination = failing()
    await relay_all(destination, batch(1))
    log.check(1)
    assert len(destination.reports.delays) == 6


async def test_a_store_that_stays_away_ends_the_relay_and_nothing_is_lost(log, sink, failing, autojump_clock) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        await commit(shard, batch(3))
    began = trio.current_time()
    with pytest.raises(StoreUnavailableError, match="503 Slow Down"):
        await relay_all(failing(lambda: "refused"), batch(2, 3))
    assert trio.current_time() - began >= 300
    log.memory.fault = lambda _operation, _key: None
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position == Checkpoint(batch(3).records[-1].sequence_number)
        await commit(shard, batch(2, 3))
    log.check(5)


async def test_a_cancelled_retry_ends_at_once(failing, autojump_clock) -> None:
    with trio.move_on_after(60) as scope:
        await relay_all(failing(lambda: "refused"), batch(3))
    assert scope.cancelled_caught
    assert trio.current_time() < 61


async def test_a_cancelled_commit_closes_the_shard_sink(sink) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        with trio.CancelScope() as scope:
            scope.cancel()
            await commit(shard, batch(3))
        assert scope.cancelled_caught
        with pytest.raises(SinkClosedError):
            await commit(shard, batch(3))


async def test_a_cancelled_opener_does_not_fence_the_next_owner(log, sink) -> None:
    """It was cancelled because its lease is lost, while one of its requests hung. Meanwhile the next owner opened."""
    await trio.lowlevel.checkpoint()
    store, scope, owners = log.client(), trio.CancelScope(), []
    token = trio.lowlevel.current_trio_token()

    def on_step(step) -> None:
        if step.operation == "create" and "/commits/" in step.key and not step.is_done and not owners:
            owners.append(log.writer())
            trio.from_thread.run_sync(scope.cancel, trio_token=token)

    store.on_step = on_step
    with scope:
        async with LogSink(ObjectFiles(store), TOPIC).open(STREAM, SHARD):
            pass
    assert scope.cancelled_caught
    log.append(owners[0], 3)
    log.check(3)


async def test_missing_rights_are_no_reason_to_wait(failing, autojump_clock) -> None:
    def denied() -> None:
        raise StoreDeniedError("no rights")

    destination = failing(denied)
    with pytest.raises(StoreDeniedError, match="no rights"):
        await relay_all(destination, batch(3))
    assert destination.reports.delays == []


def _without(log, name: str) -> None:
    for key in [key for key in log.memory.objects if name in key]:
        del log.memory.objects[key]


def _edit(log, name: str, old: bytes, new: bytes) -> None:
    for key, one in log.memory.objects.items():
        if name in key:
            assert old in one.content
            one.content = one.content.replace(old, new)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda log: _without(log, "catalog"), LogIncompleteError, "catalog.json does not exist, but the topic has"),
        (lambda log: _without(log, "head"), LogIncompleteError, "head.json does not exist, but its partition has"),
        (lambda log: _without(log, "/0/"), LogIncompleteError, "has no objects, but records were committed to it"),
        (lambda log: _edit(log, "catalog", b'"format": 1', b'"format": 3'), LogVersionError, "upgrade efo"),
        (lambda log: _edit(log, "head", b'"format":1', b'"format":2'), LogVersionError, "upgrade efo"),
        (lambda log: _edit(log, "/commits/", b"-log 1 ", b"-log 2 "), LogVersionError, "upgrade efo"),
        (lambda log: _edit(log, "commits/00000000000000000001", b"topic", b"topiC"), SegmentCorruptError, "damaged"),
        (
            lambda log: _edit(log, "catalog", STREAM.encode(), b"clicks"),
            LogOwnerError,
            "belongs to the stream 'clicks'",
        ),
        (lambda log: _edit(log, "head.json", b"-000000000000", b"-000000000007"), LogOwnerError, "was copied there"),
    ],
)
async def test_a_log_that_is_not_whole_is_not_continued(log, sink, damage, error, message) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        await commit(shard, batch(3))
    damage(log)
    before = dict(log.memory.objects)
    with pytest.raises(error, match=message):
        async with sink.open(STREAM, SHARD):
            pass
    assert log.memory.objects.keys() == before.keys()


async def test_an_old_copy_of_a_head_is_not_continued(log, sink) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        await commit(shard, batch(3))
    key = f"{TOPIC}/0/head.json"
    old = log.memory.objects[key]
    log.fold()
    log.memory.objects[key] = old
    with pytest.raises(LogIncompleteError, match="it is an old copy"):
        async with sink.open(STREAM, SHARD):
            pass


async def test_two_services_with_different_streams_cannot_write_one_topic(log, sink) -> None:
    async with sink.open(STREAM, SHARD) as shard:
        await commit(shard, batch(3))
        with pytest.raises(LogOwnerError, match="belongs to the stream 'orders', not to 'clicks'"):
            async with sink.open("clicks", SHARD):
                pass
        await commit(shard, batch(2, 3))
    log.check(5)


async def test_a_shard_that_was_read_without_this_log_is_not_begun(sink) -> None:
    with pytest.raises(LogIncompleteError, match="run `efo log adopt`"):
        async with sink.open(STREAM, SHARD, Checkpoint(make_records(1)[0].sequence_number)):
            pass
