import weakref
from dataclasses import replace

import msgspec
import pytest
import trio

from efo.model import Batch, Record
from efo_service.relay.errors import SinkClosedError, SinkOrderError
from efo_service.relay.log import sink as sink_module
from efo_service.relay.log.columns.buffer import ColumnBuffer
from efo_service.relay.log.segments import list_segments, read_segment
from efo_service.relay.log.sink import LogSink
from efo_service.relay.mapping import RecordMapping
from efo_service.relay.record_size import RecordSize

MAPPING = RecordMapping("orders", "shardId-000000000000")


class Key(str):
    """A partition key that can have weak references."""

    __slots__ = ("__weakref__",)


def with_keys(batch: Batch) -> tuple[Batch, list[weakref.ref[Key]]]:
    """Return the batch with other partition keys, and references to them."""
    records = tuple(msgspec.structs.replace(record, partition_key=Key("key")) for record in batch.records)
    return replace(batch, records=records), [weakref.ref(record.partition_key) for record in records]


def test_the_records_of_a_written_batch_are_not_kept(make_batch) -> None:
    """Their memory is free for the next ones, long before the commit."""
    buffer = ColumnBuffer(MAPPING, "t")
    batch, keys = with_keys(make_batch(3))
    buffer.size_of(batch.records)
    buffer.add(batch)
    del batch
    assert [key() for key in keys] == [None, None, None]
    assert [part.keys for part in buffer.take()] == [b"keykeykey"]


def test_records_whose_headers_differ_are_kept_for_the_commit(make_batch) -> None:
    buffer = ColumnBuffer(MAPPING, "t")
    records = tuple(msgspec.structs.replace(record, tags=(("a", "b"),)) for record in make_batch(2).records)
    buffer.add(replace(make_batch(2), records=records))
    (part,) = buffer.take()
    assert (part.plain, part.records) == (None, records)


@pytest.mark.parametrize(
    "changes", [{}, {"encryption_type": "KMS"}, {"tags": (("a", None),)}, {"explicit_hash_key": "7"}]
)
def test_the_size_of_records_is_that_of_their_columns(make_batch, changes) -> None:
    records = tuple(msgspec.structs.replace(record, **changes) for record in make_batch(3).records)
    buffer = ColumnBuffer(MAPPING, "t")
    assert buffer.size_of(records) == RecordSize(MAPPING, record=41, header=8)(records)
    buffer.add(replace(make_batch(3), records=records))
    buffer.add(make_batch(2, 3))
    assert (buffer.rows, buffer.size) == (5, buffer.size_of(records) + buffer.size_of(make_batch(2, 3).records))
    buffer.take()
    assert (buffer.rows, buffer.size, buffer.size_of(())) == (0, 0, 0)


def test_batches_are_in_order_and_only_for_an_open_buffer(make_batch) -> None:
    buffer = ColumnBuffer(MAPPING, "t")
    buffer.add(make_batch(3))
    buffer.add(make_batch(0, 3))
    with pytest.raises(SinkOrderError, match="duplicated or out of order"):
        buffer.add(make_batch(3, 2))
    buffer.close()
    assert (buffer.is_closed, buffer.rows) == (True, 0)
    for call in (lambda: buffer.add(make_batch(0, 3)), buffer.take):
        with pytest.raises(SinkClosedError):
            call()


@pytest.mark.parametrize(("limit", "calls"), [(0, 3), (sink_module.IN_LOOP_BYTES, 2)])
async def test_only_a_large_commit_is_laid_out_in_a_thread(make_batch, tmp_path, monkeypatch, limit, calls) -> None:
    monkeypatch.setattr(sink_module, "IN_LOOP_BYTES", limit)
    called = []

    async def run_blocking(work):
        called.append(work)
        await trio.lowlevel.checkpoint()
        return work()

    async with LogSink(tmp_path, "topic", run_blocking=run_blocking).open("orders", "shardId-000000000000") as shard:
        shard.write(make_batch(3))
        await shard.commit()
    assert len(called) == calls
    (segment,) = list_segments(tmp_path / "topic" / "0")
    assert read_segment(segment)[0].num_rows == 3


def test_a_record_has_no_other_fields_that_a_header_could_need() -> None:
    """A new field that becomes a header must be looked at for plain headers, too (columns.py)."""
    assert {field.name for field in msgspec.structs.fields(Record)} == {
        "sequence_number",
        "approximate_arrival_timestamp",
        "data",
        "partition_key",
        "encryption_type",
        "sub_sequence_number",
        "explicit_hash_key",
        "tags",
    }
