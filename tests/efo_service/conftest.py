"""Fixtures of all tests of the service."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from efo.model import Batch, Record
from efo_service.relay import doubt

STREAM, SHARD, TOPIC = "orders", "shardId-000000000000", "orders"
FIRST = 49590338271490256608559692538361571095921575989136588898


@pytest.fixture(autouse=True)
def no_settings_of_the_shell(monkeypatch):
    """Remove EFO_ variables of the shell that runs the tests."""
    for name in [name for name in os.environ if name.startswith("EFO_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def damage_is_read_again_without_pauses(monkeypatch):
    """Let a damaged log be read again at once."""
    monkeypatch.setattr(doubt, "PAUSE", 0.0)


@pytest.fixture
def make_records() -> Callable[..., tuple[Record, ...]]:
    """Make the records `start` to `start` + `count` - 1 of one shard. Their fields depend only on their number."""

    def make(count: int, start: int = 0) -> tuple[Record, ...]:
        return tuple(
            Record(
                sequence_number=str(FIRST + number),
                approximate_arrival_timestamp=1_700_000_000 + number / 1000,
                data=b"value-%d" % number,
                partition_key=f"key-{number % 7}",
            )
            for number in range(start, start + count)
        )

    return make


@pytest.fixture
def make_batch(make_records) -> Callable[..., Batch]:
    """Make a batch of the shard. `number`: the number of the batch, independent of the records' numbers."""

    def make(count: int, start: int = 0, number: int = 0) -> Batch:
        return Batch("s", SHARD, make_records(count, start), str(start + count), 0, number)

    return make
