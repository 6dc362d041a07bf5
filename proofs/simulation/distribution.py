"""What is put into a stream while Kinesis distributes its records over the shards (AUTO), and changes to it and back.

Such records have no order, with a partition key or without one, since the next record of a key may go to another shard.
So each has an identity that no other record has: the checks then expect it once, wherever it is.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from efo.protocol import aggregation as kpl
from efo.testing import FakeKinesis
from proofs.simulation.readers import AddLine
from proofs.simulation.story import BY_KEY, DISTRIBUTED, Acted, Put

KEYED_SHARE: Final = 0.2
"""The share of records and aggregates that have a partition key although the stream needs none."""
MAX_USERS: Final = 10


class Distribution:
    """Puts records into a stream while `is_auto`. `padding`: filler bytes per record. `millis`: the service's clock."""

    def __init__(
        self,
        fake: FakeKinesis,
        stream: str,
        random: Random,
        *,
        padding: int,
        millis: Callable[[], int],
        add_line: AddLine,
    ) -> None:
        self.is_auto = False
        self._fake = fake
        self._stream = stream
        self._random = random
        self._padding = b"x" * padding
        self._millis = millis
        self._add_line = add_line
        self._count = 0

    def change(self) -> None:
        """Change to AUTO, or back to USER_PARTITION_KEY."""
        self.is_auto = not self.is_auto
        self._fake.distribute(self._stream, "AUTO" if self.is_auto else "USER_PARTITION_KEY")
        self._add_line(Acted(DISTRIBUTED if self.is_auto else BY_KEY))

    def put(self, count: int) -> None:
        """Put `count` records, most of them without a partition key."""
        for _ in range(count):
            identity, data = self._next()
            has_key = self._random.random() < KEYED_SHARE
            shard, sequence = self._fake.put(self._stream, identity if has_key else None, data)
            self._add_line(Put(shard, (int(sequence), 0), identity, 0, self._millis(), has_key))

    def aggregate(self, *, may_have_key: bool) -> None:
        """Put an aggregate, mostly without a partition key. The hash keys of its user records belong to any shard.

        `may_have_key`: with a key it is one of another producer than the KPL, which is delivered whole (R17).
        """
        users = [self._next() for _ in range(self._random.randint(1, MAX_USERS))]
        data = kpl.aggregate(kpl.AggregateEntry(identity, data) for identity, data in users)
        has_key = may_have_key and self._random.random() < KEYED_SHARE
        shard, sequence = self._fake.put(self._stream, users[0][0] if has_key else None, data)
        for sub, (identity, _) in enumerate(users):
            self._add_line(Put(shard, (int(sequence), sub), identity, 0, self._millis(), has_key))

    def _next(self) -> tuple[str, bytes]:
        """Return the identity and the data of the next record."""
        self._count += 1
        identity = f"auto{self._count}"
        return identity, b"%s:0|%s" % (identity.encode(), self._padding)
