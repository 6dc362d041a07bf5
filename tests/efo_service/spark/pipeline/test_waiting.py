"""A pipeline that waits for its topic on an object store."""

from __future__ import annotations

import pytest

from efo_service.log.files import LogFiles
from efo_service.log.objects.files import ObjectFiles
from efo_service.object_store.url import parse_url
from efo_service.relay.errors import StoreDeniedError
from efo_service.spark.pipeline import pipeline
from efo_service.spark.pipeline.pipeline import STORE_POLL_SECONDS, _wait_for_topic
from efo_service.spark.pipeline.settings import PipelineSettings
from tests.efo_service.log.objects.logs import TOPIC, Log

URL = parse_url("s3://logs/efo")


class Stop:
    """An event that is waited for without time: the relay creates the topic at the third wait."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.waited: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.log.memory.fault = lambda _operation, _key: None
        if len(self.waited) == 3:
            self.log.writer()
        return False


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def opened(log, monkeypatch) -> list[LogFiles]:
    opened: list[LogFiles] = []

    def log_files(url) -> LogFiles:
        opened.append(ObjectFiles(log.memory, url))
        return opened[-1]

    monkeypatch.setattr(pipeline, "log_files", log_files)
    return opened


@pytest.fixture
def settings(tmp_path) -> PipelineSettings:
    return PipelineSettings(log=URL, topic=TOPIC, output=str(tmp_path / "out"), checkpoint=str(tmp_path / "state"))


def test_it_waits_with_one_client_and_for_a_store_that_is_away(log, opened, settings) -> None:
    log.memory.fault = lambda _operation, _key: "refused"
    stop, progress = Stop(log), []
    assert _wait_for_topic(settings, progress.append, stop)
    assert stop.waited == [STORE_POLL_SECONDS] * 3
    assert len(opened) == 1
    waiting = {"waiting_for": TOPIC, "log": str(URL)}
    assert [{name: report[name] for name in waiting} for report in progress] == [waiting] * 2
    assert [bool(report["because"]) for report in progress] == [True, False]


def test_missing_rights_are_no_reason_to_wait(log, opened, settings, monkeypatch) -> None:
    def denied(_key: str) -> None:
        raise StoreDeniedError("no rights")

    monkeypatch.setattr(log.memory, "get", denied)
    with pytest.raises(StoreDeniedError, match="no rights"):
        _wait_for_topic(settings, print, Stop(log))
