"""Worlds whose sink refuses records find a dead letter that is lost, repeated, or ends more than its shard."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest

from efo_service.relay.dead_letter import DeadLetterShardSink, Reasons, _with
from proofs.simulation import readers
from proofs.simulation.plan import Refusals, plan
from proofs.simulation.run import run


def problems(refusals: Refusals, worlds: int) -> Iterator[str]:
    """Yield the problems of the first worlds with these refusals."""
    seeds = (seed for seed in count() if plan(seed).refusals == refusals)
    return (problem for seed in islice(seeds, worlds) for problem in run(seed).problems)


@pytest.mark.parametrize("refusals", ["dead_letter", "skip"])
def test_a_lost_dead_letter_breaks_a_guarantee(monkeypatch: pytest.MonkeyPatch, refusals: Refusals) -> None:
    def write(sink: DeadLetterShardSink, batch: object, reasons: Reasons) -> None:
        pairs = zip(batch.records, reasons, strict=True)  # type: ignore[attr-defined]
        sink._sink.write(_with(batch, tuple(record for record, reason in pairs if reason is None)))  # type: ignore[arg-type]

    monkeypatch.setattr(DeadLetterShardSink, "_write", write)
    assert any("lost" in problem or "the next one is" in problem for problem in problems(refusals, 5))


def test_dead_letters_after_the_other_records_break_a_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    async def commit(sink: DeadLetterShardSink) -> None:
        sink._buffer.take()
        batches, sink._batches = sink._batches, []
        for batch, reasons in batches:
            sink._write(batch, reasons)
        await sink._sink.commit()
        await sink._dead_letters.commit()

    monkeypatch.setattr(DeadLetterShardSink, "commit", commit)
    assert any(problems("dead_letter", 40))


def test_a_refused_record_that_ends_its_worker_breaks_a_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "isolating", lambda relay, **_options: relay)
    assert any("RecordRefusedError" in problem for problem in problems("isolate", 5))
