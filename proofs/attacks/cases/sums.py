"""Many parts that are each within their limit, and what they come to together."""

from __future__ import annotations

import gzip
import random
import resource
import time
from typing import Final

import trio
from backports import zstd

from efo.model import Batch, Record
from proofs.attacks.consuming import consumed, outcome
from proofs.attacks.programs import Ended, world
from proofs.situations.situation import Cases, Outcome

cases = Cases("sums", seconds=300)

_MIB: Final = 1 << 20
_ROOM: Final = 250
"""MiB that a process may have at most: less than a tenth of what the records become without their compression."""
_BOMB: Final = gzip.compress(bytes(16 * _MIB))


@cases.case(
    "in several batches, each acked by itself; no step of 50 ms", name="a megabyte of the stream is a gibibyte of gzip"
)
def _() -> Outcome:
    seen = consumed("read = d.gzip(d.raw)", *[_BOMB] * 64)
    did = f"64 records of {len(_BOMB) >> 10} KiB in calls of at most {max(seen.sizes, default=0)} records"
    return outcome(seen, did, sum(seen.sizes) == 64 and max(seen.sizes) <= 2 and seen.rss < _ROOM)


@cases.case("each after a turn of the loop", name="the same, with a handler of single records")
def _() -> Outcome:
    seen = consumed("read = d.gzip(d.raw)", *[_BOMB] * 64, single=True)
    return outcome(seen, f"{sum(seen.sizes)} of 64 records", sum(seen.sizes) == 64 and seen.rss < _ROOM)


@cases.case("in several batches; no step of 50 ms", name="600 bytes each are 3 GiB of Zstandard")
def _() -> Outcome:
    bomb = zstd.compress(bytes(16 * _MIB))
    seen = consumed("read = d.zstd(d.raw)", *[bomb] * 200)
    did = f"200 records of {len(bomb)} bytes in calls of at most {max(seen.sizes, default=0)} records"
    return outcome(seen, did, sum(seen.sizes) == 200 and seen.rss < _ROOM)


@cases.case("in several batches; no step of 50 ms", name="layers within layers, of which each is within its limit")
def _() -> Outcome:
    bomb = gzip.compress(gzip.compress(bytes(15 * _MIB)))
    seen = consumed("read = d.gzip(d.gzip(d.raw))", *[bomb] * 100)
    return outcome(seen, f"{sum(seen.sizes)} of 100 records", sum(seen.sizes) == 100 and seen.rss < _ROOM)


@cases.case("in several batches; bounded", name="JSON of many values in many records")
def _() -> Outcome:
    data = gzip.compress(b"[" + b'"ab",' * 200_000 + b"0]")
    seen = consumed("read = d.gzip(d.json())", *[data] * 60)
    did = f"60 records in calls of at most {max(seen.sizes, default=0)} records"
    return outcome(seen, did, sum(seen.sizes) == 60 and seen.rss < 3 * _ROOM)


@cases.case(
    "one poisoned record is dead-lettered, the others are handled once", name="a bomb among bombs that is damaged"
)
def _() -> Outcome:
    records = [_BOMB] * 20
    records[7] = _BOMB[:-9]
    seen = consumed("read = d.gzip(d.raw)", *records)
    did = f"{sum(seen.sizes)} handled, {len(seen.dead_letters)} dead letters"
    return outcome(seen, did, sum(seen.sizes) == 19 and len(seen.dead_letters) == 1 and seen.rss < _ROOM)


@cases.case("a few are kept, by their size", name="2,000 schemas of 100 KB, each named by a record")
def _() -> Outcome:
    make = """
schemas = {n: '"long"' + " " * 100_000 + str(n)[:0] for n in range(2000)}
read = d.confluent(d.by_schema(schemas, d.avro))
"""
    seen = consumed(make, *[b"\0" + number.to_bytes(4) + b"\x02" for number in range(2000)])
    return outcome(seen, f"{sum(seen.sizes)} of 2,000 records", sum(seen.sizes) == 2000 and seen.rss < 2 * _ROOM)


# --- Spark's Python workers -----------------------------------------------------------------------------------------

