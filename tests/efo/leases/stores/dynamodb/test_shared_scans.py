"""Lease scans that the stores of several streams share."""

from __future__ import annotations

import pytest
import trio

from efo.errors import LeaseStoreUnavailableError
from efo.leases.stores.dynamodb.store import GATHERING, SharedScans


class Table:
    """A table whose scans take a second. Its one row names the scan."""

    def __init__(self) -> None:
        self.scans: list[float] = []
        self.is_down = False

    async def scan(self):
        self.scans.append(trio.current_time())
        number = len(self.scans)
        await trio.sleep(1)
        if self.is_down:
            raise LeaseStoreUnavailableError("down")
        return [{"streamName": {"S": name}, "leaseKey": {"S": f"{name}:{number}"}} for name in ("a", "b")]


async def test_callers_at_about_the_same_time_share_a_scan_and_each_gets_its_stream(autojump_clock):
    table, found = Table(), {}
    scans = SharedScans(table.scan)

    async def read(stream, after):
        await trio.sleep(after)
        found[stream] = [item["leaseKey"]["S"] for item in await scans.items(stream)]

    async with trio.open_nursery() as nursery:
        for stream, after in (("a", 0), ("b", GATHERING / 2), ("c", 0)):
            nursery.start_soon(read, stream, after)
    assert found == {"a": ["a:1"], "b": ["b:1"], "c": []}


async def test_a_caller_never_gets_rows_that_were_read_before_its_call(autojump_clock):
    """Else a lease could seem to be older than it is, and expire here before it expires for its holder (rule R10)."""
    table, calls = Table(), []
    scans = SharedScans(table.scan)

    async def read(after):
        await trio.sleep(after)
        called = trio.current_time()
        (item,) = await scans.items("a")
        scanned = table.scans[int(item["leaseKey"]["S"].split(":")[1]) - 1]
        calls.append(scanned - called)

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(read, number * 0.1)
    assert len(calls) == 50
    assert min(calls) >= 0
    assert len(table.scans) <= 7


async def test_a_scan_that_fails_is_an_error_of_one_caller_and_the_next_one_scans_again(autojump_clock):
    table = Table()
    scans = SharedScans(table.scan)
    table.is_down = True
    with pytest.raises(LeaseStoreUnavailableError):
        await scans.items("a")
    table.is_down = False
    assert len(await scans.items("a")) == 1


async def test_a_caller_that_is_cancelled_while_it_scans_leaves_no_half_a_scan(autojump_clock):
    table = Table()
    scans = SharedScans(table.scan)
    with trio.move_on_after(GATHERING + 0.5) as scope:
        await scans.items("a")
    assert scope.cancelled_caught
    assert [item["leaseKey"]["S"] for item in await scans.items("a")] == ["a:2"]
