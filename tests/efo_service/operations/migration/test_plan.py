"""What becomes of each shard on the way to efo: rules R1 and R3, and rows that are not of this stream."""

import pytest

from efo.model import Checkpoint, HashKeyRange, Lease, Position, Shard
from efo_service.operations.migration.layout import Found, OtherStream, RowsSnapshot, Scope, changes, read_rows
from efo_service.operations.migration.plan import Start, plan_leases, plan_target

KEYS = HashKeyRange("0", "9")
FIRST, SECOND, CHILD = (f"shardId-00000000000{number}" for number in (1, 2, 3))
GONE = "shardId-000000000000"
SHARDS = (
    Shard(FIRST, KEYS, "100", "199"),
    Shard(SECOND, KEYS, "100", "199"),
    Shard(CHILD, KEYS, "200", None, FIRST, SECOND),
)
FROM_THE_START = Start(Position.trim_horizon(), now=1000.0)


def found(shard_id, checkpoint, **others):
    position = None if checkpoint is None else Checkpoint(checkpoint)
    return Found(key=shard_id, shard_id=shard_id, checkpoint=position, pulse=(checkpoint,), **others)


def snapshot(*rows, unreadable=None):
    return RowsSnapshot({row.shard_id: ({}, row) for row in rows}, (), unreadable or {}, 0, (), None, ())


def plan(*rows, start=FROM_THE_START, **others):
    return plan_leases(snapshot(*rows, **others), SHARDS, start)


def lines(result):
    return {line.shard: (line.outcome, line.before, line.after, line.why) for line in result.report.lines}


def test_each_lease_has_the_checkpoint_of_its_row_and_the_lineage_of_the_stream():
    result = plan(found(FIRST, "SHARD_END"), found(SECOND, "150", owner="w", parents=("wrong",)))
    assert result.leases == (
        Lease(FIRST, Checkpoint.SHARD_END, hash_key_range=KEYS),
        Lease(SECOND, Checkpoint("150"), hash_key_range=KEYS),
    )
    assert lines(result) == {
        FIRST: ("moved", "SHARD_END", "SHARD_END", ""),
        SECOND: ("moved", "150", "150", ""),
        CHILD: ("nothing", "", "", "read from its beginning, after its parents"),
    }
    assert result.report.refusals == []


def test_the_child_of_finished_parents_is_read_from_its_beginning_even_without_a_checkpoint():
    result = plan(found(FIRST, "SHARD_END"), found(SECOND, "SHARD_END"), found(CHILD, None))
    why = "read from its beginning: its parents are finished"
    assert lines(result)[CHILD] == ("nothing", "no checkpoint", "", why)


def test_an_unread_shard_starts_at_the_initial_position():
    result = plan(found(FIRST, "150"))
    assert lines(result)[SECOND][3] == "starts at [consumer] initial_position: TRIM_HORIZON"


def test_a_shard_before_one_that_is_read_is_not_read():
    result = plan(found(CHILD, "250"))
    assert lines(result)[FIRST][3] == "not read: its children are read, or begin before"
    assert [lease.key for lease in result.leases] == [CHILD]


@pytest.mark.parametrize("number", ["99", "200"])
def test_a_sequence_number_outside_its_shard_is_refused(number):
    result = plan(found(FIRST, number))
    assert result.leases == ()
    assert lines(result)[FIRST][0] == "refused"
    assert "no such sequence number" in result.report.refusals[0]


def test_an_end_before_the_start_as_some_servers_have_it_is_no_limit():
    shards = (Shard(FIRST, KEYS, "1000", "9"),)
    assert plan_leases(snapshot(found(FIRST, "2000")), shards, FROM_THE_START).report.refusals == []


def test_a_shard_past_its_retention_gets_no_lease_but_a_finished_one_stays_finished():
    result = plan(found(GONE, "50"), found(FIRST, "150"))
    assert [lease.key for lease in result.leases] == [FIRST]
    assert lines(result)[GONE] == (
        "nothing",
        "50",
        "",
        "the shard has passed its retention: nothing of it can be read",
    )
    result = plan(found(GONE, "SHARD_END", children=(FIRST,)), found(FIRST, "150"))
    assert result.leases[0] == Lease(GONE, Checkpoint.SHARD_END, children=(FIRST,))


def test_a_shard_that_the_stream_never_had_is_refused():
    result = plan(found("shardId-000000000009", "150"), found(FIRST, "150"))
    assert "never had" in result.report.refusals[0]


def test_rows_without_any_shard_of_the_stream_are_of_another_stream():
    assert "no row is about a shard" in plan(found(GONE, "50")).report.refusals[0]
    assert plan().report.refusals == ["there is no checkpoint of this application on this stream"]


