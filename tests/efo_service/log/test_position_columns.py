"""Columns of the position in Kinesis, from headers in any order, of slices, and of rows that lack one."""

import pyarrow as pa

from efo_service.log.reading import POSITION, select
from efo_service.log.segments import SCHEMA
from efo_service.relay.mapping import HEADERS


def batch(*headers: list[tuple[str, bytes | None]]) -> pa.RecordBatch:
    rows = [{"offset": n, "headers": [{"key": k, "value": v} for k, v in found]} for n, found in enumerate(headers)]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def test_headers_are_found_by_name() -> None:
    stream, shard, sequence, sub = HEADERS[:4]
    whole = batch(
        [(shard, b"a"), (stream, b"s"), (sequence, b"17"), (sub, b"0")],
        [("traceparent", None), (sub, b"3"), (sequence, b"1" * 56), (shard, b"b")],
        [],
        [("kinesis.tag.kinesis.shard", b"no"), (shard, b"c"), (shard, b"d")],
    )
    found = select(whole, ["offset", *POSITION.names])
    assert found.schema.field("sub_sequence_number").type == pa.int32()
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (0, "s", "a", "17", 0), (1, None, "b", "1" * 56, 3), (2, None, None, None, None), (3, None, "c", None, None),
    ]  # fmt: skip
    assert select(whole.slice(1, 3), ["shard_id"]).column(0).to_pylist() == ["b", None, "c"]


def test_nothing_is_made_of_no_rows() -> None:
    assert select(batch([]).slice(1), ["stream", "key"]).num_rows == 0
