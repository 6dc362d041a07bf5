"""The row that tells a leader of KCL 3 that this worker runs: where it is written, when, and what it says."""

import logging
import time

import pytest
import trio

from efo.errors import LeaseStoreUnavailableError
from efo.leases.stores.dynamodb.client import TableDeniedError, TableNotFoundError
from efo.leases.stores.dynamodb.worker_metrics import PATIENCE, PERIOD, WorkerMetrics


class Tables:
    """The lease table and what is beside it: notes the writes. `has_index`: KCL 3 has added its index."""

    def __init__(self, *, has_index=True, failure=None):
        self.name = "billing"
        self.written = []
        self.calls = []
        self.has_index = has_index
        self.failure = failure
        self.hangs = False

    def beside(self, name):
        return Beside(self, name)

    async def call(self, operation, **arguments):
        return await self.call_of(self.name, operation, **arguments)

    async def call_of(self, name, operation, **arguments):
        await trio.lowlevel.checkpoint()
        self.calls.append(operation)
        if self.hangs:
            await trio.sleep_forever()
        if operation == "describe_table":
            index = [{"IndexName": "LeaseOwnerToLeaseKeyIndex"}]
            return {"Table": {"GlobalSecondaryIndexes": index} if self.has_index else {}}
        if self.failure is not None:
            raise self.failure
        names, values = arguments["ExpressionAttributeNames"], arguments["ExpressionAttributeValues"]
        row = arguments["Key"] | {names[f"#{key[1:]}"]: value for key, value in values.items()}
        self.written.append((name, row))
        return {}


class Beside:
    def __init__(self, tables, name):
        self._tables, self.name = tables, name

    async def call(self, operation, **arguments):
        return await self._tables.call_of(self.name, operation, **arguments)


def reporting(tables, worker_id="efo-1", **options):
    metrics = WorkerMetrics(tables, **options)
    metrics.worker_id = worker_id
    return metrics


def row_of_kcl(*, age=0.0, **changed):
    row = {"leaseKey": {"S": "kcl-1"}, "entityType": {"S": "WORKER_METRIC_STATS"}}
    return row | {"lut": {"N": str(int(time.time() - age))}} | changed


async def test_the_row_says_that_the_load_is_unknown_and_single_tables_are_supported(autojump_clock):
    tables = Tables()
    await reporting(tables).report([])
    ((name, row),) = tables.written
    assert name == "billing-WorkerMetricStats"
    assert abs(int(row["lut"]["N"]) - time.time()) < 5
    assert row["slu"] == row["lut"]
    assert {key: value for key, value in row.items() if key not in {"lut", "slu"}} == {
        "wid": {"S": "efo-1"},
        "entityType": {"S": "WORKER_METRIC_STATS"},
        "sts": {"M": {"C": {"L": [{"N": "-1"}]}}},
        "opr": {"M": {"C": {"L": [{"N": "100"}]}}},
        "properties": {"M": {"library": {"S": "efo"}}},
        "sup": {"N": "1"},
    }


async def test_the_row_is_in_the_lease_table_where_workers_of_kcl_write_theirs(autojump_clock):
    tables = Tables(has_index=False)
    await reporting(tables).report([{"leaseKey": {"S": "shard-1"}}, row_of_kcl()])
    ((name, row),) = tables.written
    assert (name, row["leaseKey"]) == ("billing", {"S": "efo-1"})
    assert "describe_table" not in tables.calls


@pytest.mark.parametrize(
    "row",
    [row_of_kcl(age=2 * PERIOD + 5), row_of_kcl(properties={"M": {"library": {"S": "efo"}}}), row_of_kcl(lut={})],
    ids=["of a worker that is gone", "of efo", "without a time"],
)
async def test_other_rows_do_not_say_where(autojump_clock, row):
    tables = Tables()
    await reporting(tables).report([row])
    assert [name for name, _ in tables.written] == ["billing-WorkerMetricStats"]


async def test_the_table_may_have_another_name(autojump_clock):
    tables = Tables()
    await reporting(tables, own_table="loads").report([])
    assert [name for name, _ in tables.written] == ["loads"]


async def test_nothing_is_written_without_kcl_3_or_a_lease(autojump_clock):
    tables = Tables(has_index=False)
    await reporting(tables).report([])
    await reporting(Tables(), worker_id=None).report([row_of_kcl()])
    assert tables.calls == ["describe_table"]
    tables = Tables(failure=TableNotFoundError("no such table"))
    await reporting(tables).report([])
    assert tables.written == []


async def test_it_is_written_once_in_a_period(autojump_clock):
    tables = Tables()
    metrics = reporting(tables)
    for _ in range(4):
        await metrics.report([])
        await trio.sleep(PERIOD / 2)
    assert len(tables.written) == 2
    assert tables.calls.count("describe_table") == 1


@pytest.mark.parametrize("failure", [TableDeniedError("denied"), LeaseStoreUnavailableError("down"), None])
async def test_a_failure_is_logged_once_and_ends_nothing(autojump_clock, caplog, failure):
    tables = Tables(failure=failure)
    tables.hangs = failure is None
    metrics = reporting(tables)
    with caplog.at_level(logging.WARNING, "efo.aws"):
        for _ in range(3):
            before = trio.current_time()
            await metrics.report([])
            assert trio.current_time() - before <= PATIENCE
            await trio.sleep(PERIOD)
        assert len(caplog.records) == 1
        tables.failure, tables.hangs = None, False
        await metrics.report([])
        assert len(tables.written) == 1
