"""What `import pyspark_efo` does: for Spark, in an environment that lacks something, and for a program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from pyspark.sql.datasource import DataSource

from efo_service.spark.default_source import default_source, use_this_python
from efo_service.spark.source.data_source import EfoDataSource
from tests.paths import ROOT

EFO = ("efo", "efo_service.spark.source.data_source", "EfoDataSource")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """No variable of Spark, and no session."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")  # so that it is as before at the end
        monkeypatch.delenv(name)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)


def test_it_is_the_source() -> None:
    assert default_source(*EFO) is EfoDataSource


def test_a_source_that_cannot_work_says_which_python_lacks_what(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, EFO[1], None)
    source = default_source(*EFO)
    assert issubclass(source, DataSource)
    assert source.name() == "efo"
    with pytest.raises(ImportError, match=r'^format\("efo"\) cannot work with .*python.*: import of .*efo\[spark\]'):
        source({}).schema()


def test_a_spark_without_python_sources_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    with pytest.warns(
        UserWarning, match=r'format\("efo"\): this Spark \(3.5.9\) has no Python data sources.*readers.md'
    ):
        assert default_source(*EFO) is None


def test_a_python_without_pyspark_is_reported(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.warns(UserWarning, match=r"PySpark is not installed: pip install 'efo\[spark\]'"):
        assert default_source(*EFO) is None


def test_spark_starts_the_python_of_the_program() -> None:
    use_this_python()
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"]) == (sys.executable, sys.executable)


def test_a_python_that_was_chosen_stays(monkeypatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    use_this_python()
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ


def test_a_session_with_another_python_is_refused_with_the_remedy(monkeypatch, tmp_path) -> None:
    (other := tmp_path / "python3").write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", SimpleNamespace(pythonExec="python3"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        RuntimeError, match=f"Spark has begun with {other}, and not with this Python.*import pyspark_efo"
    ):
        use_this_python()
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    use_this_python()
    monkeypatch.setattr(pyspark.SparkContext._active_spark_context, "pythonExec", "/opt/python")
    use_this_python()
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.spark
def test_a_program_of_an_environment_that_is_not_activated_finds_the_source(log, tmp_path) -> None:
    log.grow(0, 3)
    job = (
        "import pyspark_efo\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        f"print('records', spark.read.format('efo').option('subscribe', '{log.topic}').load('{log.root}').count())\n"
    )
    elsewhere = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if part != str(Path(sys.executable).parent)
    )
    environment = {**os.environ, "PATH": elsewhere, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", job], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "records 3" in done.stdout, done.stderr[-2000:]


def test_both_modules_always_import() -> None:
    """Without any package: Spark would find no source of any package."""
    code = "import sys, pyspark_efo, pyspark_kinesis; sys.exit(pyspark_efo.DefaultSource is not None)"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "service")])
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "PySpark is not installed" in done.stderr) == (0, True), done.stderr
