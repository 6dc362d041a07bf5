"""Worlds whose sink refuses records find a dead letter that is lost, repeated, or ends more than its shard."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest

from efo_service.relay.relay import ShardRelay
from efo_service.relay.write_buffer import WriteBuffer
from proofs.simulation import readers
from proofs.simulation.plan import Refusals, plan
from proofs.simulation.run import run

pytestmark = pytest.mark.runner


def problems(refusals: Refusals, worlds: int) -> Iterator[str]:
    """Yield the problems of the first worlds with these refusals."""
    seeds = (seed for seed in count() if plan(seed).refusals == refusals)
    return (problem for seed in islice(seeds, worlds) for problem in run(seed).problems)


@pytest.mark.parametrize("refusals", ["dead_letter", "skip"])
def test_a_lost_dead_letter_breaks_a_guarantee(monkeypatch: pytest.MonkeyPatch, refusals: Refusals) -> None:
    sort = WriteBuffer._sort
    monkeypatch.setattr(WriteBuffer, "_sort", lambda *args: sort(*args)._replace(dead_letters=()))
    assert any("lost" in problem or "the next one is" in problem for problem in problems(refusals, 5))


def test_dead_letters_after_the_other_records_break_a_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    async def commit(relay: ShardRelay) -> None:
        group = relay._committing = relay._buffer.take()
        relay._buffer_taken.unpark_all()
        assert group is not None
        assert relay._dead_letters is not None
        if group.last is not None:
            await relay._writer.commit(group.parts, group.last)
        if group.dead_letters:
            await relay._dead_letters.commit(group.dead_letters, group.refused[-1].record)
        relay._committing = None
        relay._shard.ack_through(group.batch, group.end)

    monkeypatch.setattr(ShardRelay, "_commit", commit)
    assert any(problems("dead_letter", 40))


def test_a_refused_record_that_ends_its_worker_breaks_a_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "isolating", lambda relay, **_options: relay)
    assert any("RecordRefusedError" in problem for problem in problems("isolate", 5))
