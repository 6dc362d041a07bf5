"""What a sink refuses: dead letters, skipped records, and the end of a shard; with real sinks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from efo.model import Checkpoint, checkpoint_of
from efo_service.log.catalog import allocate_partition
from efo_service.log.disk import DiskFiles
from efo_service.log.sink import LogSink
from efo_service.relay.destination import Destination, SkippingSink
from efo_service.relay.errors import LogIncompleteError, RecordRefusedError, SinkError, SinkOrderError
from efo_service.relay.jsonlines import open_json_lines
from efo_service.relay.write_buffer import WriteBuffer
from tests.efo_service.relay.all_sinks import read_log
from tests.efo_service.relay.relaying import ONCE, Reports, relay_all, to

SHARD = "shardId-000000000000"


class RefusingSink:
    """A log that refuses every record whose value contains a 3. Its commits fail while `broken` is set."""

    def __init__(self, sink: LogSink) -> None:
        self._sink = sink
        self.broken = False

    @asynccontextmanager
    async def open(self, stream: str, shard_id: str, checkpoint=None):
        async with self._sink.open(stream, shard_id) as shard:
            # LogShardSink has no __slots__, so its methods can be replaced.
            shard.refusal = lambda record: "it has a 3" if b"3" in record.data else None
            commit = shard.commit

            async def fail_or_commit(parts) -> None:
                if self.broken:
                    raise SinkError("broken")
                await commit(parts)

            shard.commit = fail_or_commit
            yield shard


@pytest.fixture
def main(tmp_path):
    return RefusingSink(LogSink(DiskFiles(tmp_path / "log"), "topic"))


@pytest.fixture
def destination(main, tmp_path):
    letters = Destination(LogSink(DiskFiles(tmp_path / "log"), "refused"), ONCE)
    return Destination(main, ONCE, Reports(), letters)


def values(tmp_path, topic: str) -> list[bytes]:
    return [message.value for message in read_log(tmp_path, SHARD, topic)]


async def test_a_refused_record_becomes_a_dead_letter_with_its_reason(destination, tmp_path, make_batch) -> None:
    shard = await relay_all(destination, make_batch(5), make_batch(1, 5, 1))
    assert values(tmp_path, "topic") == [b"value-%d" % n for n in (0, 1, 2, 4, 5)]
    assert values(tmp_path, "refused") == [b"value-3"]
    (dead_letter,) = read_log(tmp_path, SHARD, "refused")
    assert dead_letter.headers[-1] == ("kinesis.tag.efo.refusal", b"it has a 3")
    assert destination.reports.refusals == [(SHARD, (checkpoint_of(make_batch(1, 3).records[0]), "it has a 3"))]
    assert shard.acked == [(1, None)]


async def test_a_commit_with_only_refused_records_writes_only_dead_letters(destination, tmp_path, make_batch) -> None:
    shard = await relay_all(destination, make_batch(1, 3), make_batch(1, 4, 1), each=True)
    assert (values(tmp_path, "topic"), values(tmp_path, "refused")) == ([b"value-4"], [b"value-3"])
    assert shard.acked[-1] == (1, None)
    assert shard.acked[0][0] == 0


async def test_a_crash_between_the_two_commits_loses_and_repeats_no_record(
    main, destination, tmp_path, make_batch
) -> None:
    main.broken = True
    with pytest.raises(SinkError, match="broken"):
        await relay_all(destination, make_batch(5))
    assert (values(tmp_path, "topic"), values(tmp_path, "refused")) == ([], [b"value-3"])
    main.broken = False
    shard = await relay_all(destination, make_batch(3), make_batch(1, 3, 1), make_batch(10, 4, 2), each=True)
    assert shard.seeks == []
    assert values(tmp_path, "topic") == [b"value-%d" % n for n in range(14) if n not in (3, 13)]
    assert values(tmp_path, "refused") == [b"value-3", b"value-13"]
    assert shard.acked[-1] == (2, None)


async def test_a_batch_of_durable_dead_letters_alone_is_acked(main, destination, tmp_path, make_batch) -> None:
    main.broken = True
    with pytest.raises(SinkError, match="broken"):
        await relay_all(destination, make_batch(5))
    main.broken = False
    shard = await relay_all(destination, make_batch(1, 3))
    assert (shard.acked, values(tmp_path, "topic")) == ([(0, None)], [])


async def test_a_record_that_both_sinks_refuse_ends_the_shard(tmp_path, make_batch, make_records) -> None:
    bad = msgspec.structs.replace(make_records(1, 2)[0], data=b"\xff")
    batch = replace(make_batch(4), records=(*make_records(2), bad, *make_records(1, 3)))
    async with (
        open_json_lines(tmp_path / "a", encoding="utf-8") as sink,
        open_json_lines(tmp_path / "b", encoding="utf-8") as dead_letters,
    ):
        with pytest.raises(RecordRefusedError, match="not UTF-8: invalid start byte at byte 0; as a dead letter: its"):
            await relay_all(to(sink, dead_letters), batch)
    assert len((tmp_path / "a").read_bytes().splitlines()) == 2
    assert (tmp_path / "b").read_bytes() == b""


async def test_refused_records_can_be_skipped(main, tmp_path, make_batch) -> None:
    destination = Destination(main, ONCE, Reports(), Destination(SkippingSink()))
    batches = make_batch(5), make_batch(1, 13, 1), make_batch(1, 14, 2)
    shard = await relay_all(destination, *batches, each=True)
    assert values(tmp_path, "topic") == [b"value-%d" % n for n in (0, 1, 2, 4, 14)]
    skipped = [refused.record for _, refused in destination.reports.refusals]
    assert skipped == [checkpoint_of(make_batch(1, n).records[0]) for n in (3, 13)]
    assert shard.acked[-1] == (2, None)


async def test_the_checkpoint_of_the_lease_is_about_the_records_not_about_the_dead_letters(tmp_path) -> None:
    destination = to(LogSink(DiskFiles(tmp_path), "topic"), LogSink(DiskFiles(tmp_path), "refused"))
    with pytest.raises(LogIncompleteError, match="topic has no partition of this shard"):
        await relay_all(destination, checkpoint=Checkpoint("5"))
    allocate_partition(DiskFiles(tmp_path), "topic", "orders", SHARD)
    assert (await relay_all(destination, checkpoint=Checkpoint("5"))).seeks == []


@pytest.mark.parametrize("start", [0, 2, 4])
async def test_a_batch_that_repeats_records_is_rejected(tmp_path, make_batch, start) -> None:
    with pytest.raises(SinkOrderError, match="duplicated or out of order"):
        await relay_all(to(LogSink(DiskFiles(tmp_path), "topic")), make_batch(5), make_batch(5, start))


async def test_records_that_the_sink_has_are_rejected(tmp_path, make_batch) -> None:
    sink = LogSink(DiskFiles(tmp_path), "topic")
    await relay_all(to(sink), make_batch(5))
    with pytest.raises(SinkOrderError):
        await relay_all(to(sink), make_batch(2, 4))


async def test_the_buffer_is_empty_once_it_is_taken(tmp_path, make_batch) -> None:
    async with LogSink(DiskFiles(tmp_path), "topic").open("orders", SHARD) as sink:

        class Writer:
            def __init__(self) -> None:
                self.sink = sink

        buffer = WriteBuffer(SHARD, Writer(), None, 10**6)
        [(group, records)] = buffer.write(make_batch(3))
        assert buffer.group is group
        assert (group.records, len(records)) == (3, 3)
        assert buffer.take() is group
        assert buffer.take() is None
