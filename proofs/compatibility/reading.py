"""Reads golden files with the present code, and compares them with what was written (see golden.py)."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import trio

from efo.leases.lease_row import LeaseRow
from efo.leases.stores.dynamodb.items import ItemCodec
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.model import Checkpoint, Lease
from efo_service.log.catalog import read_catalog
from efo_service.log.disk import DiskFiles
from efo_service.log.export import export
from efo_service.log.inspection import inspect_topic, verify_topic
from efo_service.log.maintenance import LogMaintenance
from efo_service.log.partition_writer import open_partition
from efo_service.log.retention import RetentionRules
from efo_service.relay.kafka.checkpoints import decode
from efo_service.spark.source.offsets import Range
from efo_service.spark.source.planner import read_range
from proofs.compatibility.golden import APPLICATION, MULTI_STREAM_ID, STREAM


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of one format. `problems`: what the present code refuses or reads differently."""

    read: int
    problems: list[str]


def read_all(golden: Path, scratch: Path) -> dict[str, Reading]:
    """Read the golden files of one version, copied into the new directory `scratch`; return the result by format."""
    shutil.copytree(golden, scratch)
    formats: dict[str, Callable[[Path], Iterator[str | None]]] = {
        "log": _log,
        "spark": _spark,
        "sqlite": _sqlite,
        "rows": _rows,
        "dynamodb": _dynamodb,
        "kafka": _kafka,
    }
    return {name: _reading(read, scratch) for name, read in formats.items()}


def _reading(read: Callable[[Path], Iterator[str | None]], directory: Path) -> Reading:
    """Count what is read, one for each item yielded. A text is a problem."""
    found: list[str | None] = []
    try:
        found.extend(read(directory))
    except Exception as error:  # noqa: BLE001 - any error means that it cannot be read
        found.append(f"{type(error).__name__}: {error}")
    return Reading(len(found), [problem for problem in found if problem is not None])


def _same(what: str, found: object, expected: object) -> str | None:
    return None if found == expected else f"{what}: {found!r}, expected {expected!r}"


# --- the log -----------------------------------------------------------------------------------------------


def _log(directory: Path) -> Iterator[str | None]:
    """Export, verify, maintain, and continue each partition after its last record."""
    root, expected = directory / "log", (directory / "export.jsonl").read_bytes().splitlines()
    yield _same(
        "the export",
        [*export(DiskFiles(root), STREAM, encoding="base64")],
        [line + b"\n" for line in expected],
    )
    yield from verify_topic(DiskFiles(root), STREAM).problems
    before = inspect_topic(DiskFiles(root), STREAM)
    for partition in before.partitions:
        rows = [line for line in map(json.loads, expected) if line["partition"] == partition.partition]
        ends = (partition.start, partition.end) if rows else (0, 0)
        first, last = (rows[0]["offset"], rows[-1]["offset"] + 1) if rows else (0, 0)
        yield _same(f"the offsets of partition {partition.partition}", ends, (first, last))
        writer = open_partition(DiskFiles(root), STREAM, STREAM, partition.shard_id, lambda: 0.0)
        headers = dict(rows[-1]["headers"]) if rows else {}
        position = Checkpoint(headers["kinesis.sequence"], int(headers["kinesis.sub_sequence"])) if rows else None
        yield _same(f"the position of partition {partition.partition}", (writer.position, writer.end), (position, last))
        writer.close()
    LogMaintenance(DiskFiles(root, grace=0), STREAM, RetentionRules()).run(2e9)
    exported = [*export(DiskFiles(root), STREAM, encoding="base64")]
    yield _same("the export after maintenance", len(exported), len(expected))
    readers = [(reader.name, reader.lag, reader.committed_at) for reader in before.readers]
    yield _same("the readers", readers, [("billing", 7, 1_700_000_000.125)])


def _spark(directory: Path) -> Iterator[str | None]:
    """Read each partition as a task of the data source."""
    root = directory / "log"
    lines = [json.loads(line) for line in (directory / "export.jsonl").read_text().splitlines()]
    for partition in read_catalog(DiskFiles(root), STREAM).shards:
        expected = [(line["offset"], b64decode(line["value"])) for line in lines if line["partition"] == partition]
        if expected:
            wanted = Range(STREAM, partition, expected[0][0], expected[-1][0] + 1)
            batches = [
                batch.to_pydict() for batch in read_range(DiskFiles(root, mapped=True), wanted, allow_gaps=False)
            ]
            rows = [row for batch in batches for row in zip(batch["offset"], batch["value"], strict=True)]
            yield _same(f"partition {partition}", rows, expected)


# --- leases and positions ----------------------------------------------------------------------------------


def _leases(directory: Path) -> list[Lease]:
    lines = (directory / "leases.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=LeaseRow).lease() for line in lines]


def _rows(directory: Path) -> Iterator[str | None]:
    """Read the values of a Redis store. Later fields may be added, so only what was written is compared."""
    for line, lease in zip((directory / "leases.jsonl").read_bytes().splitlines(), _leases(directory), strict=True):
        written = json.loads(line)
        read = json.loads(msgspec.json.encode(LeaseRow.of(lease)))
        yield _same(lease.key, {name: read.get(name) for name in written}, written)


def _sqlite(directory: Path) -> Iterator[str | None]:
    """Read the store, take a lease, and checkpoint it."""
    expected = {lease.key: lease for lease in _leases(directory)}

    async def work() -> list[str | None]:
        async with SqliteLeaseStore(directory / "leases.sqlite", APPLICATION, STREAM) as store:
            found = {lease.key: lease for lease in await store.list()}
            results = [_same(key, found.get(key), lease) for key, lease in expected.items()]
            for lease in expected.values():
                taken = await store.take(lease, "new")
                row = await store.checkpoint(taken, Checkpoint("5"))
                results.append(_same(f"{lease.key} as it was written", await store.get(lease.key), row))
            return results

    yield from trio.run(work)


def _dynamodb(directory: Path) -> Iterator[str | None]:
    items = json.loads((directory / "items.json").read_text())
    for stream_id in (None, MULTI_STREAM_ID):
        codec = ItemCodec(stream_id)
        for item, lease in zip(items[str(stream_id)], _leases(directory), strict=True):
            for value in item.values():
                if "B" in value:
                    value["B"] = b64decode(value["B"])
            yield _same(f"{lease.key} of the stream", codec.is_lease_of_stream(item), True)
            yield _same(lease.key, codec.lease(item), lease)


def _kafka(directory: Path) -> Iterator[str | None]:
    for position in json.loads((directory / "positions.json").read_text()):
        found = decode(position["value"].encode(), position["stream"], position["shard"], "checkpoints")
        yield _same(position["shard"], found, Checkpoint(*position["checkpoint"]))
