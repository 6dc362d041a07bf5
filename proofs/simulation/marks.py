"""Coverage marks: the rare branches of rules R1 to R16 that the worlds of a simulation must reach.

A check that never fails proves little if the situation that it guards against never occurs. So each mark names a
situation, and a run of many seeds fails if one of them occurred in no world. `coverage` finds them in the stories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

REQUIRED_SEEDS: Final = 2000
"""A run of at least this many seeds must reach every mark."""

MARKS: Final[dict[str, str]] = {
    "R1.merge_child_waited": "a merge child had a lease while one of its parents was still read",
    "R1.parent_without_lease": "a shard started although a parent has no lease: it was deleted, or never read",
    "R1.child_ignores_latest": "a child was created at TRIM_HORIZON, although the application starts at LATEST",
    "R1.resharded_before_its_lease": "a shard was split or merged before it had a lease",
    "R1.distributed": "the strategy of a stream changed to AUTO while it was read",
    "R1.distributed_by_key_again": "and back to USER_PARTITION_KEY",
    "R1.keyless_by_fan_out": "a record without a partition key took effect, of a shard that was read by fan-out",
    "R1.keyless_by_polling": "the same by polling",
    "R2.shard_finished": "a shard was read to its end",
    "R2.second_parent_of_merge": "the end of a merge's second parent found the lease of the child",
    "R2.end_written_again": "the steps of a shard's end were interrupted, and repeated",
    "R2.shard_finished_by_polling": "the same by polling",
    "R3.acked_out_of_order": "a record was acked before an earlier one of its shard",
    "R3.ack_held_back": "a checkpoint was saved below a record that was acked",
    "R3.idle_progress": "a continuation was saved that is no record's position",
    "R3.inside_aggregate": "a checkpoint was saved inside a KPL aggregate",
    "R4.first_attempt_failed": "the first subscribe of a shard that starts without a position failed",
    "R4.pinned_latest_failed": "the same of a shard that starts at LATEST, pinned to a time",
    "R4.at_time_failed": "the same of a shard that starts AT_TIMESTAMP",
    "R4.started_at_time": "a shard was started AT_TIMESTAMP, and has records that were put before that time",
    "R4.started_at_time_again": "such a start was repeated, since no progress had been saved",
    "R4.shard_ended_before_time": "a shard had ended before the time of AT_TIMESTAMP, and is not read",
    "R4.shard_taken_along": "a shard got a lease although it had ended just before the time of AT_TIMESTAMP",
    "R4.resubscribed": "a shard was subscribed again after its last continuation",
    "R4.iterator_replaced": "an iterator expired while a shard was polled, and another one took its place",
    "R5.started_at_a_checkpoint": "a shard was started at the checkpoint of its lease",
    "R5.started_inside_aggregate": "the same inside a KPL aggregate, whose first records were dropped",
    "R5.keyless_aggregate": "user records took effect of an aggregate without a partition key",
    "R5.expired_unread": "records expired before they were read, and that was reported",
    "R5.expired_unread_fanout": "the same by fan-out",
    "R5.expired_unread_polling": "the same by polling",
    "R5.expired_unread_auto": "the same by either",
    "R5.retention_decreased": "the retention period was decreased while nobody read the stream",
    "R5.idle_and_not_expired": "a shard was idle for longer than the retention period, and nothing was reported",
    "R6.waited_for_budget": "a subscribe waited for the budget of the consumer",
    "R6.renewal_overdue": "a renewal waited so long that it came before shards without a subscription",
    "R6.in_use": "the service refused a subscribe within 5 s of the last success",
    "R6.throttled": "the service throttled a subscribe",
    "R6.accepted_without_event": "a subscribe was accepted, and no event followed",
    "R6.poll_throttled": "the service throttled a call of polling",
    "R6.fan_out_denied": "SubscribeToShard was denied, and the shards were polled",
    "R6.fan_out_without_consumer": "the fan-out consumer could not be registered, and the shards were polled",
    "R6.fan_out_restored": "polling ended, since fan-out was possible again",
    "R7.renewed": "a subscription took over from the last one",
    "R7.renewed_early": "the same before its age, because its connection received GOAWAY",
    "R7.renewal_failed": "a subscribe failed while the live subscription continued",
    "R7.ended_during_renewal": "one of two subscriptions of a shard failed while both were open",
    "R7.expired": "a subscription reached the end of its life",
    "R8.silence": "the live subscription was silent",
    "R8.dead_connection": "a connection did not answer PING",
    "R8.blocked_without_silence": "a reader was busy for longer than the silence timeout, and that was no silence",
    "R9.back_pressure": "an event waited for its reader",
    "R9.unsubscribed_when_idle": "a subscription without demand was given up",
    "R9.resumed_on_demand": "such a shard was subscribed again",
    "R10.crashed_owner_replaced": "a worker took the lease of one that had crashed",
    "R10.handed_over": "a lease moved by a graceful hand-off",
    "R10.handoff_withdrawn": "a requested hand-off was withdrawn",
    "R10.stolen": "a lease was taken from a worker that was alive",
    "R10.noticed_theft": "a worker found that another one had taken its lease",
    "R10.gave_up": "a worker that could not renew a lease stopped reading by itself",
    "R10.write_unanswered": "a write to the lease store had no answer, or failed",
    "R10.deleted": "the lease of a finished shard was deleted",
    "R10.two_streams": "two streams were read by the same processes, with one application name",
    "R10.two_applications": "two applications read one stream in the same processes",
    "R10.file_killed": "a worker was killed between two statements on the SQLite file of the leases",
    "R10.file_power_failed": "the power failed between two such statements",
    "R10.file_commit_lost": "a crash during a commit to that file left nothing of it",
    "R10.file_commit_kept": "a crash during such a commit left all of it, and its worker did not know",
    "R10.file_checkpoint": "a crash came during a checkpoint of the WAL of that file",
    "R11.retry": "a failed call was retried",
    "R11.split": "a failed batch was split, to find the record that fails",
    "R11.skip": "a record was skipped by the policy",
    "R11.dead_letter": "a record was dead-lettered by the policy",
    "R11.isolate": "a shard was isolated by the policy or by its reader",
    "R11.stop": "a failure stopped its worker",
    "R11.refused_dead_lettered": "a record that the sink refuses was written to the dead letters",
    "R11.refused_skipped": "such a record was skipped, and reported",
    "R11.refused_isolated": "such a record isolated its shard",
    "R11.refused_crashed": "a worker crashed between a dead letter and the ack of its record",
    "R11.read_after_isolation": "an isolated shard was read again",
    "R12.sink_ahead": "the position of a sink was ahead of the lease's checkpoint, and won",
    "R12.waited_for_lock": "a second writer waited until the first one had closed the sink",
    "R12.fenced": "a commit was refused, because another writer had opened the shard",
    "R12.disk_full": "the log's disk was full",
    "R12.disk_error": "a call of the log's disk failed",
    "R12.disk_killed": "a worker was killed between two calls of the log's disk",
    "R12.disk_power_failed": "the power failed between two calls of the log's disk",
    "R12.disk_compacted": "segments of the log were compacted while it was written",
    "R12.disk_expired": "segments of the log expired while it was written",
    "R12.rotted_sealed": "a bit flipped in a segment of the log that is not the newest",
    "R12.rotted_newest": "a bit flipped in the newest segment of a partition",
    "R12.rotted_catalog": "a bit flipped in the catalog of a topic",
    "R12.rotted_reader": "a bit flipped in the offsets of a reader",
    "R13.registered": "a worker registered the fan-out consumer",
    "R13.registered_again": "the fan-out consumer disappeared, and a worker registered it again",
    "R13.found": "a worker found the fan-out consumer registered by another one",
    "R13.not_found": "a subscribe failed with ResourceNotFoundException",
    "R14.crashed_while_reading": "a worker crashed while it read shards",
    "R14.stopped_gracefully": "a worker was stopped while the world went on, and ended without an error",
    "R14.saved_after_failure": "acked records were saved after the failure of their shard's reader",
    "R15.recreated_stopped": "a stream was deleted and created again while nobody read it",
    "R15.recreated_running": "the same while it was read",
    "R15.recreated_fewer": "such a stream has fewer shards than its predecessor",
    "R15.recreated_same": "it has as many",
    "R15.recreated_more": "it has more",
    "R15.recreated_fanout": "such a stream is read by fan-out",
    "R15.recreated_polling": "it is read by polling",
    "R15.recreated_auto": "it is read by either",
    "R15.recreated_after_reshard": "its predecessor was split",
    "R15.refused": "every worker refused such a stream",
    "R15.refused_without_its_time": "the same, although leases or service did not say when it was created",
    "R15.read_as_new": "such a stream was read from its beginning, since nothing of its predecessor had been read",
    "R15.healed": "such a stream was read whole after its leases were deleted",
    "R15.taken_over": "leases that did not name their stream were those of the present one, and went on",
    "R16.without_credentials": "a call failed since credentials could not be obtained",
    "R16.credentials_again": "a shard was subscribed or polled again after that",
    "R16.clock_corrected": "a signature was refused for its time, and the call repeated at the service's time",
    "R16.denied_while_read": "the permission to read a shard was missing for a while, after it had been read",
    "R17.put_again": "the KPL put records again, since their aggregate had arrived in a child of the predicted shard",
    "R17.put_again_after_generations": "the same in a younger descendant",
    "R17.filtered": "the records that the KPL put again were filtered out of that aggregate",
    "R17.foreign": "an aggregate of another producer had records with hash keys outside the range of its shard",
    "R17.foreign_in_child": "the same in a shard that has parents, whose range may have them",
    "R17.all_filtered": "a consumer with the mode filter filtered out such records of any aggregate",
}
"""What must be reached: the name of each mark, which starts with its rule, and its meaning."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A branch that no world can reach. `why`: the reason. `test`: the test that shows it, as `file::function`."""

    why: str
    test: str


