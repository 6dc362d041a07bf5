"""Spark's reports, from its thread to the thread that takes them."""

import json
import threading
from types import SimpleNamespace

import pytest

from efo_service.spark.pipeline import listener
from efo_service.spark.pipeline.listener import ReportListener, listening


def progress(**report):
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(report)))


def test_reports_are_taken_once_and_in_order():
    reports = ReportListener()
    reports.onQueryStarted(SimpleNamespace(runId="run"))
    reports.onQueryProgress(progress(batchId=0))
    reports.onQueryProgress(progress(batchId=1))
    assert reports.take() == [{"batchId": 0}, {"batchId": 1}]
    assert reports.take() == []


class ObservableCondition(threading.Condition):
    """A condition with an event that is set when a thread waits for the condition."""

    def __init__(self):
        super().__init__()
        self.has_waiter = threading.Event()

    def wait(self, timeout=None):
        self.has_waiter.set()
        return super().wait(timeout)


def test_wait_for_end_waits_for_all_reports_of_the_runs():
    reports = ReportListener()
    reports._changed = ObservableCondition()

    def spark():
        reports._changed.has_waiter.wait(5)
        reports.onQueryTerminated(SimpleNamespace(runId="first"))
        reports.onQueryProgress(progress(batchId=7))
        reports.onQueryTerminated(SimpleNamespace(runId="second"))

    thread = threading.Thread(target=spark)
    thread.start()
    reports.wait_for_end({"first", "second"})
    assert reports.take() == [{"batchId": 7}]
    thread.join()


def test_wait_for_end_gives_a_warning_after_a_timeout(monkeypatch, caplog):
    monkeypatch.setattr(listener, "END_TIMEOUT_SECONDS", 0.01)
    reports = ReportListener()
    reports.onQueryTerminated(SimpleNamespace(runId="another"))
    reports.wait_for_end({"another"})
    assert caplog.text == ""
    reports.wait_for_end({"run", "another"})
    assert "may be too small" in caplog.text


@pytest.mark.spark
def test_spark_reports_to_a_listener_until_it_is_removed(spark, log):
    log.grow(0, 10)
    frame = spark.readStream.format("efo").option("subscribe", log.topic).option("startingOffsets", "earliest")

    def run(reports):
        query = frame.load(str(log.root)).writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        reports.wait_for_end({str(query.runId)})
        return sum(report["numInputRows"] for report in reports.take())

    with listening(spark) as first:
        assert run(first) == 10
    with listening(spark) as second:
        assert run(second) == 10
    assert first.take() == []
