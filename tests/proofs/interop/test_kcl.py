"""What the workers of both libraries said is judged: each fault must be seen."""

from dataclasses import replace

import pytest

from efo.model import SHARD_END, TRIM_HORIZON, Checkpoint, Lease, Record
from proofs.interop.clients.load import data_of, key_of
from proofs.interop.kcl.judgement import EFO, KCL, Heard, Moves, heard_of, judge, line_of

SHARD = "shardId-000000000000"
RECORDS = [Record(str(100 + n), 0.0, data_of(n), key_of(0)) for n in range(6)]
TRUTH = {SHARD: RECORDS}


def heard(number, at):
    record = RECORDS[number]
    return Heard(at, SHARD, record.sequence_number, record.partition_key, record.data)


def lease(holder, checkpoint=TRIM_HORIZON):
    return Lease(SHARD, checkpoint, owner=holder)


@pytest.fixture
def moves():
    """A lease goes from kcl-1 to efo-1, done up to record 1, and back, done up to record 3."""
    moves = Moves()
    looks = [("kcl-1", TRIM_HORIZON), ("kcl-1", Checkpoint("101")), (None, Checkpoint("101")), ("efo-1", TRIM_HORIZON)]
    looks += [("efo-1", Checkpoint("103")), ("kcl-1", Checkpoint("103"))]
    for at, (holder, checkpoint) in enumerate(looks):
        moves.look([lease(holder, checkpoint)], at * 10)
    return moves


def said():
    """What each worker said, if all is well: record 4 comes twice."""
    return {
        "kcl-1": [heard(0, 1), heard(1, 5), heard(4, 60), heard(5, 61)],
        "efo-1": [heard(2, 31), heard(3, 32), heard(4, 33)],
    }


def test_all_is_well(moves):
    verdict = judge(said(), TRUTH, moves)
    assert verdict.is_right
    assert (verdict.records, verdict.duplicates, verdict.leases_moved_to_efo, verdict.leases_moved_to_kcl) == (
        6,
        1,
        1,
        1,
    )


def test_a_lost_record_is_seen(moves):
    lines = said()
    lines["kcl-1"].pop(0)
    verdict = judge(lines, TRUTH, moves)
    assert (verdict.lost, verdict.is_right) == (1, False)


def test_a_record_that_came_with_other_data_is_lost(moves):
    lines = said()
    lines["kcl-1"][0] = Heard(1, SHARD, "100", RECORDS[0].partition_key, data_of(7))
    assert judge(lines, TRUTH, moves).lost == 1


def test_disorder_is_seen_by_the_time_at_which_a_record_was_said(moves):
    lines = said()
    lines["efo-1"][0] = heard(2, 70)
    verdict = judge(lines, TRUTH, moves)
    assert (verdict.lost, verdict.order_violations, verdict.is_right) == (0, 1, False)


def test_what_comes_again_is_in_order_where_it_came_first(moves):
    lines = said()
    lines["efo-1"].append(heard(2, 34))
    verdict = judge(lines, TRUTH, moves)
    assert (verdict.order_violations, verdict.duplicates) == (0, 2)


def test_a_new_owner_that_passes_over_the_checkpoint_of_the_old_one_is_seen(moves):
    lines = said()
    lines["efo-1"].insert(0, heard(1, 30))
    verdict = judge(lines, TRUTH, moves)
    assert (verdict.reread, verdict.is_right) == (1, False)


def test_leases_that_did_not_move_both_ways_are_not_enough(moves):
    assert not replace(judge(said(), TRUTH, moves), leases_moved_to_kcl=0).is_right
    assert not judge(said(), TRUTH, Moves()).is_right


def test_a_hand_off_is_a_move_when_the_holder_lets_go():
    moves = Moves()
    asked = Lease(SHARD, TRIM_HORIZON, owner="efo-1", checkpoint_owner="kcl-1")
    moves.look([lease("kcl-1")], 0)
    moves.look([asked], 1)
    assert moves.count(KCL, EFO) == 0
    moves.look([replace(asked, checkpoint_owner=None)], 2)
    assert moves.count(KCL, EFO) == 1


def test_a_finished_lease_does_not_move():
    moves = Moves()
    moves.look([lease("kcl-1")], 0)
    moves.look([lease("efo-1", SHARD_END)], 1)
    assert not moves.moves


def test_a_line_comes_back():
    assert heard_of(line_of(heard(3, 7)).rstrip()) == heard(3, 7)
