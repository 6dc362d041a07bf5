"""A blocked event loop is reported, with the place that blocks it and the remedy."""

import logging
import threading

import pytest
import trio

import efo
from efo import events
from efo.consumer import loop_watch
from efo.consumer.advice import Advice
from efo.consumer.loop_watch import _Loop, _Watch
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


# --- one loop, and the thread, with a clock that the test sets ----------------------------------------------


class Clock:
    """Stands for the clock, and for the token of a loop that is alive at once unless it `is_blocked`."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        self.is_blocked = self.has_ended = False
        self.asked = []
        monkeypatch.setattr(loop_watch, "monotonic", lambda: self.now)

    def run_sync_soon(self, function):
        if self.has_ended:
            raise trio.RunFinishedError
        self.asked.append(self.now)
        if not self.is_blocked:
            function()


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_a_loop_is_asked_again_once_it_has_answered(clock):
    loop = _Loop(clock)
    for _ in range(3):
        clock.now += 1
        loop.look()
    assert clock.asked == [101.0, 102.0, 103.0]
    clock.is_blocked = True
    for _ in range(3):
        clock.now += 1
        loop.look()
    assert clock.asked[3:] == [104.0]
    assert loop.age() == 2.0


def test_a_loop_is_reported_after_five_seconds_once_and_when_it_runs_again(clock, reported):
    loop, kept = _Loop(clock), advice()
    loop.users.append(kept)
    clock.is_blocked = True
    lines = []
    for _ in range(9):
        loop.look()
        lines.append(len(reported.lines))
        clock.now += 1
    assert lines == [0, 0, 0, 0, 0, 0, 1, 1, 1]  # more than five seconds after it was asked
    assert reported.lines[0].startswith("trio's event loop has been blocked for 6 s at ")
    assert "test_loop_watch.py" in loop.where
    loop.alive()
    assert reported.lines[1:] == ["trio's event loop runs again; it was blocked for 9 s"]
    (found,) = kept.given
    assert (found.topic, found.what) == ("blocked_loop", f"trio's event loop was blocked for 9 s at {loop.where}")
    assert (loop.age(), loop.is_reported, loop.is_waiting) == (0.0, False, False)
    loop.alive()
    assert len(reported.lines) == 2


def test_a_loop_that_is_not_late_enough_is_not_reported_when_it_answers(clock, reported):
    loop = _Loop(clock)
    clock.is_blocked = True
    loop.look()
    clock.now += 4
    loop.alive()
    assert reported.lines == []


class Thread:
    """Stands for a thread: `start` only notes it."""

    made = ()

    def __init__(self, *, target, name, daemon):
        type(self).made = (*type(self).made, (name, daemon))
        self.target = target

    def start(self):
        """Leave it to the test to run it."""


def test_one_thread_watches_all_loops_and_ends_when_there_are_none(clock, monkeypatch):
    monkeypatch.setattr(loop_watch.threading, "Thread", Thread)
    Thread.made = ()
    watch, one, two = _Watch(), advice(), advice()
    other = Clock(monkeypatch)
    monkeypatch.setattr(loop_watch, "monotonic", lambda: clock.now)
    watch.add(clock, one)
    watch.add(clock, two)
    watch.add(other, one)
    assert Thread.made == (("efo loop watch", True),)
    steps = []

    def sleep(seconds):
        steps.append(seconds)
        clock.now += 3.0 if len(steps) == 3 else seconds
        if len(steps) == 4:
            watch.remove(clock, two)
            watch.remove(other, one)
            assert [*watch._loops] == [clock]
        if len(steps) == 5:
            watch.remove(clock, one)

    monkeypatch.setattr(loop_watch, "sleep", sleep)
    other.has_ended = True
    watch._run()
    assert steps == [1.0] * 5
    assert len(clock.asked) == 4
    watch.add(clock, one)
    assert len(Thread.made) == 2


@pytest.mark.parametrize(("seconds", "is_blamed"), [(1.0, True), (2.0, True), (2.5, False)])
def test_a_loop_is_not_blamed_for_a_process_that_stood_still(clock, monkeypatch, reported, seconds, is_blamed):
    monkeypatch.setattr(loop_watch.threading, "Thread", Thread)
    watch, kept = _Watch(), advice()
    watch.add(clock, kept)
    clock.is_blocked = True
    steps = []

    def sleep(_interval):
        steps.append(clock.now)
        clock.now += seconds
        if len(steps) == 9:
            watch.remove(clock, kept)

    monkeypatch.setattr(loop_watch, "sleep", sleep)
    watch._run()
    assert bool(reported.lines) is is_blamed


def test_how_long_a_loop_may_be_late():
    assert (loop_watch.BLOCKED_AFTER, loop_watch.INTERVAL) == (5.0, 1.0)
