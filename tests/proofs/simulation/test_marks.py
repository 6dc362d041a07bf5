"""The coverage marks: each rule has some, a story reaches each one, and a large run must reach all."""

from __future__ import annotations

import json
import re

import pytest

from efo import events
from efo.model import Checkpoint
from efo.protocol.aggregation import AggregateMode
from efo.protocol.subscription import SubscriptionTiming
from proofs.simulation import __main__ as command
from proofs.simulation.coverage import Coverage
from proofs.simulation.marks import ELSEWHERE, MARKS, REQUIRED_SEEDS
from proofs.simulation.run import Outcome
from proofs.simulation.signing import CORRECTED
from proofs.simulation.story import (
    BY_KEY,
    DISTRIBUTED,
    SECOND_APPLICATION,
    SECOND_STREAM,
    Acked,
    Acted,
    Aggregated,
    ChildrenSaved,
    Closed,
    Crashed,
    Created,
    Deleted,
    Disked,
    Exited,
    Handled,
    Held,
    LeaseFileCrashed,
    Line,
    Lived,
    Lost,
    Opened,
    Positioned,
    Put,
    Refused,
    Reported,
    Repositioned,
    Resharded,
    Rotted,
    Saved,
    Waited,
)
from proofs.simulation.world import Tally
from tests.paths import ROOT

P, Q, CHILD, OTHER = "parent", "other parent", "child", "other child"
START, LATEST, END = Checkpoint.TRIM_HORIZON, Checkpoint.LATEST, Checkpoint.SHARD_END
TIME = Checkpoint.AT_TIMESTAMP
AGGREGATE: list[Line] = [Put(P, (7, sub), "k", sub) for sub in range(3)]
INSIDE = Checkpoint("7", 1)
KEYLESS: list[Line] = [Put(P, (7, sub), f"auto{sub}", 0, has_key=False) for sub in range(2)]


def created(shard: str, checkpoint: Checkpoint = START) -> Created:
    return Created(shard, checkpoint)


def opened(shard: str, checkpoint: Checkpoint = START) -> Opened:
    return Opened("a.1", "a", shard, checkpoint)


def reported(event: events.Event) -> Reported:
    return Reported("a.1", event)


def attempted(error: str | None = None, waited: float = 0.0) -> Reported:
    return reported(events.SubscribeAttempted(P, waited, 0.1, error))


def polled(error: str | None = None) -> Reported:
    return reported(events.PollAttempted(P, "GetRecords", 0.1, error))


def ended(reason: events.EndReason, detail: str = "", age: float = 250.0) -> Reported:
    return reported(events.SubscriptionEnded(P, age, reason, detail))


def filtered(mode: AggregateMode) -> Reported:
    return reported(events.RecordsFiltered(P, "7", 1, mode))


def failed(action: str) -> Reported:
    return reported(events.HandlerFailed(P, "1", 1, 1, 0.1, "HandlerError", action))  # type: ignore[arg-type]


def handled(*sequences: int) -> Handled:
    return Handled("a.1", P, tuple((sequence, 0) for sequence in sequences))


def acked(*sequences: int) -> Acked:
    return Acked("a.1", P, tuple((sequence, 0) for sequence in sequences))


def saved(checkpoint: Checkpoint) -> Saved:
    return Saved("a.1", P, checkpoint)


def called(operation: events.LeaseOperation, error: str | None = None) -> Reported:
    return reported(events.LeaseStoreCalled(operation, P, 0.1, error))


EVENT = reported(events.EventReceived(P, 1, 100, 0, None))
ISOLATED = reported(events.ShardIsolated(P, 1.0, "isolate_shard"))
FOUND = reported(events.ConsumerReady("sim", "arn", registered=False))
REGISTERED = reported(events.ConsumerReady("sim", "arn", registered=True))
SPLIT, MERGE = Resharded((P,), (CHILD, OTHER)), Resharded((P, Q), (CHILD,))
SILENT = "accepted, but no event within 35 s, and no data for 35 s"

