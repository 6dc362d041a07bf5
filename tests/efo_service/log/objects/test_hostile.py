"""Records whose checksum is right and whose Arrow metadata is wrong: refused, and no process ends by them."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import random
from zlib import crc32

import msgspec
import pyarrow as pa

from efo_service.relay.errors import SegmentCorruptError
from efo_service.log import segments
from efo_service.log.disk_writer import segment_content
from efo_service.log.objects import codec
from tests.efo_service.log.objects.logs import Log, STREAM

import pathlib, sys
from efo_service.relay import doubt
doubt.PAUSE = 0.0  # damage is read again at once
directory = pathlib.Path(sys.argv[1])
log = Log()
writer = log.writer()
log.append(writer, 200)
stored = next(one.content for key, one in log.memory.objects.items() if key.endswith("00001"))
header, batch = codec.decode(stored, "x")
body = codec._encode_records(batch)
origin = segments.Origin(STREAM, "shard", codec.checkpoint("1"), codec.checkpoint("2"), 0.0)
contents = [segment_content(batch, origin, is_compressed=one) for one in (False, True)]
files = [b"".join(map(bytes, content.chunks)) for content in contents]
counts = {"refused": 0, "read": 0}


def spoiled(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def attempt(read):
    try:
        rows = read().drop_columns(["timestamp"]).to_pylist()  # any number is a time
    except SegmentCorruptError:
        counts["refused"] += 1
    else:
        assert len(rows) == 200
        counts["read"] += 1


for seed in range(150):
    rng = random.Random(seed)
    bad = spoiled(body, rng)
    text = msgspec.json.encode(msgspec.structs.replace(header, size=len(bad), crc=crc32(bad)))
    line = b"efo-object-log 1 %08d %08x\\n" % (len(text), crc32(text))
    attempt(lambda: codec.decode(line + text + bad, "x")[1])
    for file in files:
        bad = spoiled(file, rng)
        segment = segments.Segment(contents[0].base, contents[0].end, crc32(bad), directory)
        segment.path.write_bytes(bad)
        segments.memory_of(segment)
        attempt(lambda: segments.read_segment(segment, mapped=bool(seed % 2))[0])
        segment.path.unlink()
print(counts["refused"], counts["read"])
"""


def test_arrow_that_leads_outside_is_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    refused, read = map(int, done.stdout.split())
    assert refused > 200
    assert read > 0
