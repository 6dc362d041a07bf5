import os
import traceback

import pytest
from pyspark.errors import PySparkRuntimeError

from efo.errors import ConfigurationError
from efo_service.spark.errors import SparkError, one_line_errors, reason, spark_errors
from efo_service.spark.source.data_source import LogStreamReader
from efo_service.spark.source.log_reader import LogReader
from efo_service.spark_kinesis.batch import KinesisReader
from efo_service.spark_kinesis.data_source import KinesisStreamReader

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


JAVA = """An error occurred while calling o449.start.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: {}. Make sure
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.dataSourceNotFoundError(QueryExecutionErrors.scala:770)
"""


def test_a_missing_jar_is_named_with_the_setting() -> None:
    assert reason(Exception(JAVA.format("delta"))).startswith(
        "Spark has no format delta: put its package into spark.jars.packages, in [pipeline.spark_options]"
    )


def test_a_source_of_efo_that_is_not_found_is_a_matter_of_the_python() -> None:
    assert reason(Exception(JAVA.format("efo"))).startswith(
        "Spark's Python has no format efo: import pyspark_efo before the first session, or set PYSPARK_PYTHON"
    )


def test_the_reason_of_java_is_not_the_name_of_a_call() -> None:
    text = "An error occurred while calling o7.load.\n: java.io.IOException: no route\n\tat java.base"
    assert reason(Exception(text)) == "java.io.IOException: no route"


def test_a_worker_shows_neither_the_traceback_of_an_error_nor_its_causes(monkeypatch) -> None:
    """Spark 4.0 shows what there is: of a role and a network, 330 lines."""
    monkeypatch.setattr(os, "environ", {"SPARK_PYTHON_RUNTIME": "PYTHON_WORKER"})

    def fail(depth: int) -> None:
        if depth:
            return fail(depth - 1)
        try:
            raise OSError("the network")
        except OSError as error:
            raise ConfigurationError("wrong") from error

    with pytest.raises(ConfigurationError) as raised, one_line_errors():
        fail(50)
    shown = "".join(traceback.format_exception(raised.value))
    assert "the network" not in shown
    assert "in fail" not in shown


@pytest.mark.parametrize("reader", [LogReader, KinesisReader, LogStreamReader, KinesisStreamReader])
def test_what_spark_asks_of_a_reader_has_such_errors(reader) -> None:
    asked = {
        "partitions", "initialOffset", "latestOffset", "prepareForTriggerAvailableNow", "reportLatestOffset", "commit",
    }  # fmt: skip
    own = [name for name in asked if name in vars(reader)]
    assert own
    assert [name for name in own if not hasattr(vars(reader)[name], "__wrapped__")] == []
