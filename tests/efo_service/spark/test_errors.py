import pytest
from pyspark.errors import PySparkRuntimeError

from efo_service.spark.errors import SparkError, reason, spark_errors

WORKER = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):
  File "/somewhere/source.py", line 63, in read
efo_service.relay.errors.SegmentCorruptError: /log/orders/0/1.arrow is damaged. Restore it
 SQLSTATE: 38000
"""


def test_our_own_error_is_found_in_a_workers_traceback() -> None:
    assert reason(Exception(WORKER)) == "/log/orders/0/1.arrow is damaged. Restore it"


def test_else_the_first_line_says_it() -> None:
    assert reason(Exception("\n[PATH_NOT_FOUND] no such path\nat org.apache.spark")) == "[PATH_NOT_FOUND] no such path"


def test_pysparks_exceptions_become_ours() -> None:
    with pytest.raises(SparkError, match="the pipeline failed: out of luck"), spark_errors("the pipeline"):
        raise PySparkRuntimeError("out of luck")


def test_others_pass() -> None:
    with pytest.raises(ZeroDivisionError), spark_errors("the pipeline"):
        1 / 0  # noqa: B018 - it is the exception that counts


def test_java_that_is_gone_is_told_as_such() -> None:
    with pytest.raises(SparkError, match="its Java process is gone"), spark_errors("the pipeline"):
        raise ConnectionRefusedError(111, "Connection refused")
