"""What a query may write beside what it has written: the comparison, and the pipeline that refuses."""

from __future__ import annotations

import shutil
import threading

import pytest
from pyspark.sql.types import StructType

from efo_service.spark.errors import SparkError
from efo_service.spark.pipeline.decoding import Decoding
from efo_service.spark.pipeline.pipeline import run_in_session
from efo_service.spark.pipeline.settings import PipelineSettings
from efo_service.spark.pipeline.written_types import changed_types, check_written_types, merged, without


@pytest.fixture(scope="module")
def ddl(spark):
    return StructType.fromDDL


CHANGES = [
    ("id bigint", "id bigint", []),
    ("id bigint", "id bigint not null", []),
    ("id bigint", "ID bigint", []),
    ("id bigint, old string", "id bigint, new int", []),
    ("id bigint", "id int", ["id: bigint, now int"]),
    ("d struct<id: bigint, p: double>", "d struct<p: string>", ["d.p: double, now string"]),
    ("d struct<id: bigint>", "d binary", ["d: struct<id:bigint>, now binary"]),
    ("d array<struct<p: double>>", "d array<struct<p: float>>", ["d[].p: double, now float"]),
    ("d array<int>", "d array<bigint>", ["d[]: int, now bigint"]),
    ("d map<string, int>", "d map<int, string>", ["d (key): string, now int", "d (value): int, now string"]),
    ("a decimal(10,2), b date", "a decimal(12,2), b timestamp",
     ["a: decimal(10,2), now decimal(12,2)", "b: date, now timestamp"]),
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize(("before", "after", "changes"), CHANGES)
def test_types_are_compared_field_by_field(ddl, before, after, changes) -> None:
    assert changed_types(ddl(before), ddl(after)) == changes


@pytest.mark.spark
def test_what_was_written_once_stays_known(ddl) -> None:
    before = ddl("id bigint, d struct<old: int, a: int>, l array<struct<x: int>>")
    after = ddl("d struct<a: int, new: string>, l array<struct<y: int>>, date date")
    both = merged(before, without(after, ["date"]))
    assert (
        changed_types(both, ddl("id bigint, d struct<old: int, a: int, new: string>, l array<struct<x: int, y: int>>"))
        == []
    )
    assert changed_types(both, ddl("d struct<old: string>, date int, l array<struct<x: string>>")) == [
        "d.old: int, now string",
        "l[].x: int, now string",
    ]


FIRST, OTHER = "id bigint, price double", "id bigint, price string"


@pytest.fixture
def settings(log, tmp_path):
    def settings(**changes) -> PipelineSettings:
        places = {"output": str(tmp_path / "out"), "checkpoint": str(tmp_path / "state")}
        return PipelineSettings(log=log.root, topic=log.topic, available_now=True, **{**places, **changes})

    return settings


@pytest.fixture
def run(spark, settings):
    def run(schema: str, **changes) -> None:
        changed = settings(decoding=Decoding("json", schema), **changes)
        run_in_session(spark, changed, on_progress=lambda _: None, stop=threading.Event())

    return run


@pytest.fixture
def check(spark, settings):
    def check(schema: str, **changes) -> None:
        frame = spark.createDataFrame([], f"data struct<{schema}>, date string")
        check_written_types(spark, {"records": frame}, settings(**changes), ("date", "hour"))

    return check


@pytest.mark.spark
def test_another_type_is_refused_before_anything_is_written(log, run, check, tmp_path) -> None:
    log.put(0, [b'{"id": 1, "price": 0.5}'])
    run(FIRST)
    log.put(0, [b'{"id": 2, "price": "cheap"}'])
    before = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(SparkError, match=r"out/records has other types.*data\.price: double, now string.*new field"):
        run(OTHER)
    assert sorted(tmp_path.rglob("*.parquet")) == before
    check("id bigint")  # a field may go
    check("id bigint, currency string")  # and one may come
    shutil.rmtree(tmp_path / "state" / "records" / "efo-types")  # as of a pipeline that kept none
    with pytest.raises(SparkError, match=r"data\.price: double, now string"):
        check(OTHER)
    check(FIRST)
    check(OTHER, output=str(tmp_path / "new"))


@pytest.mark.spark
def test_types_that_no_file_has_may_change(check, tmp_path) -> None:
    check(FIRST)
    check(OTHER)
    (tmp_path / "out" / "records" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "out" / "records" / "_spark_metadata" / "0").write_text("v1\n")  # of a batch without rows
    check(FIRST)
    (tmp_path / "state" / "records" / "efo-types" / "part-0.txt").write_text("{")  # of a killed start
    check(OTHER)


@pytest.mark.spark
def test_a_table_of_files_keeps_its_types(spark, check) -> None:
    spark.sql("create table typed_records (data struct<price: double>, date date) using parquet partitioned by (date)")
    try:
        check(FIRST, table="typed")
        with pytest.raises(SparkError, match=r"the table typed_records .*data\.price: double, now string"):
            check(OTHER, table="typed")
    finally:
        spark.sql("drop table typed_records")


@pytest.mark.spark
def test_formats_that_know_the_types_of_their_table_decide_themselves(check) -> None:
    for schema in (FIRST, OTHER):
        check(schema, sink_format="delta")
