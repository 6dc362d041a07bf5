from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from proofs.benchmarks.spark.landing import Landed, commits, quantiles

BEGAN = 1_700_000_000.0


def write_list(output: Path, name: str, at: float, *files: Path) -> None:
    """Write a list of Spark's file sink: its version, then a line of JSON for each file."""
    path = output / "_spark_metadata" / name
    path.parent.mkdir(exist_ok=True)
    lines = [json.dumps({"path": file.as_uri(), "action": "add"}) for file in files]
    path.write_text("\n".join(["v1", *lines]))
    os.utime(path, (at, at))


def write_rows(path: Path, arrivals: list[float]) -> Path:
    times = pa.array([datetime.fromtimestamp(at, UTC) for at in arrivals], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"timestamp": times}), path)
    return path


def test_a_compacted_list_adds_only_what_older_lists_do_not_have(tmp_path) -> None:
    first, second, third = (tmp_path / f"part {number}.parquet" for number in range(3))
    write_list(tmp_path, "0", BEGAN, first)
    write_list(tmp_path, "9.compact", BEGAN + 2, first, second)
    write_list(tmp_path, "10", BEGAN + 3, third)
    (tmp_path / "_spark_metadata" / ".9.compact.crc").touch()
    assert list(commits(tmp_path)) == [
        Landed(BEGAN, (first,)),
        Landed(BEGAN + 2, (second,)),
        Landed(BEGAN + 3, (third,)),
    ]


def test_ages_are_from_arrival_to_commit_without_the_first_seconds(tmp_path) -> None:
    early = write_rows(tmp_path / "early", [BEGAN, BEGAN + 1])
    late = write_rows(tmp_path / "late", [BEGAN + 11.0, BEGAN + 11.5, BEGAN + 12.0])
    found = quantiles([Landed(BEGAN + 9, (early,)), Landed(BEGAN + 13, (late,))], 10.0)
    assert (found["records"], found["micro_batches"], found["ms_p50"]) == (3, 2, 1500.0)
    assert 1500.0 < found["ms_p99"] <= 2000.0
