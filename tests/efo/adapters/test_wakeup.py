"""Sleeps of the synchronous surface: each ends by itself, since a signal may have come just before it began."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from efo.sync import caller_side
from efo.sync.caller_side import Wakeup, result_of


@pytest.fixture(autouse=True)
def short_naps(monkeypatch):
    monkeypatch.setattr(caller_side, "NAP_SECONDS", 0.01)


@pytest.mark.timeout(30)
def test_a_sleep_ends_although_nobody_wakes_it_and_leaves_nothing_behind():
    quiet = Wakeup()
    quiet.sleep_unless(lambda: False)
    assert not quiet._sleeping


def test_a_sleep_ends_at_once_when_it_is_woken_before(monkeypatch):
    monkeypatch.setattr(caller_side, "NAP_SECONDS", 3600)
    woken = Wakeup()
    woken.sleep_unless(woken.wake)  # `wake` returns None: nothing is ready, but it was woken
    assert not woken._sleeping


@pytest.mark.timeout(30)
def test_a_wait_for_a_future_looks_again_until_it_is_done():
    future, looks = Future(), []

    class Watched:
        def done(self):
            looks.append(None)
            if len(looks) == 3:
                future.set_result("stored")
            return future.done()

        def __getattr__(self, name):
            return getattr(future, name)

    assert result_of(Watched()) == "stored"
    assert len(looks) == 3


def test_a_wait_raises_what_the_future_raises():
    failed, late = Future(), Future()
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        result_of(failed)
    with pytest.raises(TimeoutError):
        result_of(late, timeout=0)
