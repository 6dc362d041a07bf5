"""What becomes of each lease on the way back to another library."""

from efo.model import Checkpoint, HashKeyRange, Lease, Shard
from efo_service.operations.migration.back import plan_rows
from efo_service.operations.migration.harlow import HarlowKeys
from efo_service.operations.migration.kcl import KclTable
from efo_service.operations.migration.layout import Scope
from efo_service.operations.migration.reading import read_rows

FIRST, SECOND = "shardId-000000000001", "shardId-000000000002"
SCOPE = Scope("billing", "orders")
SHARDS = (Shard(FIRST, HashKeyRange("0", "4"), "100", "199"), Shard(SECOND, HashKeyRange("5", "9"), "100", None))
KEY = f"billing:checkpoint:orders:{SECOND}"


def plan(leases, rows=(), layout=HarlowKeys()):  # noqa: B008 - frozen
    return plan_rows(leases, read_rows(rows, layout, SCOPE), SHARDS, layout, SCOPE)


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
    result = plan([Lease(FIRST, Checkpoint("150", 3)), Lease(SECOND, Checkpoint("150"))])
    assert [line.outcome for line in result.report.lines] == ["refused", "moved"]
    assert "sub-sequence" in result.report.refusals[0]
    assert result.report.problems == ()


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