CASES: dict[str, list[Line]] = {
    "R1.merge_child_waited": [created(P), created(Q), MERGE, created(CHILD)],
    "R1.parent_without_lease": [created(P), SPLIT, Deleted("a.1", P), opened(CHILD)],
    "R1.child_ignores_latest": [created(P, LATEST), SPLIT, created(CHILD)],
    "R1.resharded_before_its_lease": [SPLIT],
    "R1.distributed": [opened(P), Acted(DISTRIBUTED)],
    "R1.distributed_by_key_again": [opened(P), Acted(DISTRIBUTED), Acted(BY_KEY)],
    "R1.keyless_by_fan_out": [*KEYLESS, opened(P), attempted(), handled(7)],
    "R1.keyless_by_polling": [*KEYLESS, opened(P), polled(), handled(7)],
    "R2.shard_finished": [opened(P), Closed("a.1", P, is_finished=True)],
    "R2.second_parent_of_merge": [MERGE, ChildrenSaved(P, (CHILD,)), ChildrenSaved(Q, (CHILD,))],
    "R2.end_written_again": [SPLIT, ChildrenSaved(P, (CHILD, OTHER)), ChildrenSaved(P, (CHILD, OTHER))],
    "R2.shard_finished_by_polling": [opened(P), polled(), Closed("a.1", P, is_finished=True)],
    "R3.acked_out_of_order": [opened(P), acked(8), acked(7)],
    "R3.ack_held_back": [*AGGREGATE, opened(P), acked(9), saved(Checkpoint("7", 2))],
    "R3.idle_progress": [*AGGREGATE, opened(P), acked(7), saved(Checkpoint("8"))],
    "R3.inside_aggregate": [*AGGREGATE, opened(P), saved(INSIDE)],
    "R4.first_attempt_failed": [opened(P), attempted("throttled")],
    "R4.pinned_latest_failed": [created(P, LATEST), opened(P, LATEST), attempted("throttled")],
    "R4.at_time_failed": [opened(P, TIME), attempted("throttled")],
    "R4.started_at_time": [Positioned(20), Put(P, (7, 0), "k", 0, 19), created(P, TIME), opened(P, TIME)],
    "R4.started_at_time_again": [opened(P, TIME), Crashed("a.1", "a"), opened(P, TIME)],
    "R4.shard_ended_before_time": [SPLIT, created(CHILD, TIME)],
    "R4.shard_taken_along": [Positioned(20), Resharded((P,), (CHILD, OTHER), 19), created(P, TIME)],
    "R4.resubscribed": [opened(P), attempted(), EVENT, ended("expired"), attempted()],
    "R4.iterator_replaced": [polled("expired_iterator")],
    "R5.started_at_a_checkpoint": [*AGGREGATE, opened(P, Checkpoint("7", 2))],
    "R5.started_inside_aggregate": [*AGGREGATE, opened(P, INSIDE)],
    "R5.keyless_aggregate": [*KEYLESS, opened(P), handled(7)],
    **{name: [Lived(name)] for name in MARKS if name.startswith(("R5.expired", "R5.retention", "R5.idle"))},
    "R6.waited_for_budget": [attempted(waited=0.5)],
    "R6.renewal_overdue": [opened(P), attempted(waited=6.0), attempted(waited=5.0)],
    "R6.in_use": [attempted("ResourceInUseException")],
    "R6.throttled": [attempted("throttled")],
    "R6.accepted_without_event": [opened(P), attempted(), ended("silence", SILENT)],
    "R6.poll_throttled": [polled("throttled")],
    "R6.fan_out_denied": [reported(events.ReadModeChanged("polling", "AccessDeniedException"))],
    "R6.fan_out_without_consumer": [reported(events.ReadModeChanged("polling", "consumer_limit"))],
    "R6.fan_out_restored": [reported(events.ReadModeChanged("fanout"))],
    "R7.renewed": [ended("renewed")],
    "R7.renewed_early": [ended("renewed"), ended("renewed", age=239.0)],
    "R7.renewal_failed": [opened(P), attempted(), attempted("throttled")],
    "R7.ended_during_renewal": [opened(P), attempted(), attempted(), ended("reset")],
    "R7.expired": [ended("expired")],
    "R8.silence": [ended("silence", SILENT), ended("silence", "no data of an event arrived for 35 s")],
    "R8.dead_connection": [
        reported(events.ConnectionClosed("memory", "transport", "memory did not respond to a PING within 10 s"))
    ],
    "R8.blocked_without_silence": [
        reported(events.DeliveryBlocked(P, 35.0)),
        reported(events.DeliveryBlocked(P, 35.1)),
    ],
    "R9.back_pressure": [reported(events.DeliveryBlocked(P, 0.1))],
    "R9.unsubscribed_when_idle": [ended("idle")],
    "R9.resumed_on_demand": [opened(P), attempted(), ended("idle"), attempted()],
    "R10.crashed_owner_replaced": [Held("a.1", "a", P, "a"), Crashed("a.1", "a"), Held("b.1", "b", P, "b")],
    "R10.handed_over": [Lost("a.1", P, "handed_over")],
    "R10.handoff_withdrawn": [called("withdraw", "lease_lost"), called("withdraw")],
    "R10.stolen": [called("steal", "lease_lost"), called("steal")],
    "R10.noticed_theft": [Lost("a.1", P, "taken")],
    "R10.gave_up": [Lost("a.1", P, "expired")],
    "R10.write_unanswered": [called("list", "lease_store_unavailable"), called("renew", "lease_store_unavailable")],
    "R10.deleted": [Deleted("a.1", P)],
    "R10.two_streams": [Acted(SECOND_STREAM)],
    "R10.two_applications": [Acted(SECOND_APPLICATION)],
    "R10.file_killed": [LeaseFileCrashed("a.1", "killed", "between two statements")],
    "R10.file_power_failed": [LeaseFileCrashed("a.1", "power_failed", "between two statements")],
    "R10.file_commit_lost": [LeaseFileCrashed("a.1", "killed", "in a commit, which is lost")],
    "R10.file_commit_kept": [LeaseFileCrashed("a.1", "power_failed", "in a commit, which is kept")],
    "R10.file_checkpoint": [LeaseFileCrashed("a.1", "killed", "in a checkpoint")],
    "R11.retry": [failed("retry")],
    "R11.split": [failed("split")],
    "R11.skip": [failed("skip")],
    "R11.dead_letter": [failed("dead_letter")],
    "R11.isolate": [ISOLATED],
    "R11.stop": [failed("stop")],
    "R11.refused_dead_lettered": [Refused("a.1", P, ((7, 0),), "dead_lettered")],
    "R11.refused_skipped": [Refused("a.1", P, ((7, 0),), "skipped")],
    "R11.refused_isolated": [Refused("a.1", P, (), "isolated")],
    "R11.refused_crashed": [opened(P), Refused("a.1", P, ((7, 0),), "dead_lettered"), Crashed("a.1", "a")],
    "R11.read_after_isolation": [opened(P), ISOLATED, opened(P)],
    "R12.sink_ahead": [opened(P), Repositioned("a.1", P, INSIDE)],
    "R12.waited_for_lock": [Waited("a.1", P)],
    "R12.fenced": [opened(P), Closed("a.1", P, is_finished=False, error="sink_closed")],
    **{
        f"R12.disk_{what}": [Disked("a.1", what)]
        for what in ("full", "error", "killed", "power_failed", "compacted", "expired")
    },
    "R12.rotted_sealed": [Rotted("sealed")],
    "R12.rotted_newest": [Rotted("newest")],
    "R12.rotted_catalog": [Rotted("catalog")],
    "R12.rotted_reader": [Rotted("reader")],
    "R13.registered": [FOUND, REGISTERED],
    "R13.registered_again": [REGISTERED, FOUND, REGISTERED],
    "R13.found": [REGISTERED, FOUND],
    "R13.not_found": [attempted("ResourceNotFoundException")],
    "R14.crashed_while_reading": [opened(P), Crashed("a.1", "a")],
    "R14.stopped_gracefully": [Exited("a.1", "HandlerError"), Exited("a.1")],
    "R14.saved_after_failure": [*AGGREGATE, opened(P), acked(7), failed("stop"), saved(Checkpoint("7"))],
    **{name: [Lived(name)] for name in MARKS if name.startswith("R15.")},
    "R16.without_credentials": [opened(P), attempted("credentials")],
    "R16.credentials_again": [opened(P), attempted("credentials"), attempted()],
    "R16.clock_corrected": [Acted(CORRECTED)],
    "R16.denied_while_read": [opened(P), attempted(), EVENT, ended("reset"), attempted("AccessDeniedException")],
    "R17.put_again": [Aggregated(CHILD, 7, 0, is_put_again=True), Aggregated(CHILD, 8, 1, is_put_again=True)],
    "R17.put_again_after_generations": [
        Aggregated(CHILD, 7, 1, is_put_again=True, generations=1),
        Aggregated(CHILD, 8, 1, is_put_again=True, generations=2),
    ],
    "R17.filtered": [filtered(AggregateMode.FILTER), filtered(AggregateMode.DEDUPLICATE)],
    "R17.foreign": [Aggregated(P, 7, 0), Aggregated(P, 8, 1)],
    "R17.foreign_in_child": [SPLIT, Aggregated(P, 7, 1), Aggregated(CHILD, 8, 1)],
    "R17.all_filtered": [filtered(AggregateMode.DEDUPLICATE), filtered(AggregateMode.FILTER)],
}
"""For each mark a story whose last line reaches it."""


