from __future__ import annotations

from contextlib import asynccontextmanager

import msgspec
import pytest

from efo.model import Batch, Checkpoint, checkpoint_of
from efo_service.relay.dead_letter import DeadLetteringSink, SkippingSink
from efo_service.relay.errors import LogIncompleteError, RecordRefusedError, SinkError
from efo_service.relay.jsonlines import open_json_lines
from efo_service.relay.log.catalog import allocate_partition
from efo_service.relay.log.sink import LogSink
from tests.efo_service.relay.all_sinks import read_log

STREAM, SHARD = "orders", "shardId-000000000000"


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

            async def fail_or_commit() -> None:
                if self.broken:
                    raise SinkError("broken")
                await commit()

            shard.commit = fail_or_commit
            yield shard


@pytest.fixture
def sinks(tmp_path):
    reported = []
    main = RefusingSink(LogSink(tmp_path / "log", "topic"))
    dead_letters = LogSink(tmp_path / "log", "refused")
    return (
        main,
        DeadLetteringSink(main, dead_letters, lambda *dead_letter: reported.append(dead_letter)),
        reported,
    )


def values(tmp_path, topic: str) -> list[bytes]:
    return [message.value for message in read_log(tmp_path, SHARD, topic)]


async def test_a_refused_record_becomes_a_dead_letter_with_its_reason(sinks, tmp_path, make_batch) -> None:
    _, sink, reported = sinks
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(5))
        shard.write(make_batch(1, 5))
        assert shard.pending_records == 6
        await shard.commit()
        assert shard.pending_records == 0
    assert values(tmp_path, "topic") == [b"value-%d" % n for n in (0, 1, 2, 4, 5)]
    assert values(tmp_path, "refused") == [b"value-3"]
    (dead_letter,) = read_log(tmp_path, SHARD, "refused")
    assert dead_letter.headers[-1] == ("kinesis.tag.efo.refusal", b"it has a 3")
    assert reported == [(SHARD, checkpoint_of(make_batch(1, 3).records[0]), "it has a 3")]


async def test_a_commit_with_only_refused_records_writes_only_dead_letters(sinks, tmp_path, make_batch) -> None:
    _, sink, _ = sinks
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(1, 3))
        await shard.commit()
        shard.write(make_batch(1, 4))
        await shard.commit()
    assert (values(tmp_path, "topic"), values(tmp_path, "refused")) == ([b"value-4"], [b"value-3"])


async def test_a_crash_between_the_two_commits_loses_and_repeats_no_record(sinks, tmp_path, make_batch) -> None:
    main, sink, _ = sinks
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(5))
        main.broken = True
        with pytest.raises(SinkError, match="broken"):
            await shard.commit()
    assert (values(tmp_path, "topic"), values(tmp_path, "refused")) == ([], [b"value-3"])
    main.broken = False
    async with sink.open(STREAM, SHARD) as shard:
        assert shard.position is None
        shard.write(make_batch(14))
        await shard.commit()
    assert values(tmp_path, "topic") == [b"value-%d" % n for n in range(14) if n not in (3, 13)]
    assert values(tmp_path, "refused") == [b"value-3", b"value-13"]


async def test_a_record_that_both_sinks_refuse_is_refused_when_it_is_written(tmp_path, make_records) -> None:
    bad = msgspec.structs.replace(make_records(1)[0], data=b"\xff")
    async with (
        open_json_lines(tmp_path / "a", encoding="utf-8") as main,
        open_json_lines(tmp_path / "b", encoding="utf-8") as dead_letters,
    ):
        sink = DeadLetteringSink(main, dead_letters, lambda *_: None)
        async with sink.open(STREAM, SHARD) as shard:
            assert "not UTF-8" in shard.refusal(bad)
            with pytest.raises(RecordRefusedError):
                shard.write(Batch("s", SHARD, (bad,), None, 0, 0))
            await shard.commit()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b""


async def test_refused_records_can_be_skipped(sinks, tmp_path, make_batch) -> None:
    main, _, _ = sinks
    reported = []
    sink = DeadLetteringSink(main, SkippingSink(), lambda *skipped: reported.append(skipped))
    async with sink.open(STREAM, SHARD) as shard:
        shard.write(make_batch(5))
        await shard.commit()
        shard.write(make_batch(1, 13))
        await shard.commit()
        shard.write(make_batch(1, 14))
        await shard.commit()
        assert shard.position == checkpoint_of(make_batch(1, 14).records[0])
    assert values(tmp_path, "topic") == [b"value-%d" % n for n in (0, 1, 2, 4, 14)]
    assert [record for _, record, _ in reported] == [checkpoint_of(make_batch(1, n).records[0]) for n in (3, 13)]


async def test_the_checkpoint_of_the_lease_is_about_the_records_not_about_the_dead_letters(tmp_path) -> None:
    sink = DeadLetteringSink(LogSink(tmp_path, "topic"), LogSink(tmp_path, "refused"), lambda *_: None)
    with pytest.raises(LogIncompleteError, match="topic has no partition of this shard"):
        async with sink.open(STREAM, SHARD, Checkpoint("5")):
            pass
    allocate_partition(tmp_path, "topic", STREAM, SHARD)
    async with sink.open(STREAM, SHARD, Checkpoint("5")) as shard:
        assert shard.position is None
