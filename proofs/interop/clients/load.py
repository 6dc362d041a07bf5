"""The load that every client reads: numbered records of 211 keys, through a split and a merge."""

from __future__ import annotations

import json
from typing import Final

import trio

from efo.testing import FakeKinesis

SHARDS: Final = 4
RECORDS: Final = 4_000
_KEYS: Final = 211
_CHUNK: Final = 40
_PAUSE: Final = 0.15
_FILLER: Final = "x" * 100
"""Makes a record about 150 bytes long."""


def key_of(number: int) -> str:
    """Return the partition key of a record."""
    return f"key-{number % _KEYS:03d}"


def data_of(number: int) -> bytes:
    """Return the data of a record."""
    return json.dumps({"number": number, "filler": _FILLER}).encode()


def number_of(data: bytes) -> int:
    """Return the number of a record. Raise ValueError, KeyError or TypeError for data that `data_of` did not make."""
    return int(json.loads(data)["number"])


async def put_all(fake: FakeKinesis, stream: str) -> dict[str, frozenset[str]]:
    """Put every record; split the first shard after one third of them and merge the last two after two thirds.

    Return the children of each closed shard.
    """
    children: dict[str, frozenset[str]] = {}
    for start in range(0, RECORDS, _CHUNK):
        if not children and start >= RECORDS // 3:
            first = fake.open_shards(stream)[0]
            children[first] = frozenset(fake.split(stream, first))
        if len(children) == 1 and start >= 2 * RECORDS // 3:
            *_, lower, upper = fake.open_shards(stream)
            children[lower] = children[upper] = frozenset({fake.merge(stream, lower, upper)})
        numbers = range(start, min(start + _CHUNK, RECORDS))
        fake.put_many(stream, [(key_of(number), data_of(number)) for number in numbers])
        await trio.sleep(_PAUSE)
    return children
