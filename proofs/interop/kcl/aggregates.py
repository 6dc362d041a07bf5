"""KCL reads the KPL aggregates that efo's producer makes, through a split: each user record once, as it was put."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import trio

from efo.events import ShardMapChanged
from efo.producer.opening import open_producer
from efo.producer.settings import ProducerSettings
from efo.testing import FakeKinesis, FakeSettings
from proofs.interop.clients.runner import InteropError, build, is_reading, running
from proofs.interop.clients.transcript import ReportedRecord
from proofs.interop.kcl.workers import KCL_CLIENT

RECORDS: Final = 3_000
_KEYS: Final = 97
_BURST: Final = 60
_PAUSE: Final = 0.25
"""User records that are put together, and seconds between them: so an aggregate has some, and others come later."""
_READY_TIMEOUT: Final = 240.0
_READ_TIMEOUT: Final = 60.0
_LINGER: Final = 3.0
"""Seconds after the last record: duplicates arrive in this time."""

Place = tuple[str, str, int]
"""Shard, sequence number, and the index of a user record in its aggregate."""


class User(NamedTuple):
    """A user record. `explicit`: its explicit hash key; None if it has none."""

    key: str
    explicit: str | None
    data: bytes


def user_of(number: int) -> User:
    """Return a user record: every third has an explicit hash key, some have no data, and keys are not only ASCII."""
    explicit = str((number * 2**128 // RECORDS + 7) % 2**128) if number % 3 == 0 else None
    data = b"" if number % 50 == 0 else b"%d:" % number + bytes(range(256)) * (number % 4)
    return User(f"clé-{number % _KEYS}", explicit, data)


@dataclass(frozen=True, slots=True)
class Deaggregated:
    """The figures. `aggregates`: Kinesis records that have several user records.

    `repeated`: user records that the producer sent again, since they had arrived in a shard that had been split.
    `read_twice`: those of them that KCL has delivered from there too; it drops them once it knows the range of the
    shard. `unexpected`: what was never put. `wrong`: with another key, explicit hash key or data.
    """

    records: int
    aggregates: int
    explicit_hash_keys: int
    repeated: int
    read_twice: int
    lost: int
    duplicated: int
    unexpected: int
    wrong: int

    @property
    def passed(self) -> bool:
        """Whether KCL delivered each user record once and unchanged, and there was something to show it.

        Only what the producer has sent again may be delivered again.
        """
        shown = self.records and self.aggregates and self.explicit_hash_keys
        failures = self.lost or self.duplicated or self.unexpected or self.wrong
        return bool(shown) and not failures and self.read_twice <= self.repeated


def compare(put: Mapping[Place, User], reported: Sequence[ReportedRecord], repeated: int = 0) -> Deaggregated:
    """Compare what KCL delivered with what was put, place by place. Pure.

    Kinesis does not return the explicit hash key of a record that was put alone; an aggregate has it.
    """
    of_kinesis = Counter((shard, sequence) for shard, sequence, _ in put)
    aggregates = {place for place, count in of_kinesis.items() if count > 1}
    seen = Counter((record.shard, record.sequence, int(record.sub)) for record in reported)
    known = set(put.values())
    wrong = twice = unexpected = 0
    for record in reported:
        read = User(record.key, record.explicit, record.data)
        user = put.get((record.shard, record.sequence, int(record.sub)))
        if user is None:
            twice += read in known
            unexpected += read not in known
        elif (record.shard, record.sequence) in aggregates:
            wrong += read != user
        else:
            wrong += read != user._replace(explicit=None)
    return Deaggregated(
        records=len(reported),
        aggregates=len(aggregates),
        explicit_hash_keys=sum(record.explicit is not None for record in reported),
        repeated=repeated,
        read_twice=twice,
        lost=len(put.keys() - seen.keys()),
        duplicated=sum(seen.values()) - len(seen),
        unexpected=unexpected,
        wrong=wrong,
    )


async def run_aggregates(progress: Callable[[str], None]) -> Deaggregated:
    """Let KCL read what efo's producer puts. Raises InteropError."""
    progress("building KCL's worker")
    await build(KCL_CLIENT)
    stream = KCL_CLIENT.name
    async with FakeKinesis(settings=FakeSettings(), clock=time.time) as fake, fake.serve() as address:
        fake.create_stream(stream, 3)
        async with running(KCL_CLIENT, address) as process:
            progress("starting KCL (takes about two minutes)")
            if not await process.until(lambda: is_reading(KCL_CLIENT, fake, process.transcript), _READY_TIMEOUT):
                raise process.failed(f"did not read every shard within {_READY_TIMEOUT:.0f} s")
            progress("KCL reads; efo's producer puts aggregates")
            put, repeated = await _put(fake, stream)
            progress("waiting for the last records")
            await process.until(lambda: len(process.transcript.records) >= len(put), _READ_TIMEOUT)
            await trio.sleep(_LINGER)
    return compare(put, process.transcript.records, repeated)


async def _put(fake: FakeKinesis, stream: str) -> tuple[dict[Place, User], int]:
    """Put all user records, and split a shard meanwhile; return where they are, and how many were sent again."""
    users = [user_of(number) for number in range(RECORDS)]
    changes: list[ShardMapChanged] = []
    deliveries = []

    def observe(event: object) -> None:
        if isinstance(event, ShardMapChanged):
            changes.append(event)

    settings = ProducerSettings(aggregate=True, aggregate_bytes=8_000)
    async with open_producer(fake.kinesis(stream), settings=settings, observer=observe) as producer:
        for start in range(0, RECORDS, _BURST):
            if start == RECORDS // 2:
                fake.split(stream, fake.open_shards(stream)[0])
            deliveries += [
                await producer.put(user.data, user.key, user.explicit) for user in users[start : start + _BURST]
            ]
            await trio.sleep(_PAUSE)
        await producer.flush()
        results = [await delivery for delivery in deliveries]
    if not changes:
        raise InteropError("the producer has not noticed the split")
    places = [(result.shard_id, result.sequence_number, result.sub_sequence_number) for result in results]
    return dict(zip(places, users, strict=True)), sum(change.repeated for change in changes)
