import os

import pytest
from pyspark.errors import PySparkRuntimeError

from efo.errors import ConfigurationError
from efo_service.spark.errors import SparkError, one_line_errors, reason, spark_errors

WORKER = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):
  File "/somewhere/source.py", line 63, in read
efo_service.relay.errors.SegmentCorruptError: /log/orders/0/1.arrow is damaged. Restore it
 SQLSTATE: 38000
"""


def test_the_reason_is_efos_own_error_in_a_worker_traceback() -> None:
    assert reason(Exception(WORKER)) == "/log/orders/0/1.arrow is damaged. Restore it"


def test_the_reason_is_the_first_line_of_any_other_error() -> None:
    assert reason(Exception("\n[PATH_NOT_FOUND] no such path\nat org.apache.spark")) == "[PATH_NOT_FOUND] no such path"


def test_a_pyspark_exception_becomes_a_spark_error() -> None:
    with pytest.raises(SparkError, match="the pipeline failed: no memory"), spark_errors("the pipeline"):
        raise PySparkRuntimeError("no memory")


def test_other_exceptions_are_not_translated() -> None:
    with pytest.raises(ZeroDivisionError), spark_errors("the pipeline"):
        1 / 0  # noqa: B018 - for its exception


def test_a_lost_java_process_is_reported() -> None:
    with pytest.raises(SparkError, match="Spark's Java process has ended"), spark_errors("the pipeline"):
        raise ConnectionRefusedError(111, "Connection refused")


def test_the_reason_is_efos_own_error_without_a_traceback() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed:"
        " efo.errors.ConfigurationError: columns=',': expected some\n SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming"
    )
    assert reason(Exception(text)) == "columns=',': expected some"


@pytest.mark.parametrize(
    ("runtime", "error", "hidden"),
    [
        ("PYTHON_WORKER", ConfigurationError("wrong"), "1"),
        ("PYTHON_WORKER", KeyError("a defect"), None),
        ("", ConfigurationError("wrong"), None),
    ],
)
def test_a_python_worker_hides_the_traceback_of_efos_errors_alone(monkeypatch, runtime, error, hidden) -> None:
    environment = {"SPARK_PYTHON_RUNTIME": runtime}
    monkeypatch.setattr(os, "environ", environment)
    with pytest.raises(type(error)), one_line_errors():
        raise error
    assert environment.get("SPARK_HIDE_TRACEBACK") == hidden
