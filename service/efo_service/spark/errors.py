"""Errors of the Spark integration, and the translation of PySpark's exceptions into them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from efo.errors import EfoError


class SparkError(EfoError):
    """A Spark operation failed; the message includes Spark's reason."""

    error_type = "spark"


class JavaMissingError(SparkError):
    """Spark needs Java, and no Java that is new enough was found."""

    error_type = "java_missing"


_EFO_ERROR = re.compile(
    r"""(?:^|: )(?:(?:efo|efo_service)\.[\w.]+Error: |ImportError: (?=format\("efo"\)))(.+)$""", re.MULTILINE
)
"""An error of efo's, or of a Python that has no efo or another version of it (efo_service.spark.source.shipping)."""


_QUOTED = re.compile(r"(?<=value )(?:'[^']*'|\"[^\"]*\")")
"""A value in the text of a failed conversion: of a record, maybe."""
_USER = re.compile(r"://[^/\s]*@")


def reason(error: BaseException) -> str:
    """Return the reason of a Spark exception in one line: efo's own error inside it, else its first line.

    An error in a Python worker arrives as text: after Spark's own words, or inside the worker's traceback.
    """
    text = str(error)
    efo_errors = _EFO_ERROR.findall(text)
    if efo_errors:
        return str(efo_errors[-1])
    return _QUOTED.sub("'...'", _USER.sub("://...@", text.strip().partition("\n")[0]))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Make Spark report an error of efo in one line, without the traceback of its Python worker.

    Its message says what to do, and the traceback, of efo's own code, says nothing to a user. Another exception keeps
    its traceback. A Python worker reads the variable after the error, and then it ends (pyspark.util
    handle_worker_exception); other processes are left alone.
    """
    try:
        yield
    except EfoError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


@contextmanager
def spark_errors(operation: str) -> Iterator[None]:
    """Translate PySpark's exceptions into SparkError. Nothing else translates them.

    `operation`: the subject of the error message, such as "the pipeline".
    """
    try:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - pyspark is slow to import and optional
        from pyspark.errors import PySparkException  # noqa: PLC0415 - the same
    except ImportError as error:
        raise SparkError(f"{operation} needs PySpark: install efo[spark] ({error})") from error
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkError(f"{operation} failed: {reason(error)}") from error
    except ConnectionError as error:  # py4j raises it when the Java process has ended
        raise SparkError(
            f"{operation} failed: Spark's Java process has ended; it was killed, or had too little memory"
            " (spark.driver.memory). Start it again: it resumes from its checkpoint"
        ) from error
