"""The worlds of lives.py find an efo that does not look. `test_seeds.py` runs their seeds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from efo.consumer import expired_records
from efo.consumer.recreation import RecreationCheck
from efo.consumer.shard_stream import ShardStream
from efo.kinesis.identity import StreamIdentity
from efo.protocol.unread import Unread
from proofs.simulation.lives import Life, live
from proofs.simulation.run import _pin


def lives(*seeds: int) -> Iterator[Life]:
    for seed in seeds:
        _pin(seed)
        life = Life()
        live(seed, life)
        yield life


def problems(*seeds: int) -> str:
    return "\n".join(problem for life in lives(*seeds) for problem in life.problems)


RECREATED = (98, 675)
"""Seeds of streams that are recreated: the second one after a split, so that one shard has a finished lease."""
KEPT = (443, 744)
"""Seeds of streams that are not recreated, whose leases do not name them, and whose listings are late."""
EXPIRING = (68, 180, 243)
"""Seeds in which records expire unread."""
IDLE = (204, 295)
"""Seeds in which none does."""


def test_these_seeds_are_what_they_are_said_to_be() -> None:
    assert all("R15.refused" in {line.what for line in life.lines} for life in lives(*RECREATED))
    assert all("R15.taken_over" in {line.what for line in life.lines} for life in lives(*KEPT))
    assert all("R5.expired_unread" in {line.what for line in life.lines} for life in lives(*EXPIRING))
    assert all("R5.expired_unread" not in {line.what for line in life.lines} for life in lives(*IDLE))


async def _unchecked(*_args: object) -> None:
    pass


def test_a_consumer_that_does_not_compare_leases_and_stream_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecreationCheck, "check", _unchecked)
    monkeypatch.setattr(StreamIdentity, "look", _unchecked)
    assert "of its records are unread" in problems(*RECREATED)


def test_a_consumer_that_takes_every_stream_without_a_name_for_another_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = RecreationCheck._is_confirmed

    async def confirmed(self, *args) -> bool:
        await check(self, *args)
        return True

    monkeypatch.setattr(RecreationCheck, "_is_confirmed", confirmed)
    assert "is refused or not read" in problems(*KEPT)


def test_records_that_expire_in_silence_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unread, "received", lambda *_args: None)
    assert "is unread, and nothing tells it" in problems(*EXPIRING)


def test_a_time_that_is_not_saved_with_its_checkpoint_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShardStream, "unread_since", None)
    assert "and is reported as expired" in problems(*EXPIRING)


def test_reports_of_what_cannot_have_expired_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expired_records, "expired", lambda gap, _retention: (gap.since, gap.seen))
    monkeypatch.setattr(expired_records, "slack", lambda _retention: 0.0)
    received = Unread.received

    def always(self, records, behind, seen, kept_for):
        return received(self, records, behind, seen, -1e9)

    monkeypatch.setattr(Unread, "received", always)
    assert "is reported" in problems(*IDLE)
