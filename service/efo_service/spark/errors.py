"""What may go wrong between efo and Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from efo.errors import EfoError


class SparkError(EfoError):
    """Spark could not do what was asked; the message carries Spark's own."""

    error_type = "spark"


class JavaMissingError(SparkError):
    """Spark needs Java, and none that is new enough was found."""

    error_type = "java_missing"


_OURS = re.compile(r"^(?:efo|efo_service)\.[\w.]+Error: (.+)$", re.MULTILINE)


def reason(error: BaseException) -> str:
    """Return what an exception of Spark is about: our own error inside it, else its first line.

    What fails in a Python worker comes back as text, with the worker's traceback around it.
    """
    text = str(error)
    ours = _OURS.findall(text)
    return str(ours[-1]) if ours else text.strip().partition("\n")[0]


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Translate PySpark's exceptions: the one seam between it and our errors."""
    try:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - pyspark is slow to import and not always there
        from pyspark.errors import PySparkException  # noqa: PLC0415 - the same
    except ImportError as error:
        raise SparkError(f"{doing} needs PySpark: install efo with its extra, efo[spark] ({error})") from error
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkError(f"{doing} failed: {reason(error)}") from error
    except ConnectionError as error:  # py4j's, when nobody listens any more
        raise SparkError(
            f"{doing} failed: its Java process is gone; it was killed, or had too little memory (spark.driver.memory)."
            " Start it again: it goes on at its checkpoint"
        ) from error