def test_a_row_that_cannot_be_read_forbids_to_write():
    result = plan(found(FIRST, "150"), unreadable={"bad-row": "KeyError: 'checkpoint'"})
    assert result.report.refusals == ["bad-row: the row cannot be read: KeyError: 'checkpoint'; correct or delete it"]


def test_latest_is_pinned_to_the_time_of_the_migration():
    [lease] = plan(found(CHILD, "LATEST")).leases
    assert (lease.checkpoint, lease.latest_at) == (Checkpoint.LATEST, 1000.0)


def test_at_timestamp_takes_the_time_of_the_configuration_and_is_refused_without_one():
    [lease] = plan(found(FIRST, "AT_TIMESTAMP"), start=Start(Position.at_timestamp(700.0), 1000.0)).leases
    assert (lease.checkpoint, lease.latest_at) == (Checkpoint.AT_TIMESTAMP, 700.0)
    [refusal] = plan(found(FIRST, "AT_TIMESTAMP")).report.refusals
    assert "set [consumer] initial_position" in refusal


def test_a_pending_checkpoint_and_a_sub_sequence_number_are_kept():
    row = Found(
        key=FIRST,
        shard_id=FIRST,
        checkpoint=Checkpoint("150", 7),
        pulse=(),
        pending_checkpoint=Checkpoint("160", 1),
        pending_checkpoint_state=b"state",
        notes=("its pending checkpoint 160/1 is kept",),
    )
    result = plan(row)
    [lease] = result.leases
    assert (lease.checkpoint, lease.pending_checkpoint) == (Checkpoint("150", 7), Checkpoint("160", 1))
    assert lease.pending_checkpoint_state == b"state"
    assert lines(result)[FIRST] == ("moved", "150/7", "150/7", "its pending checkpoint 160/1 is kept")


def test_leases_that_efo_has_already_are_refused_unless_they_are_the_same():
    result = plan(found(FIRST, "150"), found(SECOND, "160"))
    same = [Lease(FIRST, Checkpoint("150"), counter=3)]
    target, problems = plan_target(result, same, overwrite=False)
    assert problems == []
    assert [lease.key for lease in target.new] == [SECOND]
    for strange in ([Lease(FIRST, Checkpoint("151"))], [Lease(CHILD, Checkpoint("250"))]):
        assert "efo's lease store has 1 leases" in plan_target(result, strange, overwrite=False)[1][0]
        assert plan_target(result, strange, overwrite=True)[1] == []


class _Rows:
    """A layout whose rows are what they say."""

    look_seconds, blind = 1.0, ""

    def key_of(self, row):
        return row.key

    def read(self, row, _scope):
        return row


def test_what_changes_between_two_looks_is_named():
    before = read_rows([found(FIRST, "150", owner="w1"), found(SECOND, "150")], _Rows(), Scope("a", "s"))
    after = read_rows([found(FIRST, "151", owner="w1"), found(CHILD, "250")], _Rows(), Scope("a", "s"))
    assert changes(before, before) == []
    assert changes(before, after) == [f"{FIRST} of w1", CHILD, f"{SECOND} (deleted)"]


def test_rows_of_several_streams_of_one_name_are_refused_unless_one_is_chosen():
    rows = [found(FIRST, "150", stream_id="1:orders:1"), found(FIRST, "151", stream_id="1:orders:2")]
    assert "choose one with --stream-id" in read_rows(rows, _Rows(), Scope("a", "orders")).problems[0]
    chosen = read_rows(rows, _Rows(), Scope("a", "orders", "1:orders:2"))
    assert (chosen.problems, chosen.others) == ((), 1)
    assert chosen.found[FIRST][1].checkpoint == Checkpoint("151")


def test_a_chosen_stream_is_refused_where_no_row_names_one():
    snapshot = read_rows([found(FIRST, "150")], _Rows(), Scope("a", "orders", "1:orders:2"))
    assert "leave it out" in snapshot.problems[0]


def test_the_other_streams_of_a_table_are_known_by_their_ids():
    rows = [OtherStream("1:clicks:2"), found(FIRST, "150"), OtherStream("1:clicks:2"), OtherStream("1:a:2")]
    snapshot = read_rows(rows, _Rows(), Scope("a", "orders"))
    assert (snapshot.others, snapshot.other_streams) == (3, ("1:a:2", "1:clicks:2"))


def test_two_rows_about_one_shard_are_refused():
    rows = [found(FIRST, "150"), found(FIRST, "151")]
    assert "2 rows are about" in read_rows(rows, _Rows(), Scope("a", "orders")).problems[0]
