"""The CPU time of a lease scan of a DynamoDB table: botocore's parser, the rows that have changed, the decision."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import botocore.session
import trio
import trio.testing
from botocore.parsers import create_parser

from efo.leases.coordinator import LeaseCoordinator
from efo.leases.known_rows import KnownRows
from efo.leases.stores.dynamodb.items import Item, ItemCodec
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import MAX_HASH_KEY, Checkpoint, HashKeyRange, Lease

SCANS: Final = 5
_CHECKPOINT: Final = Checkpoint(str(49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898))


def cpu_of_scan(shards: int, workers: int) -> dict[str, float]:
    """Return the milliseconds of CPU time of a scan in which each row has changed, as a worker makes it.

    `parse`: of the responses, by botocore. `rows`: from items to leases. `decide`: which leases are expired, and which
    to take.
    """
    codec = ItemCodec()
    leases = [_lease(number, shards, workers) for number in range(shards)]
    body = json.dumps({"Items": [codec.new_item(lease) for lease in leases]}).encode()
    shape = botocore.session.get_session().get_service_model("dynamodb").operation_model("Scan").output_shape
    parser = create_parser("json")
    response = {"status_code": 200, "headers": {}, "body": body}
    parse, parsed = _best(partial(parser.parse, response, shape))
    rows, _ = _best(partial(_decode, codec, parsed["Items"]))
    return {"parse_ms": parse, "rows_ms": rows, "decide_ms": _decide(leases)}


def _lease(number: int, shards: int, workers: int) -> Lease:
    width = (MAX_HASH_KEY + 1) // shards
    keys = HashKeyRange(str(number * width), str((number + 1) * width - 1))
    owner = f"worker-{number % workers:03}"
    return Lease(f"shardId-{number:012}", _CHECKPOINT, owner=owner, counter=1000, hash_key_range=keys)


def _decode(codec: ItemCodec, items: Sequence[Item]) -> Sequence[Lease]:
    return KnownRows[Item]().replace({item["leaseKey"]["S"]: item for item in items}, lambda _, item: codec.lease(item))


def _best(step: Any) -> tuple[float, Any]:
    """Return the least milliseconds of CPU time of a step, and its result."""
    times = []
    for _ in range(3):
        began = time.process_time()
        result = step()
        times.append(time.process_time() - began)
    return round(1000 * min(times), 2), result


class _Renewed(MemoryLeaseStore):
    """A table in which each lease is renewed between two scans."""

    def __init__(self, leases: Sequence[Lease]) -> None:
        super().__init__()
        self._rows = {lease.key: lease for lease in leases}

    async def list(self) -> Sequence[Lease]:
        """Return all leases."""
        self._rows = {key: replace(row, counter=row.counter + 1) for key, row in self._rows.items()}
        return await super().list()


def _decide(leases: Sequence[Lease]) -> float:
    """Return the milliseconds of CPU time of the coordinator, for each scan."""

    async def scan() -> float:
        store = _Renewed(leases)
        coordinator = LeaseCoordinator(store, "worker-000", max_leases=0, scan_interval=1.0)
        spent = 0.0
        async with trio.open_nursery() as nursery:
            await nursery.start(coordinator.run)
            await trio.sleep(0.5)
            for _ in range(SCANS):
                began = time.process_time()
                await trio.sleep(1.0)
                spent += time.process_time() - began
            nursery.cancel_scope.cancel()
        return spent / SCANS

    async def renew() -> float:
        began = time.process_time()
        for _ in range(SCANS):
            await _Renewed(leases).list()
        return (time.process_time() - began) / SCANS

    clock = partial(trio.testing.MockClock, autojump_threshold=0)
    both, alone = trio.run(scan, clock=clock()), trio.run(renew, clock=clock())
    return round(1000 * max(0.0, both - alone), 2)
