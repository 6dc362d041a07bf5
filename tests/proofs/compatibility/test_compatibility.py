"""Each version reads what earlier ones wrote. A release adds its golden directory: `make compat ARGS=--write`."""

from __future__ import annotations

import json
import shutil

import pytest

from proofs.compatibility.__main__ import GOLDEN, main
from proofs.compatibility.reading import read_all

FORMATS = {"log", "spark", "sqlite", "rows", "dynamodb", "kafka"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The golden files of the present code."""
    directory = tmp_path_factory.mktemp("golden")
    assert main(["--write", "--golden", str(directory)]) == 0
    return next(directory.iterdir())


@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.iterdir()))
def test_what_a_version_wrote_is_read_as_it_was_written(version, tmp_path) -> None:
    readings = read_all(GOLDEN / version, tmp_path / "scratch")
    assert readings.keys() == FORMATS
    assert {name: reading.problems for name, reading in readings.items()} == {name: [] for name in FORMATS}
    assert all(reading.read for reading in readings.values())


def test_golden_files_are_written_once_and_reported_as_json(written, capsys) -> None:
    assert main(["--write", "--golden", str(written.parent)]) == 2
    assert "written once" in capsys.readouterr().err
    assert main(["--golden", str(written.parent)]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["passed"], result["versions"][written.name].keys()) == (True, FORMATS)


@pytest.mark.parametrize(
    ("name", "before", "after", "formats"),
    [
        ("log/orders/catalog.json", '"shardId-000000000000": 0', '"shardId-000000000009": 0', {"log", "spark"}),
        ("log/orders/catalog.json", '"format": 1', '"format": 3', {"log", "spark"}),
        ("log/orders/readers/billing.json", '"format": 1', '"format": 9', {"log"}),
        ("export.jsonl", '"value":"dmFsdWU="', '"value":"dmFsdWUh"', {"log", "spark"}),
        ("leases.jsonl", '"lease_counter":9', '"lease_counter":8', {"sqlite", "dynamodb"}),
        ("leases.jsonl", '"lease_owner"', '"lease_keeper"', {"sqlite", "dynamodb", "rows"}),
        ("items.json", '"LEASE"', '"STREAM"', {"dynamodb"}),
        ("positions.json", '\\"version\\":1', '\\"version\\":2', {"kafka"}),
    ],
)
def test_what_is_not_read_as_it_was_written_is_a_problem(written, tmp_path, name, before, after, formats) -> None:
    golden = tmp_path / "golden"
    shutil.copytree(written, golden)
    content = (golden / name).read_text()
    (golden / name).write_text(content.replace(before, after, 1))
    assert before in content
    readings = read_all(golden, tmp_path / "scratch")
    assert {name for name, reading in readings.items() if reading.problems} == formats
