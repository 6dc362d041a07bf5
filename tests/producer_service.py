"""A model of the service for tests of the producer's decisions: shards, which can be resharded, and their records."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

from efo.errors import EfoError, InternalFailureError, ServiceError, SilenceError, ThrottledError
from efo.model import MAX_HASH_KEY, HashKeyRange, Record, Shard
from efo.producer.entry import AcceptedRecord, Entry
from efo.protocol.aggregation import AggregateMode, hash_key
from efo.protocol.deaggregation import deaggregate
from efo.protocol.lineage import ancestor_ranges

THROTTLED = ThrottledError("ProvisionedThroughputExceededException", "Rate exceeded")
FAILED = InternalFailureError("InternalFailure", "")
NO_KEY = ServiceError("ValidationException", "Member must not be null", status=400)


class Service:
    """Shards with their records. `log`: what each shard stores, in order.

    `is_auto`: it places the records itself, and they need no partition keys (strategy AUTO).
    """

    def __init__(self, shards: int) -> None:
        self._numbers = 0
        self.is_auto = False
        self.open: list[Shard] = []
        self.all: list[Shard] = []
        self.log: dict[str, list[Record]] = {}
        bounds = [i * (MAX_HASH_KEY + 1) // shards for i in range(shards + 1)]
        for start, following in pairwise(bounds):
            self._add(start, following - 1)

    def _add(self, start: int, end: int, *parents: Shard) -> None:
        first, second = (*(parent.shard_id for parent in parents), None, None)[:2]
        keys = HashKeyRange(str(start), str(end))
        shard = Shard(f"shardId-{len(self.all):012}", keys, "1", None, first, second)
        self.all.append(shard)
        self.open.append(shard)
        self.log[shard.shard_id] = []

    def listing(self) -> list[Shard]:
        opened = {shard.shard_id for shard in self.open}
        return [shard if shard.shard_id in opened else replace(shard, ending_sequence_number="9") for shard in self.all]

    def reshard(self, random: Random) -> None:
        if len(self.open) > 1 and random.random() < 0.4:
            ordered = sorted(self.open, key=lambda shard: int(shard.hash_key_range.starting_hash_key))
            at = random.randrange(len(ordered) - 1)
            left, right = ordered[at : at + 2]
            self.open = [shard for shard in self.open if shard not in (left, right)]
            self._add(
                int(left.hash_key_range.starting_hash_key), int(right.hash_key_range.ending_hash_key), left, right
            )
        else:
            parent = random.choice(self.open)
            first, last = int(parent.hash_key_range.starting_hash_key), int(parent.hash_key_range.ending_hash_key)
            if last - first < 16:
                return
            self.open.remove(parent)
            middle = random.randint(first + 4, last - 4)
            self._add(first, middle, parent)
            self._add(middle + 1, last, parent)

    def store(self, entry: Entry) -> AcceptedRecord:
        self._numbers += 1
        if self.is_auto:
            shard = self.open[self._numbers % len(self.open)]
        else:
            at = hash_key(entry.partition_key, entry.explicit_hash_key)
            [shard] = [shard for shard in self.open if at in shard.hash_key_range]
        record = Record(str(self._numbers), 0.0, entry.data, entry.partition_key)
        self.log[shard.shard_id].append(record)
        return AcceptedRecord(shard.shard_id, record.sequence_number)

    def put_records(self, entries: list[Entry], random: Random, failing: float) -> list[AcceptedRecord | EfoError]:
        """Store the entries in any order, as PutRecords may; some of them fail.

        One that lacks its key takes all along.
        """
        if not self.is_auto and any(entry.partition_key is None for entry in entries):
            return [NO_KEY] * len(entries)
        results: dict[int, AcceptedRecord | EfoError] = {}
        for position in random.sample(range(len(entries)), len(entries)):
            if random.random() < failing:
                results[position] = random.choice((THROTTLED, FAILED))
            else:
                results[position] = self.store(entries[position])
        return [results[position] for position in range(len(entries))]

    def read(self, mode: AggregateMode) -> list[Record]:
        """Return the user records of all shards, parents before their children, as a reader with this mode has them."""
        found: list[Record] = []
        listed = {shard.shard_id: shard for shard in self.all}
        for shard in self.all:  # in the order of their creation
            ancestors = ancestor_ranges(shard.shard_id, {}, listed)
            for record in self.log[shard.shard_id]:
                found += deaggregate(record, shard.hash_key_range, mode, ancestors=ancestors).records
        return found


SILENCE = SilenceError("no response")
