from __future__ import annotations

import random

import pytest

from efo_service.object_store.memory import MemoryStore
from efo_service.object_store.repeating import ATTEMPTS, LONGEST_SECONDS, RepeatingStore
from efo_service.relay.errors import StoreUnavailableError


class Faulty:
    """A store that does not answer its next requests, and the time, which passes while one sleeps or requests."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.failures = 0
        self.requests = 0
        self.now = 0.0
        self._seconds = seconds
        self.memory = MemoryStore()
        self.memory.create("topic/key", b"content")
        self.memory.fault = self._fault
        self.store = RepeatingStore(self.memory, sleep=self._sleep, clock=lambda: self.now, rng=random.Random(1))

    def _fault(self, _operation: str, _key: str) -> str | None:
        self.requests += 1
        self.now += self._seconds
        self.failures -= 1
        return "refused" if self.failures >= 0 else None

    def _sleep(self, seconds: float) -> None:
        assert 0 < seconds < LONGEST_SECONDS
        self.now += seconds


READS = {
    "get": lambda store: store.get("topic/key").content == b"content",
    "head": lambda store: store.head("topic/key", 3).content == b"con",
    "folders": lambda store: store.folders("") == ["topic"],
}


@pytest.mark.parametrize("name", READS)
def test_a_read_that_was_not_answered_is_made_again(name) -> None:
    faulty = Faulty()
    faulty.failures = ATTEMPTS - 1
    assert READS[name](faulty.store)
    assert faulty.requests == ATTEMPTS


@pytest.mark.parametrize("name", READS)
def test_a_store_that_does_not_answer_is_reported_after_some_attempts(name) -> None:
    faulty = Faulty()
    faulty.failures = ATTEMPTS
    with pytest.raises(StoreUnavailableError):
        READS[name](faulty.store)
    assert faulty.requests == ATTEMPTS


def test_no_attempt_begins_after_a_slow_one() -> None:
    faulty = Faulty(seconds=LONGEST_SECONDS)
    faulty.failures = 1
    with pytest.raises(StoreUnavailableError):
        faulty.store.get("topic/key")
    assert faulty.requests == 1


def test_a_write_is_made_once() -> None:
    faulty = Faulty()
    version = faulty.memory.get("topic/key").version
    for write in (
        lambda: faulty.store.create("topic/new", b"1"),
        lambda: faulty.store.replace("topic/key", b"2", version),
        lambda: faulty.store.delete(["topic/key"]),
        lambda: list(faulty.store.keys("topic/")),
    ):
        faulty.failures, faulty.requests = 1, 0
        with pytest.raises(StoreUnavailableError):
            write()
        assert faulty.requests == 1
    faulty.store.create("topic/new", b"1")
    faulty.store.replace("topic/key", b"2", version)
    assert sorted(one.key for one in faulty.store.keys("topic/")) == ["topic/key", "topic/new"]
    faulty.store.delete(["topic/key"])
    assert faulty.store.get("topic/key") is None
    assert faulty.store.name == faulty.memory.name
