from __future__ import annotations

import os
import subprocess
import sys

from efo_service.spark.session import worker_python

PRINT_ENVIRONMENT = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], sys.argv[1:])"


def run_worker(path: str) -> str:
    environment = {**os.environ, "SPARK_WORKER_PYTHON": sys.executable, "PYTHONPATH": path}
    command = [worker_python(), "-c", PRINT_ENVIRONMENT, "an argument"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_workers_use_the_installed_pyspark_and_the_rest_of_their_path() -> None:
    assert worker_python().endswith("worker-python")
    spark = "/opt/spark/python/lib"
    path = f"{spark}/pyspark.zip:{spark}/py4j-0.10.9.9-src.zip:/opt/jars/core.jar:/my own/code"
    assert run_worker(path) == f"{sys.executable} /opt/jars/core.jar:/my own/code ['an argument']"
    assert (
        run_worker(f"{path}:{path}")
        == f"{sys.executable} {':'.join(2 * ['/opt/jars/core.jar:/my own/code'])} ['an argument']"
    )
    assert run_worker(f"/mine:{spark}/pyspark.zip") == f"{sys.executable} /mine: ['an argument']"
    assert run_worker("") == f"{sys.executable}  ['an argument']"
