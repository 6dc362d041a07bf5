import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark import cloudpickle

from efo_service.log.catalog import topics
from efo_service.spark.errors import reason
from efo_service.spark.source.data_source import EfoDataSource, LogStreamReader

# What a Python worker of Spark has, whatever is installed beside it: PySpark from Spark's own archives.
WITHOUT_EFO = """
import sys
sys.path[:0] = sys.argv[1:]
from pyspark import cloudpickle
cloudpickle.loads(sys.stdin.buffer.read())
"""


@pytest.fixture
def shipped(log) -> bytes:
    log.grow(0, 1)
    source = EfoDataSource({"subscribe": log.topic, "path": str(log.root)})
    return cloudpickle.dumps(LogStreamReader(source._options))


def test_a_reader_is_read_by_the_same_version(shipped, log) -> None:
    reader = cloudpickle.loads(shipped)
    assert isinstance(reader, LogStreamReader)
    assert topics(reader._planner.options.log) == [log.topic]


def test_a_data_source_is_shipped_with_its_options(log) -> None:
    log.grow(0, 1)
    source = EfoDataSource({"subscribe": log.topic, "path": str(log.root), "columns": "value"})
    assert cloudpickle.loads(cloudpickle.dumps(source)).schema().simpleString() == "struct<value:binary>"


def test_another_version_is_refused_with_both_pythons_named(shipped, monkeypatch) -> None:
    monkeypatch.setattr("efo_service.version.VERSION", "0.0.1")
    with pytest.raises(ImportError, match=r"planned with efo \d") as raised:
        cloudpickle.loads(shipped)
    text = str(raised.value)
    assert text.count(sys.executable) == 2
    assert "which reads, has efo 0.0.1: give both sides one environment" in text
    assert "\n" not in text


def test_a_part_of_efo_that_cannot_be_imported_is_named(shipped, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "efo_service.spark.source.data_source", None)
    with pytest.raises(ImportError, match=r"cannot import efo \(import of efo_service.spark.source.data_source halted"):
        cloudpickle.loads(shipped)


def test_a_python_without_efo_says_so_in_one_sentence(shipped) -> None:
    archives = [str(path) for path in (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")]
    command = [sys.executable, "-I", "-S", "-c", WITHOUT_EFO, *archives]
    done = subprocess.run(command, input=shipped, capture_output=True, check=False)
    text = done.stderr.decode()
    assert "which reads, cannot import efo (No module named 'efo_service')" in text
    assert reason(Exception(text)).startswith('format("efo") was planned with efo')
    assert "During handling" not in text
