"""The producers of aggregates in a world: the KPL, whose shard map may be old, and others that know no shards (R17).

The KPL aggregates records of one shard, and puts an aggregate under the key "a" and the hash key of its first record.
It learns from each response in which shard that arrived. If it is not the predicted one, it puts those records again
that are outside the range of this shard, and lists the shards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from efo.model import MAX_HASH_KEY
from efo.protocol import aggregation as kpl
from efo.protocol.aggregation import AGGREGATE_KEY
from efo.testing import FakeKinesis
from proofs.simulation.readers import AddLine
from proofs.simulation.story import Aggregated, Put

FOREIGN_SHARE: Final = 0.3
"""The share of aggregates that another producer than the KPL puts."""
PROCESSES: Final = 5
"""How many processes use the KPL, each with a shard map of its own: one that puts little has an old one."""
MAX_USERS: Final = 10

Numbered = tuple[str, int, bytes]
"""The key of a user record, its number in its key, and its data."""


class Aggregates:
    """Puts aggregates into one stream.

    `ranges`: of all shards. `parents`: of the shards that have any. `keys`: of the KPL's records. `number`: gives the
    next record of a key its number and its data. `millis`: the clock of the service.
    """

    def __init__(
        self,
        fake: FakeKinesis,
        stream: str,
        random: Random,
        *,
        ranges: Mapping[str, tuple[int, int]],
        parents: Mapping[str, Sequence[str]],
        keys: Sequence[str],
        number: Callable[[str], tuple[int, bytes]],
        millis: Callable[[], int],
        add_line: AddLine,
    ) -> None:
        self._fake = fake
        self._stream = stream
        self._random = random
        self._ranges = ranges
        self._parents = parents
        self._keys = keys
        self._number = number
        self._millis = millis
        self._add_line = add_line
        self._maps = [fake.open_shards(stream)] * PROCESSES
        self._foreign = 0

    def put(self, *, may_be_of_kpl: bool) -> None:
        """Put an aggregate of either kind."""
        if not may_be_of_kpl or self._random.random() < FOREIGN_SHARE:
            self._put_foreign()
            return
        process = self._random.randrange(PROCESSES)
        home = self._predicted(process, self._random.choice(self._keys))
        keys = [key for key in self._keys if self._is_in(home, key)]
        chosen = self._random.choices(keys, k=self._random.randint(1, MAX_USERS))
        self._put_of_kpl(process, home, [(key, *self._number(key)) for key in chosen])

    def _put_of_kpl(self, process: int, predicted: str, users: list[Numbered]) -> None:
        """Put user records that a process predicts for one shard; and again those that are outside the actual one."""
        if len(users) == 1:
            [(key, number, data)] = users
            shard, sequence = self._fake.put(self._stream, key, data)
            self._add_line(Put(shard, (int(sequence), 0), key, number, self._millis()))
            return
        first = kpl.hash_key(users[0][0])
        content = kpl.aggregate(kpl.AggregateEntry(key, data) for key, _, data in users)
        shard, sequence = self._fake.put(self._stream, AGGREGATE_KEY, content, str(first))
        outside: list[Numbered] = []
        for sub, user in enumerate(users):
            if self._is_in(shard, user[0]):
                self._add_line(Put(shard, (int(sequence), sub), user[0], user[1], self._millis()))
            else:
                outside.append(user)
        generations = self._generations(shard, predicted)
        self._add_line(Aggregated(shard, int(sequence), len(outside), is_put_again=True, generations=generations))
        if shard != predicted:
            self._maps[process] = self._fake.open_shards(self._stream)
        homes: dict[str, list[Numbered]] = {}
        for user in outside:
            homes.setdefault(self._predicted(process, user[0]), []).append(user)
        for home, again in homes.items():
            self._put_of_kpl(process, home, again)

    def _put_foreign(self) -> None:
        """Put an aggregate of records with any hash keys. No other record has their keys: they have no order."""
        entries: list[kpl.AggregateEntry] = []
        for _ in range(self._random.randint(2, MAX_USERS)):
            self._foreign += 1
            key = f"f{self._foreign}"
            explicit = str(self._random.randint(0, MAX_HASH_KEY)) if self._random.random() < 0.2 else None
            entries.append(kpl.AggregateEntry(key, b"%s:0|" % key.encode(), explicit))
        first = entries[0]
        outer, explicit = self._random.choice(
            (
                (first.partition_key, None),
                (first.partition_key, str(kpl.hash_key(first.partition_key, first.explicit_hash_key))),
                (f"{self._random.random()}", None),
            )
        )
        shard, sequence = self._fake.put(self._stream, outer, kpl.aggregate(entries), explicit)
        start, end = self._ranges[shard]
        outside = 0
        for sub, entry in enumerate(entries):
            outside += not start <= kpl.hash_key(entry.partition_key, entry.explicit_hash_key) <= end
            self._add_line(Put(shard, (int(sequence), sub), entry.partition_key, 0, self._millis()))
        self._add_line(Aggregated(shard, int(sequence), outside))

    def _predicted(self, process: int, key: str) -> str:
        return next(shard for shard in self._maps[process] if self._is_in(shard, key))

    def _is_in(self, shard: str, key: str) -> bool:
        start, end = self._ranges[shard]
        return start <= kpl.hash_key(key) <= end

    def _generations(self, shard: str, ancestor: str) -> int:
        """Return how many generations a shard is younger than an ancestor."""
        generation, count = {shard}, 0
        while ancestor not in generation:
            generation = {parent for each in generation for parent in self._parents.get(each, ())}
            count += 1
        return count