ELSEWHERE: Final[dict[str, Elsewhere]] = {
    "R2.one_without_the_other": Elsewhere(
        "the fake sends no event with one of end and children alone, as AWS does not",
        "tests/efo/protocol/test_messages.py::test_an_invalid_event_is_rejected",
    ),
    "R4.at_future_timestamp": Elsewhere(
        "the service rejects a time in its future, so no world starts at one",
        "tests/efo/testing/state/test_subscriptions.py::test_an_invalid_position_is_rejected",
    ),
    "R6.one_call_per_second": Elsewhere(
        "no event says why a subscribe waited: for the interval of its shard or for the budget of all",
        "tests/efo/protocol/test_pacing.py::test_a_shard_subscribes_once_per_second",
    ),
    "R8.event_timeout": Elsewhere(
        "the slowest peer of a world sends an event in less than the 300 s that one may take",
        "tests/efo/protocol/test_subscription.py::test_every_part_of_an_event_restarts_it_up_to_the_event_timeout",
    ),
    "R9.late_data": Elsewhere(
        "no event reports the data that arrive after a stream was reset",
        "tests/efo/kinesis/test_connection.py::test_late_data_of_a_closed_stream_does_not_use_up_the_connection_window",
    ),
    "R11.dead_letter_failed": Elsewhere(
        "the dead-letter function of a world does not fail",
        "tests/efo/consumer/handlers/test_handler.py::"
        "test_a_dead_letter_that_cannot_be_stored_isolates_the_shard_and_is_not_lost",
    ),
    "R11.service_error_isolated": Elsewhere(
        "the faults of a world pass, and no error of the service is final",
        "tests/efo/consumer/test_isolation.py::"
        "test_a_shard_that_the_service_rejects_is_isolated_and_the_others_are_read",
    ),
    "R13.shard_gone": Elsewhere(
        "a world is shorter than the 24 hours after which a shard may disappear",
        "tests/efo/kinesis/test_registration.py::test_a_shard_that_is_not_listed_is_gone",
    ),
    "R14.each_await": Elsewhere(
        "a world cancels at random moments, not at each await",
        "tests/efo/kinesis/test_cancellation.py::"
        "test_a_shard_subscription_loses_no_record_when_cancelled_at_each_await",
    ),
}
"""The branches of the rules that no mark can show."""


def never_reached(counts: Mapping[str, int]) -> list[str]:
    """Return the marks that no world reached. `counts`: the number of worlds that reached each mark."""
    return [name for name in MARKS if not counts.get(name)]


def count(worlds: Iterable[frozenset[str]]) -> dict[str, int]:
    """Return how many worlds reached each mark. `worlds`: the marks of each world."""
    counts = dict.fromkeys(MARKS, 0)
    for marks in worlds:
        for name in marks:
            counts[name] += 1
    return counts
