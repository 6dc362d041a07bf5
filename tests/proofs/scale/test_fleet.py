"""`make scale` on a small fleet; the table and the service that it runs on."""

from __future__ import annotations

import json

import pytest
import trio

from efo.errors import LeaseStoreUnavailableError, ThrottledError
from efo.model import Checkpoint, Lease
from efo.testing import FakeKinesis, FakeSettings
from proofs.scale import __main__ as command
from proofs.scale.fleet import Size
from proofs.scale.kcl import of_kcl
from proofs.scale.service import LimitedService
from proofs.scale.table import Capacity, LeaseTable


@pytest.fixture(scope="module")
def fleet():
    return command.run_fleet(Size(shards=30, workers=6))


def test_the_last_line_is_json(capsys):
    assert command.main(["4x2@5"]) == 0
    (fleet,) = json.loads(capsys.readouterr().out.splitlines()[-1])["fleets"]
    assert (fleet["shards"], fleet["workers"], fleet["failover_seconds"]) == (4, 2, 5.0)


def test_a_fleet_reads_everything_after_each_event(fleet):
    phases = fleet["phases"]
    assert phases["cold_start"]["all_read_s"] < 10
    assert 8 < phases["a_third_lost"]["all_read_s"] < 15  # the fail-over time, and some
    assert phases["twice_the_shards"]["all_read_s"] < 5
    assert not any(phase.get("unread") for phase in phases.values())


def test_workers_that_start_together_create_the_leases_together(fleet):
    assert fleet["phases"]["cold_start"]["calls"]["table: create"] < 2 * fleet["shards"] + 25 * fleet["workers"]


def test_a_steady_fleet_writes_each_lease_thrice_in_a_failover_time(fleet):
    steady = fleet["phases"]["steady"]
    assert steady["writes_per_s"] == pytest.approx(30 * 0.3, rel=0.05)
    assert steady["writes_per_s"] < fleet["kcl"]["writes_per_s"]
    assert steady["read_units_per_s"] > fleet["kcl"]["read_units_per_s_2x"]  # half a second between two lease scans


def test_the_cpu_time_of_a_scan_is_measured(fleet):
    assert all(fleet["scan"][part] > 0 for part in ("parse_ms", "rows_ms"))


@pytest.mark.parametrize("size", ["10", "10x", "1x2", "10x1", "10x2@0", "axb"])
def test_a_wrong_size_is_refused(size, capsys):
    with pytest.raises(SystemExit):
        command.main([size])
    assert repr(size) in capsys.readouterr().err


async def test_a_table_throttles_beyond_its_capacity(autojump_clock):
    table = LeaseTable(Capacity(writes=10))
    worker = table.of_worker()
    failed = []

    async def create(number):
        try:
            await worker.create(Lease(f"shardId-{number:012}", Checkpoint.TRIM_HORIZON))
        except LeaseStoreUnavailableError:
            failed.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(create, number)
    assert len(table.rows()) + len(failed) == 40
    assert failed
    assert table.throttled["create"] >= len(failed)
    assert max(table.write_units.values()) <= 20  # those of a second that was saved, and those of this one


async def test_nothing_of_a_killed_worker_reaches_the_table(autojump_clock):
    table = LeaseTable(Capacity())
    worker = table.of_worker()
    worker.is_dead = True
    with pytest.raises(LeaseStoreUnavailableError):
        await worker.create(Lease("shardId-000000000000", Checkpoint.TRIM_HORIZON))
    assert not table.rows()


async def test_the_account_permits_twenty_descriptions_a_second(autojump_clock):
    refused = []
    async with FakeKinesis(settings=FakeSettings(throttle=False)) as fake:
        fake.create_stream("orders", 2)
        service = LimitedService(fake, "orders")

        async def describe():
            try:
                await service.client().control_plane.describe_stream()
            except ThrottledError as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(describe)
    assert refused
    assert service.most_per_second("DescribeStreamSummary") == 20


def test_kcl_by_its_documented_settings():
    sums = of_kcl(shards=600, workers=10, failover_seconds=10)
    assert sums["writes_per_s"] == pytest.approx(600 * (1 / 3.308 + 1 / 5), rel=0.01)
    assert sums["taken_after_s"] == [10, 30]