_WORKER: Final = """
import gzip, json, resource
import pyarrow as pa
from efo_service.spark.pipeline.unwrapping import unwrapped_arrays
bomb = gzip.compress(bytes(16 << 20))
rows, largest, before = 0, 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
for array in unwrapped_arrays(("gzip",), iter([pa.array([bomb] * 100, pa.binary())])):
    rows, largest = rows + len(array), max(largest, array.nbytes)
print(json.dumps([rows, largest >> 20, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10) - before]))
"""
_SPARK: Final = """
import gzip, json
from pathlib import Path
import pyarrow.parquet
from efo_service.spark.session import spark_session
from efo_service.spark.pipeline.decoding import Decoding, decode, decoded_rows
bomb = bytearray(gzip.compress(bytes(16 << 20)))
decoding = Decoding("raw", unwrap=("gzip",))
with spark_session("attack", quick=True) as spark:
    frame = spark.createDataFrame([(bomb,)] * 60, "value binary").coalesce(1)
    decoded_rows(decode(frame, decoding), decoding).select("data").write.parquet("out")
rows = size = 0
for path in Path("out").glob("*.parquet"):
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1):
        rows, size = rows + 1, size + len(batch.column(0)[0].as_py())
print(json.dumps([rows, size]))
"""


@cases.case("returned to Spark a few at a time", name="Spark: a batch of a worker that is 1.6 GiB without its layer")
def _() -> Outcome:
    with world() as here:
        ended = here.wait(here.start("-c", _WORKER), 100)
    rows, largest, grown = _numbers(ended)
    return Outcome(
        f"{rows:g} rows, at most {largest:g} MiB at once; the process grew by {grown:g} MiB",
        ended.status == 0 and rows == 100 and largest <= 32 and grown < _ROOM,
    )


@cases.case(
    "written, with a heap of a gibibyte", name="Spark: 60 rows that are a gibibyte, written as Parquet", seconds=600
)
def _() -> Outcome:
    with world() as here:
        ended = here.wait(here.start("-c", _SPARK), 500)
    rows, size, *_ = [*_numbers(ended), 0, 0]
    return Outcome(f"{rows:g} rows, {size / _MIB:g} MiB, exit {ended.status}", ended.status == 0 and rows == 60)


def _numbers(ended: Ended) -> list[float]:
    import json  # noqa: PLC0415 - for this alone

    lines = [line for line in ended.out.splitlines() if line.startswith("[")]
    return list(json.loads(lines[-1])) if lines else [0, 0, 0]


# --- the relay ------------------------------------------------------------------------------------------------------


@cases.case("bounded together", name="relay: 300 shards that lag, and a sink that takes nothing")
async def _() -> Outcome:
    from efo_service.relay.write_buffer import Room  # noqa: PLC0415 - of the service
    from tests.efo_service.relay.test_relay import FakeShard, FakeSink, relay_shard  # noqa: PLC0415 - scripted, for this alone

    room, data = Room(64 * _MIB), random.Random(1).randbytes(200_000)
    records = [Record(str(10**20 + n), time.time(), data, "key") for n in range(8)]
    batches = [(0.0, Batch("orders", FakeShard.shard_id, (record,), "1", 0, n)) for n, record in enumerate(records)]
    sinks = [FakeSink(seconds=3600) for _ in range(300)]
    with trio.move_on_after(5):
        async with trio.open_nursery() as nursery:
            for sink in sinks:
                nursery.start_soon(relay_one, relay_shard, FakeShard(*batches, stay=True), sink, room)
    first, all_of_it = 300 * len(data) >> 20, 300 * len(records) * len(data) >> 20
    held = (sum(sink.held for sink in sinks) - 300 * len(data)) >> 20
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    did = f"{held} MiB wait in 300 buffers beside {first} MiB in commits, of {all_of_it} MiB; the process has {rss} MiB"
    return Outcome(did, held < 64)


async def relay_one(relay: object, shard: object, sink: object, room: object) -> None:
    """Relay one shard."""
    assert callable(relay)
    await relay(shard, sink, room=room)
