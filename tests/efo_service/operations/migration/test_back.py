"""What becomes of each lease on the way back to another library."""

import pytest

from efo.model import Checkpoint, HashKeyRange, Lease, Shard
from efo_service.operations.migration.back import plan_rows
from efo_service.operations.migration.harlow import HarlowKeys
from efo_service.operations.migration.kcl import KclTable
from efo_service.operations.migration.layout import Mark, Scope, read_rows

FIRST, SECOND = "shardId-000000000001", "shardId-000000000002"
SCOPE = Scope("billing", "orders")
SHARDS = (Shard(FIRST, HashKeyRange("0", "4"), "100", "199"), Shard(SECOND, HashKeyRange("5", "9"), "100", None))
KEY = f"billing:checkpoint:orders:{SECOND}"


def plan(leases, rows=(), layout=HarlowKeys(), marks=None, shards=SHARDS, scope=SCOPE):  # noqa: B008 - frozen
    """`marks`: where they differ from the checkpoints."""
    found = {lease.key: Mark(lease.checkpoint.sequence_number) for lease in leases} | (marks or {})
    return plan_rows(leases, read_rows(rows, layout, scope), shards, layout, scope, found)


def test_each_row_is_written_in_place_of_the_present_one():
    old = {"key": KEY, "value": "120"}
    result = plan([Lease(SECOND, Checkpoint("150")), Lease(FIRST, Checkpoint.SHARD_END)], [old])
    finished = {"key": f"billing:checkpoint:orders:{FIRST}", "value": "199"}
    assert result.rows == ((finished, None), ({"key": KEY, "value": "150"}, old))
    assert [(line.shard, line.outcome, line.before, line.after) for line in result.report.lines] == [
        (FIRST, "moved", "SHARD_END", "199"),
        (SECOND, "moved", "150", "150"),
    ]


def test_what_the_library_cannot_hold_is_refused_with_the_reason():
    result = plan([Lease(FIRST, Checkpoint.TRIM_HORIZON), Lease(SECOND, Checkpoint("150"))])
    assert [line.outcome for line in result.report.lines] == ["refused", "moved"]
    assert "no checkpoint like TRIM_HORIZON" in result.report.refusals[0]
    assert result.report.problems == ()


def test_within_an_aggregate_the_mark_of_the_record_before_is_written_and_the_report_says_so():
    lease = Lease(SECOND, Checkpoint("150", 1))
    result = plan([lease], marks={SECOND: Mark("140", "before the aggregate 150")})
    assert result.rows == (({"key": KEY, "value": "140"}, None),)
    (line,) = result.report.lines
    assert (line.before, line.after, line.why) == ("150/1", "140", "before the aggregate 150")


def test_without_a_mark_the_shard_is_refused_with_its_reason():
    result = plan([Lease(SECOND, Checkpoint("150"))], marks={SECOND: Mark(None, "no position before it")})
    assert (result.rows, result.report.refusals) == ((), [f"{SECOND}: no position before it"])


def test_kcl_keeps_the_position_within_an_aggregate():
    result = plan([Lease(SECOND, Checkpoint("150", 1))], layout=KclTable(), marks={SECOND: Mark("140")})
    assert result.report.lines[0].after == "150/1"


@pytest.mark.parametrize("stream_id", [None, "123456789012:orders:7"])
def test_into_a_table_of_many_streams_without_a_row_of_this_one_its_id_must_be_given(stream_id):
    """Otherwise its row would have the key of an application with one stream, which KCL does not find."""
    clicks = "123456789012:clicks:1"
    other = KclTable().write(Lease(FIRST, Checkpoint("110")), None, Scope("billing", "clicks", clicks), None)
    scope = Scope("billing", "orders", stream_id)
    result = plan([Lease(SECOND, Checkpoint("150"))], [other], KclTable(), scope=scope)
    if stream_id is None:
        (problem,) = result.report.refusals
        assert f"rows of several streams ({clicks}), and none of orders" in problem
        assert "--stream-id as the application does, account:orders:epoch" in problem
    else:
        assert result.report.refusals == []
        assert result.rows[0][0]["leaseKey"] == {"S": f"{stream_id}:{SECOND}"}


def test_a_lost_pending_checkpoint_is_reported_and_kcl_keeps_it():
    lease = Lease(FIRST, Checkpoint("150"), pending_checkpoint=Checkpoint("160"))
    assert plan([lease]).report.lines[0].why == "its pending checkpoint 160 is not kept"
    assert plan([lease], layout=KclTable()).report.lines[0].why == ""


def test_a_finished_shard_that_is_gone_needs_no_row():
    result = plan([Lease("shardId-000000000000", Checkpoint.SHARD_END)])
    assert (result.rows, result.report.lines[0].outcome) == ((), "nothing")


def test_rows_that_cannot_be_read_and_a_missing_application_forbid_to_write():
    result = plan([], [{"key": KEY, "value": "x"}])
    assert len(result.report.refusals) == 2
    assert "correct or delete the row" in result.report.refusals[0]
    assert "efo has no leases" in result.report.refusals[1]


def test_shards_whose_leases_efo_deleted_are_finished_in_the_library_too():
    third, fourth = "shardId-000000000003", "shardId-000000000004"
    shards = (
        Shard(FIRST, HashKeyRange("0", "9"), "100", "199"),
        Shard(SECOND, HashKeyRange("0", "9"), "200", "299", FIRST),
        Shard(third, HashKeyRange("0", "4"), "300", None, SECOND),
        Shard(fourth, HashKeyRange("5", "9"), "300", None, SECOND),
    )
    old = {"key": f"billing:checkpoint:orders:{FIRST}", "value": "120"}
    leases = [Lease(third, Checkpoint("350")), Lease(fourth, Checkpoint("360"))]

    def planned(leases, layout=HarlowKeys(), rows=(old,)):  # noqa: B008 - frozen
        return plan(leases, rows, layout, shards=shards)

    result = planned(leases)
    assert [(line.shard, line.after, line.why) for line in result.report.lines][:2] == [
        (FIRST, "199", "efo has read it, and deleted its lease"),
        (SECOND, "299", "efo has read it, and deleted its lease"),
    ]
    assert result.rows[0] == ({"key": old["key"], "value": "199"}, old)
    begun = planned([leases[0], Lease(fourth, Checkpoint.TRIM_HORIZON)], KclTable(), rows=())
    assert [line.shard for line in begun.report.lines] == [third, fourth]  # the end of its parent is not certain


def test_a_time_that_the_library_does_not_keep_is_named():
    times = [Lease(FIRST, Checkpoint.LATEST, latest_at=5.0), Lease(SECOND, Checkpoint.AT_TIMESTAMP, latest_at=5.0)]
    first, second = plan(times, layout=KclTable()).report.lines
    assert "LATEST is when it starts" in first.why
    assert "the library's configuration" in second.why
