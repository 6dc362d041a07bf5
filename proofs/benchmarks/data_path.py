"""Measures the client's data path from memory: the throughput after each stage, per CPU-second of one core.

The bytes are prepared in advance: one subscription's events in DATA frames of 16 KiB. TLS is not included. The stages
with HTTP/2 include the copies of the memory streams.
"""

import base64
import math
import os
import time

import h2.config
import h2.connection
import msgspec
import trio
import trio.testing

from efo.consumer.deaggregator import Deaggregator
from efo.events import ignore_events
from efo.kinesis.connection import Connection
from efo.kinesis.subscribe_call import EventStream
from efo.model import Checkpoint
from efo.protocol.aggregation import AggregateEntry, AggregateMode, aggregate
from efo.protocol.eventstream import EventStreamDecoder, encode
from efo.protocol.messages import SubscribeToShardEvent, parse_message

EVENT_HEADERS = {
    ":event-type": "SubscribeToShardEvent",
    ":content-type": "application/x-amz-json-1.1",
    ":message-type": "event",
}
READ_BYTES = 64 * 1024
WIRE_BYTES = 48 * 1024 * 1024
PER_AGGREGATE = 50
REPEATS = 3
REQUEST = [(":method", "POST"), (":scheme", "https"), (":authority", "peer"), (":path", "/")]


def data_path(size):
    """Measure all stages with user records of `size` bytes; return a row per stage, the best of three runs."""
    plain = event([os.urandom(size) for _ in range(200_000 // size)])
    packed = event([aggregate(entries(size)) for _ in range(4)])
    rows = []
    for stage, event_bytes, count in (
        ("frames", plain, decode),
        ("frames, events", plain, lambda frames: decode(frames, parsed=True)),
        ("frames, events, aggregates", packed, lambda frames: decode(frames, parsed=True, deaggregated=True)),
        ("HTTP/2", plain, lambda frames: trio.run(over_http2, frames, False)),
        ("HTTP/2, frames, events", plain, lambda frames: trio.run(over_http2, frames, True)),
    ):
        frames = [event_bytes] * (WIRE_BYTES // len(event_bytes))
        cpu = math.inf
        for _ in range(REPEATS):
            began = time.process_time()
            records = count(frames)
            cpu = min(cpu, time.process_time() - began)
        wire = sum(map(len, frames))
        rows.append(
            {
                "stage": stage,
                "record_bytes": size,
                "wire_mb_per_cpu_s": round(wire / cpu / 1e6),
                "records_per_cpu_s": round(records / cpu) if records else None,
            }
        )
    return rows


def entries(size):
    return (AggregateEntry(f"key-{n}", os.urandom(size)) for n in range(PER_AGGREGATE))


def event(blobs):
    records = [
        {
            "ApproximateArrivalTimestamp": 1.7e9 + n,
            "Data": base64.b64encode(blob).decode(),
            "PartitionKey": f"key-{n}",
            "SequenceNumber": str(10**55 + n),
            "EncryptionType": "NONE",
        }
        for n, blob in enumerate(blobs)
    ]
    body = {"Records": records, "MillisBehindLatest": 0, "ContinuationSequenceNumber": str(10**55 + len(records))}
    return encode(EVENT_HEADERS, msgspec.json.encode(body))


def decode(frames, *, parsed=False, deaggregated=False):
    """Decode the frames in chunks, as a response stream returns them; return the number of records."""
    decoder = EventStreamDecoder()
    deaggregator = Deaggregator("shard", None, AggregateMode.KEEP, ignore_events)
    count = 0
    wire = memoryview(b"".join(frames))
    for at in range(0, len(wire), READ_BYTES):
        decoder.receive_data(wire[at : at + READ_BYTES])
        for message in decoder.messages():
            if parsed:
                event = parse_message(message)
                assert isinstance(event, SubscribeToShardEvent)
                if not deaggregated:
                    count += len(event.records)
                    continue
                for part in deaggregator.deaggregate(event.records, Checkpoint.TRIM_HORIZON):
                    count += len(part.records)
    return count


async def over_http2(frames, parsed):
    """Receive the frames over a Connection whose peer sends prepared bytes; return the number of records."""
    outgoing, incoming = trio.testing.MemorySendStream(), trio.testing.MemoryReceiveStream()
    connection = Connection(
        trio.StapledStream(outgoing, incoming), address="peer", stream_window=2**30, connection_window=2**30
    )
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.initiate_connection()
    incoming.put_data(server.data_to_send())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        await connection.wait_ready()
        response_stream = await connection.request(REQUEST, b"")
        await trio.testing.wait_all_tasks_blocked()
        server.receive_data(await outgoing.get_data())
        server.send_headers(response_stream.stream_id, [(":status", "200")])
        incoming.put_data(server.data_to_send())
        nursery.start_soon(feed, incoming, b"".join(frames), response_stream.stream_id)
        await response_stream.response()
        count = await read(response_stream, sum(map(len, frames)), parsed)
        nursery.cancel_scope.cancel()
    return count


async def feed(stream, data, stream_id):
    """Send DATA frames, sixteen at a time, about what a socket returns at once."""
    view = memoryview(data)
    header = (16_384).to_bytes(3) + b"\0\0" + stream_id.to_bytes(4)
    for at in range(0, len(view) // 16_384 * 16_384, 16 * 16_384):
        pieces = range(at, min(at + 16 * 16_384, len(view) // 16_384 * 16_384), 16_384)
        stream.put_data(b"".join(part for n in pieces for part in (header, view[n : n + 16_384])))
        await trio.lowlevel.checkpoint()


async def read(response_stream, total, parsed):
    events = EventStream(response_stream)
    if not parsed:
        taken = 0
        while taken < total // 16_384 * 16_384:
            taken += len(await response_stream.receive())
        return 0
    count, total_size = 0, 0
    while True:
        received = await events.receive()
        assert received is not None
        count += len(received[0].records)
        total_size += received[1]
        if total_size + received[1] > total // 16_384 * 16_384:
            return count
