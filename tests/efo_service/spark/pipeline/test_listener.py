"""What Spark reports, from its thread to ours."""

import json
import threading
from types import SimpleNamespace

import pytest

from efo_service.spark.pipeline import listener as listening
from efo_service.spark.pipeline.listener import Reports


def progress(**report):
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(report)))


def test_reports_are_taken_once_and_in_order():
    reports = Reports()
    reports.onQueryStarted(SimpleNamespace(runId="run"))
    reports.onQueryProgress(progress(batchId=0))
    reports.onQueryProgress(progress(batchId=1))
    assert reports.take() == [{"batchId": 0}, {"batchId": 1}]
    assert reports.take() == []


class Watched(threading.Condition):
    """A condition that tells when it is waited for."""

    def __init__(self):
        super().__init__()
        self.is_waited_for = threading.Event()

    def wait(self, timeout=None):
        self.is_waited_for.set()
        return super().wait(timeout)


def test_the_end_of_a_run_comes_after_all_its_reports():
    reports = Reports()
    reports._news = Watched()

    def spark():
        reports._news.is_waited_for.wait(5)
        reports.onQueryTerminated(SimpleNamespace(runId="first"))
        reports.onQueryProgress(progress(batchId=7))
        reports.onQueryTerminated(SimpleNamespace(runId="second"))

    thread = threading.Thread(target=spark)
    thread.start()
    reports.wait_for_end({"first", "second"})
    assert reports.take() == [{"batchId": 7}]
    thread.join()


def test_an_end_that_is_never_heard_is_not_waited_for_for_ever(monkeypatch, caplog):
    monkeypatch.setattr(listening, "END_SECONDS", 0.01)
    reports = Reports()
    reports.onQueryTerminated(SimpleNamespace(runId="another"))
    reports.wait_for_end({"another"})
    assert caplog.text == ""
    reports.wait_for_end({"run", "another"})
    assert "may be too small" in caplog.text


@pytest.mark.spark
def test_spark_calls_and_its_calls_end(spark, log):
    log.grow(0, 10)
    frame = spark.readStream.format("efo").option("subscribe", log.topic).option("startingOffsets", "earliest")

    def run(reports):
        query = frame.load(str(log.root)).writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        reports.wait_for_end({str(query.runId)})
        return sum(report["numInputRows"] for report in reports.take())

    with listening.listening(spark) as first:
        assert run(first) == 10
    with listening.listening(spark) as second:
        assert run(second) == 10
    assert first.take() == []
