from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from efo_service.spark.workers import worker_environment, worker_python

PRINT_ENVIRONMENT = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], sys.argv[1:])"


SPARK = Path(pyspark.__file__).parent


def run_worker(path: str) -> str:
    environment = {**os.environ, **worker_environment(), "PYTHONPATH": path}
    command = [worker_python(), "-c", PRINT_ENVIRONMENT, "an argument"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_workers_use_the_installed_pyspark_and_the_rest_of_their_path() -> None:
    assert worker_python().endswith("worker-python")
    library = f"{SPARK}/python/lib"
    path = f"{library}/pyspark.zip:{library}/py4j-0.10.9.9-src.zip:/opt/jars/core.jar:/my own/*"
    assert run_worker(path) == f"{sys.executable} /opt/jars/core.jar:/my own/* ['an argument']"
    both = ":".join(2 * ["/opt/jars/core.jar:/my own/*"])
    assert run_worker(f"{path}:{path}") == f"{sys.executable} {both} ['an argument']"
    assert run_worker(f"/mine:{library}/pyspark.zip") == f"{sys.executable} /mine ['an argument']"
    assert run_worker("") == f"{sys.executable}  ['an argument']"


def test_workers_of_another_spark_import_its_pyspark() -> None:
    """Such as that of spark-submit on the PATH, without a SPARK_HOME where the environment was made."""
    path = "/opt/spark/python/lib/pyspark.zip:/opt/spark/python/lib/py4j-0.10.9.7-src.zip"
    assert run_worker(path) == f"{sys.executable} {path} ['an argument']"


def test_the_environment_names_this_python_and_its_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """This Python, even if PySpark is no part of it: the one of the PATH may be another version, without efo."""
    expected = {
        "PYSPARK_PYTHON": worker_python(),
        "PYSPARK_DRIVER_PYTHON": worker_python(),
        "SPARK_WORKER_PYTHON": sys.executable,
        "SPARK_WORKER_PYSPARK": str(SPARK),
    }
    assert worker_environment() == expected
    monkeypatch.setattr(sys, "prefix", "/elsewhere")
    assert worker_environment() == {**expected, "SPARK_WORKER_PYSPARK": ""}


def test_the_environment_is_printed_for_a_shell() -> None:
    command = [sys.executable, "-m", "efo_service.spark.workers"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    script = f'{printed}\nexec "$PYSPARK_PYTHON" -c "print(7)"'
    assert subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True).stdout == "7\n"
