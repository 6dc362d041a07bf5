"""Writes what this version keeps for later ones: a log, a SQLite lease store, DynamoDB items and Kafka positions.

    tests/golden/<version>/log/           a topic with all that its format has
                          /export.jsonl   the records of the log, as `efo log export` writes them
                          /leases.sqlite  the leases of `leases`
                          /leases.jsonl   the same, as the values of a Redis store
                          /items.json     the same, as DynamoDB items: a table of one stream, and of many
                          /positions.json Kafka positions: stream, shard, checkpoint, and the value of the record

All of it is made from fixed values, and written once: a golden file that is written again proves nothing.
"""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
import trio

from efo.leases.lease_row import LeaseRow
from efo.leases.stores.dynamodb.items import ItemCodec
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.model import Checkpoint, HashKeyRange, Lease, Record
from efo_service.log.catalog import allocate_partition
from efo_service.log.compaction import compact
from efo_service.log.consistency import adopt_into, plan_adoption
from efo_service.log.disk import DiskFiles
from efo_service.log.export import export
from efo_service.log.partition_writer import open_partition
from efo_service.log.reader_offsets import commit_reader
from efo_service.log.segments import list_segments
from efo_service.relay.kafka.checkpoints import encode
from efo_service.relay.mapping import from_tags

APPLICATION: Final = "billing"
STREAM: Final = "orders"
MULTI_STREAM_ID: Final = "123456789012:orders:1700000000"
_FIRST: Final = 49590338271490256608559692538361571095921575989136588898
_TIME: Final = 1_700_000_000.125
_TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def shard(number: int) -> str:
    """Return the id of a shard."""
    return f"shardId-{number:012}"


def write(directory: Path) -> None:
    """Write the golden files of this version into a new directory. Raises FileExistsError."""
    directory.mkdir(parents=True)
    _write_log(directory / "log")
    (directory / "export.jsonl").write_bytes(b"".join(export(DiskFiles(directory / "log"), STREAM, encoding="base64")))
    trio.run(_write_sqlite, directory / "leases.sqlite")
    rows = [msgspec.json.encode(LeaseRow.of(lease)) + b"\n" for lease in leases()]
    (directory / "leases.jsonl").write_bytes(b"".join(rows))
    items = {str(key): [ItemCodec(key).new_item(lease) for lease in leases()] for key in (None, MULTI_STREAM_ID)}
    _write_json(directory / "items.json", items)
    _write_json(directory / "positions.json", [_position(shard(0), 0), _position(shard(1), 7)])


# --- the log -----------------------------------------------------------------------------------------------


def _write_log(root: Path) -> None:
    """Write six partitions: compacted with its parts, expired, all headers, empty, adopted, and without keys."""
    _append(root, shard(0), *([_record(at) for at in range(start, start + 3)] for start in range(0, 12, 3)))
    compact(list_segments(root / STREAM / "0")[:3])
    _append(root, shard(1), *([_record(at)] for at in range(3)))
    list_segments(root / STREAM / "1")[0].path.unlink()  # as retention does
    _append(root, shard(2), [_record(0, sub=sub, **_EVERYTHING) for sub in range(3)])
    allocate_partition(DiskFiles(root), STREAM, STREAM, shard(3))
    adopt_into(
        DiskFiles(root),
        STREAM,
        STREAM,
        plan_adoption(DiskFiles(root), STREAM, [Lease(shard(4), Checkpoint(str(_FIRST)))]),
    )
    _append(root, shard(4), [_record(1)])
    _append(root, shard(5), [Record(str(_FIRST), _TIME, b"value"), _record(1)])
    commit_reader(DiskFiles(root), STREAM, "billing", {0: 9, 1: 3, 5: 2}, _TIME)
    for empty in root.rglob("*.lock"):
        empty.unlink()


_EVERYTHING: Final = {
    "encryption_type": "KMS",
    "explicit_hash_key": "340282366920938463463374607431768211455",
    "tags": (("traceparent", _TRACE), ("empty", None)),
}


def _record(number: int, *, sub: int = 0, **fields: object) -> Record:
    values = (b"", b"value", "h\u00e9llo".encode(), b"\x00\xff")
    return Record(
        str(_FIRST + number),
        _TIME + number,
        values[(number + sub) % len(values)],
        f"k\u00e9y-{number}",
        sub_sequence_number=sub,
        **fields,  # type: ignore[arg-type]
    )


def _append(root: Path, shard_id: str, *commits: list[Record]) -> None:
    seconds = count()
    writer = open_partition(
        DiskFiles(root),
        STREAM,
        STREAM,
        shard_id,
        lambda: _TIME + next(seconds),
        from_tags,
        checkpoint=Checkpoint.TRIM_HORIZON,
    )
    for records in commits:
        writer.append(records)
    writer.close()


# --- the leases --------------------------------------------------------------------------------------------


def leases() -> list[Lease]:
    """Return leases that together have all fields."""
    hash_keys = HashKeyRange("0", "340282366920938463463374607431768211455")
    return [
        Lease(shard(0), Checkpoint.SHARD_END, children=(shard(2), shard(3)), counter=9, hash_key_range=hash_keys),
        Lease(shard(1), Checkpoint.TRIM_HORIZON),
        Lease(shard(2), Checkpoint.LATEST, latest_at=_TIME, parents=(shard(0),)),
        Lease(shard(3), Checkpoint.AT_TIMESTAMP, latest_at=_TIME, parents=(shard(0), shard(1))),
        Lease(
            shard(4),
            Checkpoint(str(_FIRST), 3),
            owner="waiting",
            checkpoint_owner="holder",
            counter=2**40,
            owner_switches=2,
            pending_checkpoint=Checkpoint(str(_FIRST + 1), 1),
            pending_checkpoint_state=b"\x00state",
            throughput_kbps=12.5,
            stream_created_at=_TIME,
            unread_since=_TIME + 60,
        ),
    ]


async def _write_sqlite(path: Path) -> None:
    async with SqliteLeaseStore(path, APPLICATION, STREAM) as store:
        for lease in leases():
            await store.create(lease)


# --- the positions -----------------------------------------------------------------------------------------


def _position(shard_id: str, sub: int) -> dict[str, object]:
    checkpoint = Checkpoint(str(_FIRST), sub)
    value = encode(STREAM, shard_id, checkpoint, _TIME if sub else None).decode()
    return {"stream": STREAM, "shard": shard_id, "checkpoint": [checkpoint.sequence_number, sub], "value": value}


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, default=lambda content: b64encode(content).decode()) + "\n")
