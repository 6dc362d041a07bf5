"""Puts records into the stream of a world, and splits and merges its shards."""

from __future__ import annotations

from random import Random
from typing import Final

from efo.model import MAX_HASH_KEY
from efo.protocol import aggregation as kpl
from efo.testing import FakeKinesis
from proofs.simulation.aggregates import Aggregates
from proofs.simulation.distribution import Distribution
from proofs.simulation.plan import Action, Plan
from proofs.simulation.readers import AddLine
from proofs.simulation.story import Put, Resharded

MAX_OPEN_SHARDS: Final = 8
STRAY_SHARE: Final = 0.1
"""The share of user records in an aggregate whose keys belong to another shard, if all of those are filtered out."""


class Producer:
    """Puts records and reshards the stream. `splits`, `merges`: how many it did."""

    def __init__(self, fake: FakeKinesis, stream: str, plan: Plan, random: Random, add_line: AddLine) -> None:
        self.splits = 0
        self.merges = 0
        self._fake = fake
        self._stream = stream
        self._plan = plan
        self._random = random
        self._add_line = add_line
        self._keys = [f"k{n}" for n in range(plan.keys)]
        self._hashes = {key: kpl.hash_key(key) for key in self._keys}
        self._numbers = dict.fromkeys(self._keys, 0)
        bounds = [n * (MAX_HASH_KEY + 1) // plan.shards for n in range(plan.shards + 1)]
        self._changes = any(action == "distribute" for _, action in plan.actions)
        fake.create_stream(stream, plan.shards, distribution="USER_PARTITION_KEY" if self._changes else None)
        self._ranges = {s: (bounds[n], bounds[n + 1] - 1) for n, s in enumerate(fake.open_shards(stream))}
        self._parents: dict[str, tuple[str, ...]] = {}
        self._distribution = Distribution(
            fake,
            stream,
            Random(f"{plan.seed}/distribution"),
            padding=plan.padding,
            millis=lambda: self._millis,
            add_line=add_line,
        )
        self._aggregates = Aggregates(
            fake,
            stream,
            Random(f"{plan.seed}/aggregates"),
            ranges=self._ranges,
            parents=self._parents,
            keys=self._keys,
            number=self._next,
            millis=lambda: self._millis,
            add_line=add_line,
        )

    @property
    def shards(self) -> tuple[str, ...]:
        """All shards of the stream, open and closed."""
        return tuple(self._ranges)

    @property
    def _millis(self) -> int:
        return int(self._fake.clock() * 1000)

    def put(self, count: int) -> None:
        """Put `count` records that are not aggregated, with random keys."""
        if self._distribution.is_auto:
            self._distribution.put(count)
            return
        for _ in range(count):
            key = self._random.choice(self._keys)
            number, data = self._next(key)
            shard, sequence = self._fake.put(self._stream, key, data)
            self._add_line(Put(shard, (int(sequence), 0), key, number, self._millis))

    def _next(self, key: str) -> tuple[int, bytes]:
        number = self._numbers[key]
        self._numbers[key] += 1
        return number, b"%s:%d|%s" % (key.encode(), number, b"x" * self._plan.padding)

    def aggregate(self) -> None:
        """Put an aggregate."""
        if self._distribution.is_auto:
            self._distribution.aggregate(may_have_key=self._plan.aggregates != "filter")
        elif self._plan.aggregates == "filter":
            self._aggregate_with_strays()
        else:
            # A consumer that is opened under AUTO filters nothing, also not what the KPL put again before.
            self._aggregates.put(may_be_of_kpl=not self._changes)

    def _aggregate_with_strays(self) -> None:
        """Put a KPL aggregate for one shard, with a few strays: user records of other shards, as after a reshard."""
        first_key = self._random.choice(self._keys)
        home = next(s for s in self._fake.open_shards(self._stream) if self._is_in(s, first_key))
        keys = [key for key in self._keys if self._is_in(home, key)]
        strays = [key for key in self._keys if not self._is_in(home, key)]
        entries: list[kpl.AggregateEntry] = []
        puts: list[tuple[int, str, int]] = []
        for sub in range(self._random.randint(1, 10)):
            if strays and self._random.random() < STRAY_SHARE:
                entries.append(kpl.AggregateEntry(self._random.choice(strays), b"stray"))
                continue
            key = self._random.choice(keys)
            number, data = self._next(key)
            entries.append(kpl.AggregateEntry(key, data))
            puts.append((sub, key, number))
        shard, sequence = self._fake.put(self._stream, first_key, kpl.aggregate(entries))
        for sub, key, number in puts:
            self._add_line(Put(shard, (int(sequence), sub), key, number, self._millis))

    def distribute(self) -> None:
        """Let Kinesis choose the shard of each record from now on, or the hash keys again."""
        self._distribution.change()

    def _is_in(self, shard: str, key: str) -> bool:
        start, end = self._ranges[shard]
        return start <= self._hashes[key] <= end

    def reshard(self, action: Action) -> None:
        """Split a random shard or merge two adjacent ones, if that is possible. `action`: "split" or "merge"."""
        shards = self._fake.open_shards(self._stream)
        if action == "split" and len(shards) < MAX_OPEN_SHARDS:
            parent = self._random.choice(shards)
            start, end = self._ranges[parent]
            middle = (start + end) // 2
            children = self._fake.split(self._stream, parent, middle + 1)
            self._ranges |= {children[0]: (start, middle), children[1]: (middle + 1, end)}
            self._parents |= dict.fromkeys(children, (parent,))
            self._add_line(Resharded((parent,), children, self._millis))
            self.splits += 1
        elif action == "merge" and len(shards) > 1:
            index = self._random.randrange(len(shards) - 1)
            left, right = shards[index : index + 2]
            child = self._fake.merge(self._stream, left, right)
            self._ranges[child] = (self._ranges[left][0], self._ranges[right][1])
            self._parents[child] = (left, right)
            self._add_line(Resharded((left, right), (child,), self._millis))
            self.merges += 1
