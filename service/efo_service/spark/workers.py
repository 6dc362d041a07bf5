"""The Python that starts Spark's Python workers, so that they are ready in time on a busy machine.

    python -m efo_service.spark.workers

prints its environment variables as commands of a shell. See "A busy machine" in docs/spark.md.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from pathlib import Path


def worker_python() -> str:
    """Return the program that starts Python workers: the script worker-python, see there.

    Some installers drop its x bit; then it is Python itself.
    """
    script = Path(__file__).with_name("worker-python")
    return str(script) if os.access(script, os.X_OK) else sys.executable


def worker_environment() -> dict[str, str]:
    """Return the environment variables with which Spark's Python workers connect to Spark before they import PySpark.

    A process needs them when its first session starts: Java reads them at its start. Executors start the same program,
    so efo must have the same path there.
    """
    python = worker_python()
    return {
        "PYSPARK_PYTHON": python,
        # Java looks for unregistered data sources with the driver's Python (PythonUtils.defaultPythonExec).
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_WORKER_PYTHON": sys.executable,
        "SPARK_WORKER_PYSPARK": _installed_pyspark(),
    }


def _installed_pyspark() -> str:
    """Return the directory of the PySpark that this Python has installed, '' if it has none or finds it by a path.

    Which Spark will start the workers is not known here: SPARK_HOME may be unset, and spark-submit of another one.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return ""
    installed = Path(found.origin).parent
    return str(installed) if installed.is_relative_to(sys.prefix) else ""


if __name__ == "__main__":
    for name, value in worker_environment().items():
        sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