def marks_of(lines: list[Line]) -> Coverage:
    coverage = Coverage(SubscriptionTiming())
    coverage.add_all(lines)
    return coverage


def test_each_mark_has_a_story() -> None:
    assert list(CASES) == list(MARKS)


@pytest.mark.parametrize("mark", CASES)
def test_the_last_line_of_a_story_reaches_its_mark(mark: str) -> None:
    before, whole = marks_of(CASES[mark][:-1]), marks_of(CASES[mark])
    assert whole.counts[mark] == before.counts[mark] + 1
    assert whole.reached <= MARKS.keys()


@pytest.mark.parametrize(
    ("mark", "story"),
    [
        ("R1.merge_child_waited", [created(P), created(Q), saved(END), MERGE, Saved("a.1", Q, END), created(CHILD)]),
        ("R1.parent_without_lease", [created(P), SPLIT, opened(CHILD)]),
        ("R1.child_ignores_latest", [created(P), SPLIT, created(CHILD)]),
        ("R1.resharded_before_its_lease", [created(P), SPLIT]),
        ("R1.distributed", [Acted(DISTRIBUTED)]),
        ("R1.keyless_by_fan_out", [*AGGREGATE, opened(P), attempted(), handled(7)]),
        ("R1.keyless_by_polling", [*KEYLESS, opened(P), polled(), attempted(), handled(7)]),
        ("R5.keyless_aggregate", [*AGGREGATE, KEYLESS[0], Put(P, (8, 0), "auto9", 0, has_key=False), handled(8)]),
        ("R2.shard_finished_by_polling", [opened(P), polled(), attempted(), Closed("a.1", P, is_finished=True)]),
        ("R3.idle_progress", [*AGGREGATE, opened(P), saved(Checkpoint("7", 2))]),
        ("R4.first_attempt_failed", [opened(P), attempted(), EVENT, ended("reset"), attempted("throttled")]),
        ("R4.at_time_failed", [opened(P), attempted("throttled")]),
        ("R4.started_at_time", [Positioned(20), Put(P, (7, 0), "k", 0, 20), created(P, TIME), opened(P, TIME)]),
        ("R4.started_at_time_again", [opened(P, TIME), Crashed("a.1", "a"), opened(P, Checkpoint("7"))]),
        ("R4.shard_ended_before_time", [created(P, TIME), SPLIT, created(CHILD)]),
        ("R4.shard_taken_along", [Positioned(20), Resharded((P,), (CHILD, OTHER), 20), created(P, TIME)]),
        ("R4.resubscribed", [opened(P), attempted(), ended("reset"), attempted()]),
        ("R5.started_inside_aggregate", [*AGGREGATE, opened(P, Checkpoint("7", 2))]),
        ("R7.ended_during_renewal", [opened(P), attempted(), ended("reset")]),
        ("R10.crashed_owner_replaced", [Held("a.1", "a", P, "a"), Held("b.1", "b", P, "b")]),
        ("R14.crashed_while_reading", [opened(P), Closed("a.1", P, is_finished=True), Crashed("a.1", "a")]),
        ("R14.stopped_gracefully", [Acted("finish"), Exited("a.1")]),
        ("R17.foreign", [Aggregated(P, 7, 1, is_put_again=True)]),
        ("R17.put_again", [Aggregated(P, 7, 1)]),
        ("R14.saved_after_failure", [*AGGREGATE, opened(P), failed("retry"), saved(Checkpoint("7"))]),
    ],
)
def test_a_similar_story_does_not_reach_the_mark(mark: str, story: list[Line]) -> None:
    assert mark not in marks_of(story).reached


