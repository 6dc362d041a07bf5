"""The comparison of what the workers of both libraries reported detects each fault."""

from dataclasses import replace

import pytest

from efo.model import Checkpoint, Lease, Record
from proofs.interop.clients.load import data_of, key_of
from proofs.interop.kcl.comparison import EFO, KCL, Moves, ReportedRecord, compare, line_of, record_of

SHARD = "shardId-000000000000"
RECORDS = [Record(str(100 + n), 0.0, data_of(n), key_of(0)) for n in range(6)]
TRUTH = {SHARD: RECORDS}


def reported(number, at):
    record = RECORDS[number]
    return ReportedRecord(at, SHARD, record.sequence_number, record.partition_key, record.data)


def lease(holder, checkpoint=Checkpoint.TRIM_HORIZON):
    return Lease(SHARD, checkpoint, owner=holder)


@pytest.fixture
def moves():
    """Return the moves of a lease: from kcl-1 to efo-1 with record 1 checkpointed, and back with record 3."""
    moves = Moves()
    scans = [
        ("kcl-1", Checkpoint.TRIM_HORIZON),
        ("kcl-1", Checkpoint("101")),
        (None, Checkpoint("101")),
        ("efo-1", Checkpoint.TRIM_HORIZON),
    ]
    scans += [("efo-1", Checkpoint("103")), ("kcl-1", Checkpoint("103"))]
    for at, (holder, checkpoint) in enumerate(scans):
        moves.add_scan([lease(holder, checkpoint)], at * 10)
    return moves


def lines_by_worker():
    """Return what each worker reports in a run that passes: record 4 is duplicated."""
    return {
        "kcl-1": [reported(0, 1), reported(1, 5), reported(4, 60), reported(5, 61)],
        "efo-1": [reported(2, 31), reported(3, 32), reported(4, 33)],
    }


def test_a_correct_run_passes(moves):
    comparison = compare(lines_by_worker(), TRUTH, moves)
    assert comparison.passed
    assert (comparison.records, comparison.duplicates) == (6, 1)
    assert (comparison.leases_moved_to_efo, comparison.leases_moved_to_kcl) == (1, 1)


def test_a_lost_record_fails(moves):
    lines = lines_by_worker()
    lines["kcl-1"].pop(0)
    comparison = compare(lines, TRUTH, moves)
    assert (comparison.lost, comparison.passed) == (1, False)


def test_a_record_with_other_data_counts_as_lost(moves):
    lines = lines_by_worker()
    lines["kcl-1"][0] = ReportedRecord(1, SHARD, "100", RECORDS[0].partition_key, data_of(7))
    assert compare(lines, TRUTH, moves).lost == 1


def test_the_order_is_that_of_the_times_of_arrival(moves):
    lines = lines_by_worker()
    lines["efo-1"][0] = reported(2, 70)
    comparison = compare(lines, TRUTH, moves)
    assert (comparison.lost, comparison.order_violations, comparison.passed) == (0, 1, False)


def test_a_duplicate_is_not_an_order_violation(moves):
    lines = lines_by_worker()
    lines["efo-1"].append(reported(2, 34))
    comparison = compare(lines, TRUTH, moves)
    assert (comparison.order_violations, comparison.duplicates) == (0, 2)


def test_a_new_holder_that_starts_before_the_checkpoint_fails(moves):
    lines = lines_by_worker()
    lines["efo-1"].insert(0, reported(1, 30))
    comparison = compare(lines, TRUTH, moves)
    assert (comparison.reread, comparison.passed) == (1, False)


def test_leases_that_did_not_move_both_ways_fail(moves):
    assert not replace(compare(lines_by_worker(), TRUTH, moves), leases_moved_to_kcl=0).passed
    assert not compare(lines_by_worker(), TRUTH, Moves()).passed


def test_a_hand_off_counts_as_a_move_when_the_holder_releases_the_lease():
    moves = Moves()
    requested = Lease(SHARD, Checkpoint.TRIM_HORIZON, owner="efo-1", checkpoint_owner="kcl-1")
    moves.add_scan([lease("kcl-1")], 0)
    moves.add_scan([requested], 1)
    assert moves.count(KCL, EFO) == 0
    moves.add_scan([replace(requested, checkpoint_owner=None)], 2)
    assert moves.count(KCL, EFO) == 1


def test_a_finished_lease_does_not_count_as_moved():
    moves = Moves()
    moves.add_scan([lease("kcl-1")], 0)
    moves.add_scan([lease("efo-1", Checkpoint.SHARD_END)], 1)
    assert not moves.moves


def test_a_line_is_decoded_to_the_same_record():
    assert record_of(line_of(reported(3, 7)).rstrip()) == reported(3, 7)
