"""What is put into a world's stream, and how its shards are split and merged."""

from __future__ import annotations

from random import Random
from typing import Final

from efo.model import MAX_HASH_KEY
from efo.protocol import aggregation as kpl
from efo.testing import FakeKinesis
from proofs.simulation.plan import Deed, Plan
from proofs.simulation.readers import Tell
from proofs.simulation.story import Put, Resharded

STREAM: Final = "orders"
MOST_SHARDS: Final = 8
STRAYS: Final = 0.1
"""The share of an aggregate's records whose keys are another shard's."""


class Producer:
    """Puts records and reshards; `splits` and `merges` are counted, `shards` are all that there ever were."""

    def __init__(self, fake: FakeKinesis, plan: Plan, random: Random, tell: Tell) -> None:
        self.splits = 0
        self.merges = 0
        self._fake = fake
        self._plan = plan
        self._random = random
        self._tell = tell
        self._keys = [f"k{n}" for n in range(plan.keys)]
        self._hashes = {key: kpl.hash_key(key) for key in self._keys}
        self._numbers = dict.fromkeys(self._keys, 0)
        bounds = [n * (MAX_HASH_KEY + 1) // plan.shards for n in range(plan.shards + 1)]
        fake.create_stream(STREAM, plan.shards)
        self._ranges = {s: (bounds[n], bounds[n + 1] - 1) for n, s in enumerate(fake.open_shards(STREAM))}

    @property
    def shards(self) -> tuple[str, ...]:
        """All shards that there ever were."""
        return tuple(self._ranges)

    @property
    def _millis(self) -> int:
        return int(self._fake.clock() * 1000)

    def put(self, records: int) -> None:
        """Put so many plain records, of keys at random."""
        for _ in range(records):
            key = self._random.choice(self._keys)
            number, data = self._next(key)
            shard, sequence = self._fake.put(STREAM, key, data)
            self._tell(Put(shard, (int(sequence), 0), key, number, self._millis))

    def _next(self, key: str) -> tuple[int, bytes]:
        number = self._numbers[key]
        self._numbers[key] += 1
        return number, b"%s:%d|%s" % (key.encode(), number, b"x" * self._plan.padding)

    def aggregate(self) -> None:
        """Put a KPL aggregate of one shard's keys; strays of other shards are in it, as after a reshard."""
        first = self._random.choice(self._keys)
        home = next(s for s in self._fake.open_shards(STREAM) if self._is_in(s, first))
        keys = [key for key in self._keys if self._is_in(home, key)]
        strays = [key for key in self._keys if not self._is_in(home, key)]
        entries: list[kpl.Entry] = []
        puts: list[tuple[int, str, int]] = []
        for sub in range(self._random.randint(1, 10)):
            if strays and self._random.random() < STRAYS:
                entries.append(kpl.Entry(self._random.choice(strays), b"stray"))
                continue
            key = self._random.choice(keys)
            number, data = self._next(key)
            entries.append(kpl.Entry(key, data))
            puts.append((sub, key, number))
        shard, sequence = self._fake.put(STREAM, first, kpl.aggregate(entries))
        for sub, key, number in puts:
            self._tell(Put(shard, (int(sequence), sub), key, number, self._millis))

    def _is_in(self, shard: str, key: str) -> bool:
        start, end = self._ranges[shard]
        return start <= self._hashes[key] <= end

    def reshard(self, deed: Deed) -> None:
        """Split a shard, or merge two, where that is possible."""
        shards = self._fake.open_shards(STREAM)
        if deed == "split" and len(shards) < MOST_SHARDS:
            parent = self._random.choice(shards)
            start, end = self._ranges[parent]
            middle = (start + end) // 2
            children = self._fake.split(STREAM, parent, middle + 1)
            self._ranges |= {children[0]: (start, middle), children[1]: (middle + 1, end)}
            self._tell(Resharded((parent,), children))
            self.splits += 1
        elif deed == "merge" and len(shards) > 1:
            at = self._random.randrange(len(shards) - 1)
            left, right = shards[at : at + 2]
            child = self._fake.merge(STREAM, left, right)
            self._ranges[child] = (self._ranges[left][0], self._ranges[right][1])
            self._tell(Resharded((left, right), (child,)))
            self.merges += 1
