"""All sinks, as the relay opens them. test_conformance.py runs for each entry of SINKS."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from efo_service.log.catalog import read_catalog
from efo_service.log.disk import DiskFiles
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.objects.partition import Partition
from efo_service.log.segments import list_segments, read_segment
from efo_service.log.sink import LogSink
from efo_service.object_store.memory import MemoryStore
from efo_service.relay.jsonlines import open_json_lines
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.relay.kafka.sink import open_kafka
from efo_service.relay.mapping import Header, Message
from efo_service.relay.sink import Sink
from proofs.local_servers.kafka import read_topic, serve_kafka
from proofs.local_servers.running import Serve


@dataclass(frozen=True)
class Kind:
    """One kind of sink.

    `open`: opens the sink. Its arguments are a directory that no other test uses and, if the sink needs a server, the
    server's URL. Two calls with the same arguments act as two workers.
    `read`: returns all committed records of a shard, in order. Its arguments are those of `open`, and the shard id.
    `owns_position`: the sink keeps the shards' positions, so that no record is written twice.
    `fences`: a second writer of a shard stops the first one, or is refused.
    """

    open: Callable[..., AbstractAsyncContextManager[Sink]]
    read: Callable[..., list[Message]]
    owns_position: bool
    fences: bool
    serve: Serve | None = None


@asynccontextmanager
async def log(path: Path):
    yield LogSink(DiskFiles(path / "log"), "topic", lock_timeout=0)


def read_log(path: Path, shard_id: str, topic: str = "topic") -> list[Message]:
    messages = []
    for directory in (path / "log" / topic).glob("[0-9]*"):
        for segment in list_segments(directory):
            batch, origin = read_segment(segment)
            if origin.shard_id == shard_id:
                messages += [_message(row) for row in batch.to_pylist()]
    return messages


_STORES: dict[Path, MemoryStore] = defaultdict(MemoryStore)
"""The object store of each test: workers share it."""


@asynccontextmanager
async def object_log(path: Path):
    yield LogSink(ObjectFiles(_STORES[path].client()), "topic")


def read_object_log(path: Path, shard_id: str) -> list[Message]:
    store = _STORES[path]
    catalog = read_catalog(ObjectFiles(store), "topic")
    partition = Partition(store, "topic", catalog.partitions[shard_id], (catalog.stream, shard_id))
    return [_message(row) for batch in partition.parts(*partition.bounds()) for row in batch.to_pylist()]


def _message(row) -> Message:
    headers: list[Header] = [(header["key"], header["value"]) for header in row["headers"]]
    return Message(row["key"], row["value"], round(row["timestamp"].timestamp() * 1000), headers)


def json_lines(path: Path):
    return open_json_lines(path / "lines.jsonl")


def read_lines(path: Path, shard_id: str) -> list[Message]:
    messages = []
    for line in map(json.loads, (path / "lines.jsonl").read_text().splitlines()):
        headers = [(name, None if value is None else value.encode()) for name, value in line["headers"]]
        if ("kinesis.shard", shard_id.encode()) in headers:
            value = base64.b64decode(line["value"])
            key = None if line["key"] is None else line["key"].encode()
            messages.append(Message(key, value, line["timestamp"], headers))
    return messages


def kafka(path: Path, servers: str, **settings):
    names = {"application": path.name, "stream": "orders", "topic": path.name}
    return open_kafka(KafkaOptions(bootstrap_servers=servers, partitions=1, **settings), **names)


def read_kafka(path: Path, servers: str, shard_id: str) -> list[Message]:
    messages = (
        Message(found.key(), found.value(), found.timestamp()[1], found.headers())
        for found in read_topic(servers, path.name)
    )
    return [message for message in messages if ("kinesis.shard", shard_id.encode()) in message.headers]


SINKS = {
    "log": Kind(log, read_log, owns_position=True, fences=True),
    "object log": Kind(object_log, read_object_log, owns_position=True, fences=True),
    "json lines": Kind(json_lines, read_lines, owns_position=False, fences=True),
    "kafka": Kind(kafka, read_kafka, owns_position=True, fences=True, serve=serve_kafka),
    "kafka, at least once": Kind(
        partial(kafka, delivery="at_least_once"), read_kafka, owns_position=False, fences=False, serve=serve_kafka
    ),
}
