"""Records of the log as JSON lines, Parquet and Arrow files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest
from pyarrow import parquet

from efo.errors import ConfigurationError
from efo.model import Record
from efo_service.log.disk import DiskFiles
from efo_service.log.export import export, export_file
from efo_service.log.segments import SCHEMA
from efo_service.relay.errors import LogIncompleteError, SegmentMissingError
from tests.efo_service.conftest import TOPIC


@pytest.fixture
def files(tmp_path, open_writer, make_records) -> DiskFiles:
    """A log with two partitions: of two segments with two records, and of one with one record."""
    for shard_id, sizes in (("one", (2, 2)), ("two", (1,))):
        writer = open_writer(shard_id=shard_id)
        for number, size in enumerate(sizes):
            writer.append(make_records(size, 2 * number))
        writer.close()
    return DiskFiles(tmp_path / "log")


def places(lines) -> list[tuple[int, int]]:
    return [(line["partition"], line["offset"]) for line in map(json.loads, lines)]


def read_file(path: Path, form: str) -> list[tuple[int, int]]:
    if form == "jsonl":
        return places(path.read_text().splitlines())
    if form == "parquet":
        table = parquet.read_table(path)
    else:
        with pa.ipc.open_file(str(path)) as reader:
            assert reader.num_record_batches == 1
            table = reader.read_all()
    assert table.schema.equals(SCHEMA)
    return list(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True))


@pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow"])
@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]),
        ({"partition": 0}, [(0, 0), (0, 1), (0, 2), (0, 3)]),
        ({"partition": 1}, [(1, 0)]),
        ({"partition": 0, "start": 1, "end": 3}, [(0, 1), (0, 2)]),
    ],
)
def test_the_chosen_records_are_written_into_a_new_file(files, tmp_path, form, choice, expected) -> None:
    path = tmp_path / "records"
    export_file(files, TOPIC, path, form, **choice)
    assert read_file(path, form) == expected
    assert places(export(files, TOPIC, encoding="base64", **choice)) == expected
    written = path.read_bytes()
    with pytest.raises(FileExistsError):
        export_file(files, TOPIC, path, form, **choice)
    assert path.read_bytes() == written


@pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow"])
def test_no_file_stays_of_an_export_that_fails_and_gaps_are_told_if_that_is_asked_for(files, tmp_path, form) -> None:
    first = min((files.root / TOPIC / "0").glob("*.arrow"))
    first.unlink()
    path, told = tmp_path / "records", []
    with pytest.raises(SegmentMissingError):
        export_file(files, TOPIC, path, form, start={0: 0})
    assert not path.exists()
    export_file(files, TOPIC, path, form, start={0: 0}, on_gap=told.append)
    assert read_file(path, form) == [(0, 2), (0, 3), (1, 0)]
    assert [one.endswith("0: the offsets 0 to 1 are missing") for one in told] == [True]


def test_a_partition_that_was_emptied_is_told_or_refused(files) -> None:
    for segment in (files.root / TOPIC / "0").glob("*.arrow"):
        segment.unlink()
    with pytest.raises(LogIncompleteError):
        list(export(files, TOPIC, encoding="base64"))
    told = []
    assert places(export(files, TOPIC, encoding="base64", on_gap=told.append)) == [(1, 0)]
    assert len(told) == 1


def test_a_line_has_text_or_base64_and_null_for_what_is_not_there(files, open_writer) -> None:
    writer = open_writer(shard_id="three")
    writer.append([Record("7", 1.002, b"caf\xc3\xa9", None, None, 3)])
    writer.append([Record("8", 1.5, b"\xff", "k")])
    writer.close()
    text, other = (
        json.loads(next(export(files, TOPIC, partition=2, end=1, encoding=encoding)))
        for encoding in ("utf-8", "base64")
    )
    assert (text["key"], text["value"], text["timestamp"]) == (None, "café", 1002)
    assert text["headers"][-2:] == [["kinesis.sequence", "7"], ["kinesis.sub_sequence", "3"]]
    assert other == {**text, "value": "Y2Fmw6k="}
    with pytest.raises(ConfigurationError, match=f"the value at {TOPIC}/2/1 is not UTF-8"):
        list(export(files, TOPIC, partition=2, encoding="utf-8"))
