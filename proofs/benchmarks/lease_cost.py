"""Measures the cost of leases in DynamoDB: calls and capacity units per lease and minute, from DynamoDB Local.

Real lease coordinators hold the leases, save the progress of a reader as for a consumer, and every call returns the
capacity that it consumed. For comparison, the same figures are calculated from KCL's timings.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from contextlib import AsyncExitStack

import trio

from efo.leases.coordinator import LeaseCoordinator
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.model import MAX_HASH_KEY, Checkpoint, HashKeyRange, Lease
from efo.settings import ConsumerSettings
from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local

COUNTED = ("Scan", "GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "BatchGetItem")
DEFAULTS = ConsumerSettings()


class Meter:
    """Counts the calls of stores and the capacity units that they consumed."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.units: Counter[str] = Counter()

    def watch(self, store: DynamoDbLeaseStore) -> None:
        events = store._table.events  # noqa: SLF001 - the rows as they are
        for name in COUNTED:
            events.register(f"before-parameter-build.dynamodb.{name}", self._request_capacity)
            events.register(f"after-call.dynamodb.{name}", self._count)

    def _request_capacity(self, params, **_) -> None:
        params["ReturnConsumedCapacity"] = "TOTAL"

    def _count(self, parsed, model, **_) -> None:
        self.calls[model.name] += 1
        self.units[model.name] += parsed.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0)


async def measure(url: str, workers: int, leases: int, seconds: float, scan_interval: float | None) -> dict[str, float]:
    table = f"cost-{time.time_ns()}"
    meter = Meter()
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(DynamoDbLeaseStore(table, endpoint_url=url, timeout=30.0))
            for _ in range(workers)
        ]
        await _create(stores[0], leases)
        coordinators = [
            LeaseCoordinator(store, f"worker-{number}", scan_interval=scan_interval)
            for number, store in enumerate(stores)
        ]
        async with trio.open_nursery() as nursery:
            for coordinator in coordinators:
                nursery.start_soon(coordinator.run)
                nursery.start_soon(Reader().read, coordinator)
            while sum(len(coordinator.held) for coordinator in coordinators) < leases:  # noqa: ASYNC110 - no event for it
                await trio.sleep(0.5)
            print(f"{workers} workers hold {leases} leases; measuring for {seconds:g} s", flush=True)
            await trio.sleep(DEFAULTS.failover_seconds)  # until no lease moves any more
            for store in stores:
                meter.watch(store)
            await trio.sleep(seconds)
            calls, units = dict(meter.calls), dict(meter.units)
            nursery.cancel_scope.cancel()
    per = 60 / seconds / leases
    reads = ("Scan", "GetItem", "Query", "BatchGetItem")
    return {
        "workers": workers,
        "leases": leases,
        "writes": round(per * sum(count for name, count in calls.items() if name not in reads), 2),
        "write_units": round(per * sum(count for name, count in units.items() if name not in reads), 2),
        "scans_per_worker": round(60 / seconds / workers * calls.get("Scan", 0), 2),
        "read_units": round(per * sum(units.get(name, 0) for name in reads), 2),
    }


async def _create(store: DynamoDbLeaseStore, leases: int) -> None:
    width = (MAX_HASH_KEY + 1) // leases
    for number in range(leases):
        keys = HashKeyRange(str(number * width), str((number + 1) * width - 1))
        await store.create(Lease(f"shardId-{number:012}", Checkpoint.TRIM_HORIZON, hash_key_range=keys))


class Reader:
    """The reader of all leases of a coordinator: it acks a record of each shard every second."""

    bytes_received = 0
    unread_since = None

    def __init__(self) -> None:
        self.acks = 0

    @property
    def acked(self) -> Checkpoint:
        return Checkpoint(str(49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898 + self.acks))

    def saved(self, acks: int) -> None:
        """Note nothing: nobody asks this reader for its status."""

    async def read(self, coordinator: LeaseCoordinator) -> None:
        while True:
            await trio.sleep(1.0)
            self.acks += 1
            for held in coordinator.held.values():
                held.reader = self


def of_kcl(failover: float = 10.0) -> dict[str, float]:
    """Return KCL's calls per minute, calculated from its timings. Checkpoints are not included: the user times them.

    KCL renews at a third of the fail-over time minus 25 ms. In 2.x each worker scans the table every two fail-over
    times plus 50 ms. In 3.x one worker scans it every two fail-over times, and each worker queries an index for its own
    leases every 9.975 s.
    """
    renewals = round(60 / (failover / 3 - 0.025), 2)
    return {"renewals": renewals, "scans_per_worker_2x": round(60 / (2 * failover + 0.05), 2), "scans_3x": 3.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--leases", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--scan-interval", type=float, help="lease scan interval in seconds")
    options = parser.parse_args()
    with serve_dynamodb_local() as url, credentials():
        measured = trio.run(measure, url, options.workers, options.leases, options.seconds, options.scan_interval)
    print(json.dumps({"efo": measured, "kcl_by_calculation": of_kcl()}))


if __name__ == "__main__":
    main()
