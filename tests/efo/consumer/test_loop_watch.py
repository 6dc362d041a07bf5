"""A blocked event loop is reported, with the place that blocks it and the remedy."""

import logging
import threading

import pytest
import trio

import efo
from efo import events
from efo.consumer import loop_watch
from efo.consumer.advice import Advice
from efo.testing import FakeKinesis


@pytest.fixture
def times(monkeypatch):
    """Let the watch look often; return what releases the handler that blocks."""
    monkeypatch.setattr(loop_watch, "INTERVAL", 0.01)
    monkeypatch.setattr(loop_watch, "BLOCKED_AFTER", 0.05)


def advice():
    return Advice(events.ignore_events, lambda: 0.0, "app")


class Reported(logging.Handler):
    """Notes the lines of the log, and says when there is one of a blocked loop."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []
        self.is_reported = threading.Event()

    def emit(self, record):
        self.lines.append(record.getMessage())
        if "blocked for" in self.lines[-1]:
            self.is_reported.set()


@pytest.fixture
def reported():
    handler, logger = Reported(), logging.getLogger("efo")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_a_handler_that_blocks_the_loop_is_reported_with_its_place_and_the_remedy(times, reported):
    async def blocks(_batch):
        reported.is_reported.wait(30)  # until it is reported, so the test takes no longer than that

    async def main():
        async with FakeKinesis() as fake:
            fake.create_stream("orders")
            fake.put_many("orders", [("key", b"CANARY")])
            opening = efo.open_consumer(fake.kinesis("orders"), application="app", leases="memory:", until="now")
            async with opening as consumer:
                await consumer.run(efo.Handler(blocks))
                found.extend(consumer.status().advice)

    found = []
    trio.run(main)
    line = next(line for line in reported.lines if "has been blocked" in line)
    assert "test_loop_watch.py" in line.partition(": meanwhile")[0].partition(", called at")[0]
    assert "blocks" in line
    assert "efo.in_thread(handler)" in line
    assert "CANARY" not in line
    assert not loop_watch._WATCH._loops
    (kept,) = found
    assert kept.topic == "blocked_loop"
    assert "test_loop_watch.py" in kept.what
    assert "efo.in_thread(handler)" in kept.remedy


def test_a_loop_that_only_waits_is_not_reported(times, reported):
    async def main():
        with loop_watch.watched_loop(advice()):
            await trio.sleep(0.2)

    trio.run(main)
    assert reported.lines == []


async def test_virtual_time_is_not_watched(autojump_clock):
    with loop_watch.watched_loop(advice()):
        assert not loop_watch._WATCH._loops
