"""What `import pyspark_efo` and `import pyspark_kinesis` do: for Spark, and for a program before its session.

Spark imports each module pyspark_* in a process of its own, and takes its `DefaultSource`. If one such import fails, it
finds no source at all and does not say why: so these always succeed, and a source that cannot work says so when it is
used.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_VARIABLES: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_NO_SOURCES: Final = (
    "this Spark ({version}) has no Python data sources, which came with 4.0: install 'pyspark>=4.0', or read the log"
    " as docs/readers.md shows for Spark 3.5"
)


def default_source(name: str, module: str, class_name: str) -> Any:
    """Return the source, or one of that name that only says why it cannot work here.

    Before a session, this also lets Spark start its Python workers with this Python, see `use_this_python`.
    """
    use_this_python()
    try:
        from pyspark.sql.datasource import DataSource  # noqa: PLC0415 - Spark 3.5 has none, and not each program has Spark
    except ImportError:
        warnings.warn(f'format("{name}"): {_no_sources()}', stacklevel=3)
        return None
    try:
        return getattr(import_module(module), class_name)
    except ImportError as error:
        reason = (
            f'format("{name}") cannot work with {sys.executable}: {error}. Install what is missing there:'
            f" pip install 'efo[{'service,spark' if name == 'kinesis' else 'spark'}]'"
        )

    class Unusable(DataSource):
        """Says why."""

        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
                os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # as efo_service.spark.errors, which may not import
            raise ImportError(reason)

    return Unusable


def _no_sources() -> str:
    try:
        return _NO_SOURCES.format(version=import_module("pyspark").__version__)
    except ImportError:
        return "PySpark is not installed: pip install 'efo[spark]'"


def use_this_python() -> None:
    """Let Spark start its Python workers with this Python, unless something else is set.

    Spark would start the python3 of PATH, which is another one if the environment is not activated: from cron, systemd
    or an IDE, and as `venv/bin/python job.py`. Raises RuntimeError if a session has begun with that other one.
    """
    if any(os.environ.get(name) for name in _VARIABLES):
        return
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    active = getattr(context, "_active_spark_context", None)
    if active is None:
        os.environ.update(dict.fromkeys(_VARIABLES, sys.executable))
        return
    found = shutil.which("python3") if active.pythonExec == "python3" else None
    if found is not None and Path(found).parent != Path(sys.executable).parent:
        raise RuntimeError(
            f"Spark has begun with {found}, and not with this Python, {sys.executable}: import pyspark_efo before the"
            f" first session, or set PYSPARK_PYTHON={sys.executable} in the environment"
        )
