"""Values without their layers: a worker of Spark holds few of them at once, however many rows a batch has."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from efo_service.spark.pipeline import unwrapping
from efo_service.spark.pipeline.unwrapping import unwrapped_arrays


def batches(*values: list[bytes | None]):
    return iter([pa.array(each, pa.binary()) for each in values])


def packed(size: int) -> bytes:
    return gzip.compress(bytes(size))


def test_each_value_has_its_row_with_a_reason_where_a_layer_cannot_be_taken_off():
    values = batches([gzip.compress(b"one"), None], [b"no gzip"], [])
    rows = [row for array in unwrapped_arrays(("gzip",), values) for row in array.to_pylist()]
    assert rows == [
        {"value": b"one", "reason": None},
        {"value": None, "reason": "no value"},
        {"value": None, "reason": "not gzip"},
    ]


def test_rows_that_unpack_to_much_are_returned_in_parts_and_no_later_one_is_unpacked_before(monkeypatch):
    monkeypatch.setattr(unwrapping, "MAX_UNPACKED", 1000)
    sizes = [400, 400, 400, 10, 5000, 10]
    unpacked = []
    real = unwrapping.unwrapped

    def counted(layers, value):
        unpacked.append(value)
        return real(layers, value)

    monkeypatch.setattr(unwrapping, "unwrapped", counted)
    arrays = unwrapped_arrays(("gzip",), batches([packed(size) for size in sizes]))
    assert len(next(arrays)) == 3
    assert len(unpacked) == 3
    assert [[len(row["value"]) for row in array.to_pylist()] for array in arrays] == [[10, 5000], [10]]


def test_a_record_with_many_values_has_a_list_of_rows():
    values = batches([b"1\n2", b""], [b"3", None])
    rows = [row for array in unwrapped_arrays(("gzip_or_plain", "json_lines"), values) for row in array.to_pylist()]
    assert [[row["value"] for row in found] for found in rows] == [[b"1", b"2"], [], [b"3"], [None]]
    assert rows[-1] == [{"value": None, "reason": "no value"}]


@pytest.mark.spark
def test_spark_has_a_row_of_each_value(spark):
    frame = spark.createDataFrame([(1, bytearray(b"a\nb")), (2, bytearray()), (3, None)], "n int, value binary")
    rows = unwrapping.unwrap(frame, ["json_lines"]).select("n", f"{unwrapping.PLAIN}.*").collect()
    assert sorted((row.n, row.value and bytes(row.value), row.reason) for row in rows) == [
        (1, b"a", None),
        (1, b"b", None),
        (3, None, "no value"),
    ]


@pytest.mark.spark
def test_spark_gets_all_rows_of_a_batch_of_bombs(spark):
    bomb = bytearray(packed(4 * 1024 * 1024))
    frame = spark.createDataFrame([(number, bomb) for number in range(40)], "number int, value binary").coalesce(1)
    plain = unwrapping.unwrap(frame, ["gzip"])
    rows = plain.selectExpr("number", f"length({unwrapping.PLAIN}.value) as size").collect()
    assert [(row.number, row.size) for row in rows] == [(number, 4 * 1024 * 1024) for number in range(40)]
