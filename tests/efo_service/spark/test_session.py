from __future__ import annotations

import os
import subprocess
import sys

from efo_service.spark.session import worker_python

ASKED = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], sys.argv[1:])"


def started(path: str) -> str:
    environment = {**os.environ, "SPARK_WORKER_PYTHON": sys.executable, "PYTHONPATH": path}
    command = [worker_python(), "-c", ASKED, "an argument"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_workers_take_the_compiled_pyspark_and_everything_else_of_their_path() -> None:
    assert worker_python().endswith("worker-python")
    spark = "/opt/spark/python/lib"
    given = f"{spark}/pyspark.zip:{spark}/py4j-0.10.9.9-src.zip:/opt/jars/core.jar:/my own/code"
    assert started(given) == f"{sys.executable} /opt/jars/core.jar:/my own/code ['an argument']"
    assert (
        started(f"{given}:{given}")
        == f"{sys.executable} {':'.join(2 * ['/opt/jars/core.jar:/my own/code'])} ['an argument']"
    )
    assert started(f"/mine:{spark}/pyspark.zip") == f"{sys.executable} /mine: ['an argument']"
    assert started("") == f"{sys.executable}  ['an argument']"
