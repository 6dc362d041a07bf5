"""Errors of the Spark integration, and the translation of PySpark's exceptions into them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager

from efo.errors import EfoError


class SparkError(EfoError):
    """A Spark operation failed; the message includes Spark's reason."""

    error_type = "spark"


class JavaMissingError(SparkError):
    """Spark needs Java, and no Java that is new enough was found."""

    error_type = "java_missing"


_EFO_ERROR = re.compile(
    r"""(?:^|: )(?:efo(?:_service)?\.[\w.]+Error: |ImportError: (?=format\("(?:efo|kinesis)"\)))(.+)$""", re.MULTILINE
)
"""An error of efo's, or of a Python that has no efo or another version of it (efo_service.spark.source.shipping)."""


_NO_FORMAT = re.compile(r"Failed to find the data source: ([\w.-]*\w)")
"""Spark without the jar of a format, such as Delta."""


_CALL = re.compile(r"\AAn error occurred while calling [^\n]*\n: ")
"""What py4j says before the words of Java, and says nothing."""
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
    if (found := _NO_FORMAT.search(text)) is not None:
        if found[1] in {"efo", "kinesis"}:
            return (
                f"Spark's Python has no format {found[1]}: import pyspark_efo before the first session, or set"
                " PYSPARK_PYTHON to the Python that has efo (docs/spark.md, An environment that is not activated)"
            )
        return (
            f"Spark has no format {found[1]}: put its package into spark.jars.packages, in [pipeline.spark_options] or"
            " --packages of spark-submit (docs/tables.md has those of Delta and Iceberg)"
        )
    first_line = _CALL.sub("", text.strip()).partition("\n")[0]
    return _QUOTED.sub("'...'", _USER.sub("://...@", first_line))


class _OneLineErrors(ContextDecorator):
    """See `one_line_errors`. A class, since a generator's context manager gives an error its traceback back."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Cut an error of efo to its line, in a worker."""
        if isinstance(error, EfoError) and os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise error.with_traceback(None) from None


def one_line_errors() -> _OneLineErrors:
    """Make Spark report an error of efo in one line, without the traceback of its Python worker and its causes.

    Its message says what to do, and the traceback, of efo's own code, says nothing to a user. Another exception keeps
    its traceback. A Python worker reads the variable after the error, and then it ends (pyspark.util
    handle_worker_exception); other processes are left alone. Spark 4.0 does not know the variable, and shows what there
    is: so the error is cut, too.
    """
    return _OneLineErrors()


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
