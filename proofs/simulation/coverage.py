"""Finds the coverage marks in the story of a world. Pure: the library reports nothing for the sake of marks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Final

from efo import events
from efo.errors import AccessDeniedError, CredentialsError
from efo.model import Checkpoint
from efo.protocol.pacing import RENEWAL_OVERDUE_AFTER
from efo.protocol.subscription import SubscriptionTiming
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
    Mark,
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


@dataclass(slots=True)
class _Shard:
    """What is known of a shard. `last_of`: the last sub-sequence number of each sequence number that was put.

    `keyless`: the sequence numbers of those without a partition key.
    `first_put`, `closed_at`: milliseconds by the clock of the service. `starts`: how often it was started AT_TIMESTAMP.
    """

    parents: tuple[str, ...] = ()
    first_put: int | None = None
    closed_at: int | None = None
    last_of: dict[int, int] = field(default_factory=dict)
    keyless: set[int] = field(default_factory=set)
    has_lease: bool = False
    was_deleted: bool = False
    is_at_latest: bool = False
    starts: int = 0
    is_finished: bool = False
    children_saved: bool = False
    holder: str | None = None


@dataclass(slots=True)
class _Task:
    """A shard task of a worker process.

    `checkpoint`: where it started. `open`: how many of its subscriptions are open. `acked`: the last record acked.
    `is_idle`: its subscription was given up. `has_failed`: its handler has failed for the last time.
    `is_polled`: its last call was one of polling. `lacks_credentials`: its last call had none.
    `has_dead_letters`: records that are not acked are in the dead letters.
    """

    checkpoint: Checkpoint
    open: int = 0
    has_events: bool = False
    acked: Mark = (-1, 0)
    is_idle: bool = False
    has_failed: bool = False
    has_dead_letters: bool = False
    is_polled: bool = False
    lacks_credentials: bool = False


_PLANNED: Final = ("renewed", "shard_end", "lease_lost", "shutdown", "idle", "seek")
"""Why a subscription ends without a failure."""


class Coverage:
    """The marks of one world: `add` each line of its story. `reached`: the names of the marks.

    `timing`: that of the world's subscriptions.
    """

    def __init__(self, timing: SubscriptionTiming) -> None:
        self.counts = Counter[str]()
        self._timing = timing
        self._shards: dict[str, _Shard] = {}
        self._tasks: dict[tuple[str, str], _Task] = {}
        self._crashed: set[str] = set()
        self._isolated: set[str] = set()
        self._is_registered = False
        self._is_finishing = False
        self._at_millis = 0

    @property
    def reached(self) -> frozenset[str]:
        """The marks that were reached."""
        return frozenset(self.counts)

    def add_all(self, lines: Iterable[Line]) -> frozenset[str]:
        """Add the lines of a story, and return the marks."""
        for line in lines:
            self.add(line)
        return self.reached

    def _mark(self, name: str, condition: object = True) -> None:  # noqa: FBT002 - a condition, not an option
        if condition:
            self.counts[name] += 1

    def _shard(self, shard_id: str) -> _Shard:
        return self._shards.setdefault(shard_id, _Shard())

    # --- line by line --------------------------------------------------------------------------------------

    @singledispatchmethod
    def add(self, _line: object) -> None:
        """Add a line. Kinds of lines that are not registered below have no mark."""

    @add.register
    def _(self, line: Put) -> None:
        sequence, sub = line.mark
        shard = self._shard(line.shard)
        shard.last_of[sequence] = sub
        if not line.has_key:
            shard.keyless.add(sequence)
        if shard.first_put is None:
            shard.first_put = line.millis

    @add.register
    def _(self, line: Aggregated) -> None:
        if line.is_put_again:
            self._mark("R17.put_again", line.outside)
            self._mark("R17.put_again_after_generations", line.outside and line.generations > 1)
        else:
            self._mark("R17.foreign", line.outside)
            self._mark("R17.foreign_in_child", line.outside and self._shard(line.shard).parents)

    @add.register
    def _(self, line: Handled) -> None:
        shard, task = self._shard(line.shard), self._tasks.get((line.worker, line.shard))
        keyless = [mark for mark in line.marks if mark[0] in shard.keyless]
        self._mark("R1.keyless_by_fan_out", keyless and task and not task.is_polled)
        self._mark("R1.keyless_by_polling", keyless and task and task.is_polled)
        self._mark("R5.keyless_aggregate", any(shard.last_of[sequence] for sequence, _ in keyless))

    @add.register
    def _(self, line: Positioned) -> None:
        self._at_millis = line.millis

    @add.register
    def _(self, line: Resharded) -> None:
        for parent in line.parents:
            self._mark("R1.resharded_before_its_lease", not self._shard(parent).has_lease)
            self._shard(parent).closed_at = line.millis
        for child in line.children:
            self._shard(child).parents = line.parents

    @add.register
    def _(self, line: Created) -> None:
        shard = self._shard(line.shard)
        shard.has_lease, shard.is_at_latest = True, line.checkpoint == Checkpoint.LATEST
        parents = [self._shard(parent) for parent in shard.parents]
        self._mark("R1.merge_child_waited", len(parents) > 1 and not all(parent.is_finished for parent in parents))
        at_latest = any(other.is_at_latest for other in self._shards.values())
        self._mark("R1.child_ignores_latest", at_latest and line.checkpoint == Checkpoint.TRIM_HORIZON)
        if line.checkpoint == Checkpoint.AT_TIMESTAMP:
            self._mark("R4.shard_ended_before_time", shard.parents)
            has_ended = shard.closed_at is not None and shard.closed_at < self._at_millis
            self._mark("R4.shard_taken_along", has_ended)

    @add.register
    def _(self, line: ChildrenSaved) -> None:
        shard = self._shard(line.shard)
        self._mark("R2.end_written_again", shard.children_saved)
        parents = {parent for child in line.children for parent in self._shard(child).parents} - {line.shard}
        self._mark("R2.second_parent_of_merge", any(self._shard(parent).children_saved for parent in parents))
        shard.children_saved = True

    @add.register
    def _(self, line: Opened) -> None:
        shard = self._shard(line.shard)
        self._tasks[line.worker, line.shard] = _Task(line.checkpoint)
        self._mark(
            "R1.parent_without_lease",
            any(not self._shards[parent].has_lease or self._shards[parent].was_deleted for parent in shard.parents),
        )
        if line.checkpoint == Checkpoint.AT_TIMESTAMP:
            has_older = shard.first_put is not None and shard.first_put < self._at_millis
            self._mark("R4.started_at_time", has_older)
            self._mark("R4.started_at_time_again", shard.starts)
            shard.starts += 1
        self._mark("R5.started_at_a_checkpoint", not line.checkpoint.is_sentinel)
        self._mark("R5.started_inside_aggregate", _is_inside_aggregate(shard, line.checkpoint))
        self._mark("R11.read_after_isolation", line.shard in self._isolated)
        self._isolated.discard(line.shard)

    @add.register
    def _(self, _line: Repositioned) -> None:
        self._mark("R12.sink_ahead")

    @add.register
    def _(self, _line: Waited) -> None:
        self._mark("R12.waited_for_lock")

    @add.register
    def _(self, line: Disked) -> None:
        self._mark(f"R12.disk_{line.what}")

    @add.register
    def _(self, line: Refused) -> None:
        self._mark(f"R11.refused_{line.outcome}")
        if line.outcome == "dead_lettered" and (task := self._tasks.get((line.worker, line.shard))):
            task.has_dead_letters = True

    @add.register
    def _(self, line: Rotted) -> None:
        self._mark(f"R12.rotted_{line.file}")

    @add.register
    def _(self, line: Lived) -> None:
        self._mark(line.what)

    @add.register
    def _(self, line: LeaseFileCrashed) -> None:
        self._mark(f"R10.file_{line.how}", line.where == "between two statements")
        self._mark("R10.file_commit_lost", line.where == "in a commit, which is lost")
        self._mark("R10.file_commit_kept", line.where == "in a commit, which is kept")
        self._mark("R10.file_checkpoint", line.where == "in a checkpoint")

    @add.register
    def _(self, line: Acked) -> None:
        if (task := self._tasks.get((line.worker, line.shard))) and line.marks:
            self._mark("R3.acked_out_of_order", min(line.marks) < task.acked)
            task.acked = max(task.acked, *line.marks)
            task.has_dead_letters = False

    @add.register
    def _(self, line: Saved) -> None:
        shard, task = self._shard(line.shard), self._tasks.get((line.worker, line.shard))
        if line.checkpoint == Checkpoint.SHARD_END:
            shard.is_finished = True
        elif task is not None and not line.checkpoint.is_sentinel:
            saved = (int(line.checkpoint.sequence_number), line.checkpoint.sub_sequence_number)
            self._mark("R3.ack_held_back", saved < task.acked)
            self._mark("R3.idle_progress", saved[0] not in shard.last_of)
            self._mark("R3.inside_aggregate", _is_inside_aggregate(shard, line.checkpoint))
            self._mark("R14.saved_after_failure", task.has_failed)

    @add.register
    def _(self, line: Held) -> None:
        shard = self._shard(line.shard)
        before, shard.holder = shard.holder, line.holder
        if before is not None and line.holder == line.worker_id != before:
            self._mark("R10.crashed_owner_replaced", before in self._crashed)

    @add.register
    def _(self, line: Lost) -> None:
        self._mark("R10.handed_over", line.reason == "handed_over")
        self._mark("R10.noticed_theft", line.reason == "taken")
        self._mark("R10.gave_up", line.reason in ("expired", "store"))

    @add.register
    def _(self, line: Deleted) -> None:
        self._shard(line.shard).was_deleted = True
        self._mark("R10.deleted")

    @add.register
    def _(self, line: Closed) -> None:
        task = self._tasks.pop((line.worker, line.shard), None)
        self._mark("R2.shard_finished", line.is_finished)
        self._mark("R2.shard_finished_by_polling", line.is_finished and task and task.is_polled)
        self._mark("R12.fenced", line.error in ("sink_closed", "sink_fenced"))

    @add.register
    def _(self, line: Crashed) -> None:
        self._crashed |= {line.worker, line.worker_id}
        reading = [key for key in self._tasks if key[0] == line.worker]
        self._mark("R14.crashed_while_reading", reading)
        self._mark("R11.refused_crashed", any(self._tasks[key].has_dead_letters for key in reading))
        for key in reading:
            del self._tasks[key]

    @add.register
    def _(self, line: Exited) -> None:
        self._mark("R14.stopped_gracefully", line.error is None and not self._is_finishing)

    @add.register
    def _(self, line: Acted) -> None:
        self._mark("R16.clock_corrected", line.what == CORRECTED)
        self._is_finishing |= line.what == "finish"
        self._mark("R1.distributed", line.what == DISTRIBUTED and self._tasks)
        self._mark("R1.distributed_by_key_again", line.what == BY_KEY and self._tasks)
        self._mark("R10.two_streams", line.what == SECOND_STREAM)
        self._mark("R10.two_applications", line.what == SECOND_APPLICATION)

    # --- diagnostic events ---------------------------------------------------------------------------------

    @add.register
    def _(self, line: Reported) -> None:
        self._add_event(line.event, line.worker)

    @singledispatchmethod
    def _add_event(self, _event: object, _worker: str) -> None:
        """Add an event. Kinds of events that are not registered below have no mark."""

    @_add_event.register
    def _(self, event: events.EventReceived, worker: str) -> None:
        if task := self._tasks.get((worker, event.shard_id)):
            task.has_events = True

    @_add_event.register
    def _(self, event: events.SubscribeAttempted, worker: str) -> None:
        shard, task = self._shard(event.shard_id), self._tasks.get((worker, event.shard_id))
        self._mark("R6.waited_for_budget", event.waited > 0)
        self._mark("R6.in_use", event.error_type == "ResourceInUseException")
        self._mark("R6.throttled", event.error_type == "throttled")
        self._mark("R13.not_found", event.error_type == "ResourceNotFoundException")
        if task is None:
            return
        task.is_polled = False
        self._mark_outage(task, event.error_type)
        if event.error_type is not None:
            is_first = task.checkpoint.is_sentinel and not task.has_events
            self._mark("R4.first_attempt_failed", is_first)
            self._mark("R4.pinned_latest_failed", is_first and shard.is_at_latest)
            self._mark("R4.at_time_failed", is_first and task.checkpoint == Checkpoint.AT_TIMESTAMP)
            self._mark("R7.renewal_failed", task.open)
            return
        self._mark("R4.resubscribed", task.has_events and not task.open)
        self._mark("R6.renewal_overdue", task.open and event.waited >= RENEWAL_OVERDUE_AFTER)
        self._mark("R9.resumed_on_demand", task.is_idle)
        task.is_idle = False
        task.open += 1

    @_add_event.register
    def _(self, event: events.PollAttempted, worker: str) -> None:
        self._mark("R4.iterator_replaced", event.error_type == "expired_iterator")
        self._mark("R6.poll_throttled", event.error_type == "throttled")
        if task := self._tasks.get((worker, event.shard_id)):
            task.is_polled = True
            self._mark_outage(task, event.error_type)

    def _mark_outage(self, task: _Task, error_type: str | None) -> None:
        self._mark("R16.without_credentials", error_type == CredentialsError.error_type)
        self._mark("R16.credentials_again", error_type is None and task.lacks_credentials)
        self._mark("R16.denied_while_read", error_type == AccessDeniedError.error_type and task.has_events)
        task.lacks_credentials = error_type == CredentialsError.error_type

    @_add_event.register
    def _(self, event: events.ReadModeChanged, _worker: str) -> None:
        self._mark("R6.fan_out_denied", event.error_type == "AccessDeniedException")
        self._mark("R6.fan_out_without_consumer", event.error_type == "consumer_limit")
        self._mark("R6.fan_out_restored", event.mode == "fanout")

    @_add_event.register
    def _(self, event: events.SubscriptionEnded, worker: str) -> None:
        task = self._tasks.get((worker, event.shard_id))
        is_renewed, is_new = event.reason == "renewed", event.detail.startswith("accepted, but no event")
        self._mark("R6.accepted_without_event", is_new)
        self._mark("R7.renewed", is_renewed)
        self._mark("R7.renewed_early", is_renewed and event.age < self._timing.renew_from)
        self._mark("R7.ended_during_renewal", task and task.open > 1 and event.reason not in _PLANNED)
        self._mark("R7.expired", event.reason == "expired")
        self._mark("R8.silence", event.reason == "silence" and not is_new)
        self._mark("R9.unsubscribed_when_idle", event.reason == "idle")
        if task is not None:
            task.open -= 1
            task.is_idle |= event.reason == "idle"

    @_add_event.register
    def _(self, event: events.DeliveryBlocked, _worker: str) -> None:
        self._mark("R9.back_pressure")
        self._mark("R8.blocked_without_silence", event.duration > self._timing.silence_timeout)

    @_add_event.register
    def _(self, event: events.ConnectionClosed, _worker: str) -> None:
        self._mark("R8.dead_connection", "did not respond to a PING" in event.detail)

    @_add_event.register
    def _(self, event: events.ConsumerReady, _worker: str) -> None:
        self._mark("R13.registered", event.registered)
        self._mark("R13.registered_again", event.registered and self._is_registered)
        self._mark("R13.found", not event.registered)
        self._is_registered = True

    @_add_event.register
    def _(self, event: events.LeaseStoreCalled, _worker: str) -> None:
        is_write, error = event.operation != "list", event.error_type
        self._mark("R10.write_unanswered", is_write and error == "lease_store_unavailable")
        self._mark("R10.handoff_withdrawn", event.operation == "withdraw" and error is None)
        self._mark("R10.stolen", event.operation == "steal" and error is None)

    @_add_event.register
    def _(self, event: events.HandlerFailed, worker: str) -> None:
        self._mark(f"R11.{event.action}")
        if task := self._tasks.get((worker, event.shard_id)):
            task.has_failed |= event.action in ("isolate", "stop")

    @_add_event.register
    def _(self, event: events.RecordsFiltered, _worker: str) -> None:
        self._mark("R17.filtered", event.mode == "deduplicate")
        self._mark("R17.all_filtered", event.mode == "filter")

    @_add_event.register
    def _(self, event: events.ShardIsolated, _worker: str) -> None:
        self._mark("R11.isolate")
        self._isolated.add(event.shard_id)


def _is_inside_aggregate(shard: _Shard, checkpoint: Checkpoint) -> bool:
    """Return whether records of the same aggregate come after this checkpoint."""
    if checkpoint.is_sentinel:
        return False
    return checkpoint.sub_sequence_number < shard.last_of.get(int(checkpoint.sequence_number), 0)