def test_each_rule_has_a_mark_and_what_no_world_reaches_is_shown_by_a_test() -> None:
    rules = re.findall(r"^\| (R\d+) ", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert {name.partition(".")[0] for name in MARKS} == set(rules)
    assert not MARKS.keys() & ELSEWHERE.keys()
    for name, elsewhere in ELSEWHERE.items():
        path, function = elsewhere.test.split("::")
        assert re.search(rf"def {function}\(", (ROOT / path).read_text()), name


@pytest.mark.parametrize(
    ("seeds", "missing", "status"),
    [
        (REQUIRED_SEEDS, "R5.started_inside_aggregate", 1),
        (REQUIRED_SEEDS, None, 0),
        (REQUIRED_SEEDS - 1, "R11.skip", 0),
    ],
)
def test_a_large_run_that_never_reaches_a_mark_fails(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    seeds: int,
    missing: str | None,
    status: int,
) -> None:
    def reach(seed: int) -> Outcome:
        marks = frozenset(MARKS) - {missing} if seed else frozenset[str]()
        return Outcome(seed, (), 1, 0, 0, Tally(), 0.1, frozenset(name for name in marks if name))

    monkeypatch.setattr(command, "run", reach)
    assert command.main(["--seeds", str(seeds), "--jobs", "1"]) == status
    out, err = capsys.readouterr()
    summary = json.loads(out.splitlines()[-1])
    assert summary["marks"] == {name: 0 if name == missing else seeds - 1 for name in MARKS}
    assert summary["marks_never_reached"] == [name for name in (missing,) if name]
    assert ("did not reach" in err) == bool(status)
    assert missing is None or f"{missing:28} {MARKS[missing]}" in out
