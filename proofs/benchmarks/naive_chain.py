"""The least that a Python client can do: one TLS socket, DATA split by hand, one CRC pass, one typed decode.

    python -m proofs.benchmarks.naive_chain SERVED CONSUMER

SERVED is the line of JSON that the load server prints.

It has no leases, checkpoints, metrics, renewal, failures or back-pressure, and uses no module of efo. So it is the mark
to compare efo with: it does not change when efo does. Like efo's reader, it reads key, sequence number and length of
the data of every record, and it opens KPL aggregates.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator

import msgspec
from aws_kinesis_agg.deaggregator import messages_pb2  # it makes the module importable
from zlib_ng.zlib_ng import crc32

from proofs.benchmarks.load_client import LoadClient
from proofs.benchmarks.readers.samples import Sampler

MAGIC, DIGEST_BYTES = b"\xf3\x89\x9a\xc2", 16
PRELUDE, CRC = 12, 4
WINDOWS = {"stream_window": 1024 * 1024, "connection_window": 16 * 1024 * 1024}


class Record(msgspec.Struct, rename="pascal", gc=False):
    sequence_number: str
    data: bytes
    partition_key: str
    approximate_arrival_timestamp: float


class Event(msgspec.Struct, rename="pascal"):
    records: list[Record]
    continuation_sequence_number: str | None = None


decode = msgspec.json.Decoder(Event).decode
sampler = Sampler()


class Stream:
    """The frames of one shard."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = PRELUDE

    def receive(self, data: memoryview) -> None:
        self._parts.append(bytes(data))
        self._size += len(data)
        if self._size < self._needed:
            return
        buffer = memoryview(b"".join(self._parts))
        at = 0
        while len(buffer) - at >= PRELUDE:
            self._needed = int.from_bytes(buffer[at : at + 4])
            if len(buffer) - at < self._needed:
                break
            frame(buffer[at : at + self._needed])
            at += self._needed
            self._needed = PRELUDE
        self._parts, self._size = [bytes(buffer[at:])], len(buffer) - at


def frame(view: memoryview) -> None:
    if crc32(view[:-CRC]) != int.from_bytes(view[-CRC:]):
        raise ValueError("the CRC of a frame is wrong")
    headers = int.from_bytes(view[4:8])
    if b"SubscribeToShardEvent" in bytes(view[PRELUDE : PRELUDE + headers]):
        handle(decode(view[PRELUDE + headers : -CRC]))


def handle(event: Event) -> None:
    count, size, key, number = 0, 0, "", ""
    for record in event.records:
        number = record.sequence_number
        if record.data.startswith(MAGIC):
            for key, data in user_records(record.data):  # noqa: B007 - the key is read
                size += len(data)
                count += 1
        else:
            key = record.partition_key
            size += len(record.data)
            count += 1
    sampler.add(count, size, (key, number))


def user_records(blob: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield key and data of the user records of an aggregate."""
    message, digest = blob[len(MAGIC) : -DIGEST_BYTES], blob[-DIGEST_BYTES:]
    if hashlib.md5(message).digest() != digest:  # noqa: S324 - the format's own
        raise ValueError("the digest of an aggregate is wrong")
    aggregate = messages_pb2.AggregatedRecord.FromString(message)
    keys = list(aggregate.partition_key_table)
    for user in aggregate.records:
        yield keys[user.partition_key_index], user.data


def main() -> None:
    served, consumer = json.loads(sys.argv[1]), sys.argv[2]
    streams: dict[int, Stream] = {}

    def on_data(stream_id: int, data: memoryview) -> None:
        if stream_id not in streams:
            streams[stream_id] = Stream()
        streams[stream_id].receive(data)

    LoadClient(served, consumer, **WINDOWS, on_data=on_data).run(float("inf"))


if __name__ == "__main__":
    main()
