"""What a seed decides about a world before it begins: how it is made, and what befalls it when. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Final, Literal

from efo.protocol.failure import FailurePolicy
from efo.protocol.subscription import Timing
from efo.testing import FakeSettings
from efo.testing.faults.kinds import PASSING, Fault
from proofs.simulation.sink import Guard

Reader = Literal["batches", "records", "plain", "sink"]
"""Who reads: a handler of batches or of records, the shard streams themselves, or the service's relay into a sink."""

Deed = Literal[
    "put", "aggregate", "burst", "split", "merge", "crash", "leave", "pause", "deregister", "store", "listing",
    "control",
]  # fmt: skip
"""What may befall a world. Whom or which shard it strikes, the world draws when it comes to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One world. Times are in seconds, sizes in bytes.

    `at_latest`: shards that were never read begin at LATEST, instead of at their oldest record.
    `calm_from`: no faults and no deeds from then on; everything must be done `patience` later. `hiccups`: how often a
    handler of many fails at first, and `poison`: how often it fails for good (only where the policy sets aside).
    `slowness`: the longest that handling takes, `nap` a rare longer one. `holds`: a handler holds most of what it
    takes until later. `new_names`: a worker that comes again has another id. `padding`: bytes of ballast in a record.
    """

    seed: int
    shards: int
    keys: int
    workers: int
    padding: int
    fake: FakeSettings
    timing: Timing
    failover_time: float
    checkpoint_interval: float
    shard_sync_interval: float
    stream_window: int
    unsubscribe_idle_after: float
    subscribes_per_second: float
    graceful_handoff: bool
    handoff_timeout: float
    balance_by_throughput: bool
    max_leases: int | None
    lease_cleanup_after: float
    at_latest: bool
    reader: Reader
    key_concurrency: int
    holds: bool
    policy: FailurePolicy
    hiccups: float
    poison: float
    slowness: float
    nap: float
    guard: Guard
    new_names: bool
    kinds: tuple[Fault, ...]
    fault_rate: float
    calm_from: float
    patience: float
    deeds: tuple[tuple[float, Deed], ...]


@dataclass(frozen=True, slots=True)
class _Pace:
    """How long a world lasts and how often things happen: long ones are quiet, so that each costs about the same."""

    calm_from: float
    idle: float
    life: float
    timing: Timing
    failover: float


_PACES: Final[tuple[tuple[int, Callable[[Random], _Pace]], ...]] = (
    (96, lambda r: _Pace(r.uniform(15, 40), 5.0, 300.0, Timing(), r.choice((6.0, 10.0, 15.0)))),
    (96, lambda r: _Pace(r.uniform(20, 55), 5.0, r.uniform(12, 25), Timing(), r.choice((10.0, 20.0)))),
    (64, lambda r: _Pace(r.uniform(20, 55), 5.0, 25.0, Timing(renew_from=8.0, renew_to=20.0), r.choice((10.0, 20.0)))),
    (12, lambda r: _Pace(r.uniform(350, 700), 30.0, 300.0, Timing(), 60.0)),
    (1, lambda r: _Pace(r.uniform(900, 1500), 30.0, 300.0, Timing(), 120.0)),
)

_POLICIES: Final[dict[str, Callable[[Random], FailurePolicy]]] = {
    "stop": lambda r: FailurePolicy(attempts=r.choice((1, 2))),
    "retry": lambda _: FailurePolicy(attempts=50, backoff=0.1, backoff_limit=2.0),
    "stop_shard": lambda r: FailurePolicy(attempts=r.choice((1, 2)), then="isolate", cooldown=r.uniform(0.0, 8.0)),
    "skip": lambda r: FailurePolicy(attempts=r.choice((1, 4)), backoff=0.1, then="skip"),
    "dead_letter": lambda r: FailurePolicy(attempts=r.choice((1, 4)), backoff=0.1, then="dead_letter"),
}

MOST_HICCUPS: Final = 3
"""So often at most does a handler fail with a record that it takes in the end."""

_DEEDS: Final[dict[Deed, tuple[int, int]]] = {
    "put": (5, 20),
    "aggregate": (0, 10),
    "burst": (0, 3),
    "split": (0, 4),
    "merge": (0, 3),
    "crash": (0, 4),
    "leave": (0, 3),
    "pause": (0, 2),
    "deregister": (0, 1),
    "store": (0, 3),
    "listing": (0, 2),
    "control": (0, 2),
}
"""How many of each: at least and at most."""


SOON: Final = 20.0
"""The least `lease_cleanup_after`: a world waits until it has come to pass."""
MOST_SHARDS: Final = 6 + _DEEDS["split"][1]
"""So many shards at most are open at once."""


def plan(seed: int) -> Plan:
    """Return the world of this seed: always the same one."""
    random = Random(f"world {seed}")
    weights, paces = zip(*_PACES, strict=True)
    pace = random.choices(paces, weights)[0](random)
    reader: Reader = random.choice(("batches", "records", "plain", "sink", "sink"))
    policy = random.choice(tuple(_POLICIES))
    sets_aside = policy in ("skip", "dead_letter")
    fails = reader in ("batches", "records") and random.random() < 0.6
    slow = random.random() < 0.4
    workers = random.choice((1, 2, 2, 3, 3, 4))
    key_concurrency = random.choice((1, 1, 3, 8)) if reader in ("batches", "records") else 1
    return Plan(
        seed=seed,
        shards=random.randint(1, MOST_SHARDS - _DEEDS["split"][1]),
        keys=random.randint(1, 30),
        workers=workers,
        padding=random.choice((0, 0, 0, 100, 100, 1500)),
        fake=_fake(random, pace),
        timing=pace.timing,
        failover_time=pace.failover,
        checkpoint_interval=random.choice((1.0, 5.0, 5.0)),
        shard_sync_interval=random.choice((10.0, 30.0, 60.0)),
        stream_window=random.choice((16_384, 65_536, 1_048_576)),
        unsubscribe_idle_after=random.choice((10.0, 60.0)),
        subscribes_per_second=random.choice((2.0, 20.0, 20.0)),
        graceful_handoff=random.random() < 0.75,
        handoff_timeout=random.choice((2.0, 30.0)),
        balance_by_throughput=random.random() < 0.3,
        max_leases=random.choice((None, None, ceil(MOST_SHARDS / workers))),
        lease_cleanup_after=random.choice((SOON, 60.0, 600.0)),
        at_latest=random.random() < 0.15,
        reader=reader,
        key_concurrency=key_concurrency,
        holds=reader in ("batches", "records") and key_concurrency == 1 and random.random() < 0.4,
        policy=_POLICIES[policy](random),
        hiccups=random.choice((0.01, 0.05)) if fails else 0.0,
        poison=0.03 if fails and sets_aside else 0.0,
        slowness=random.choice((0.05, 0.5)) if slow else 0.0,
        nap=random.choice((0.0, 20.0, 70.0)) if slow else 0.0,
        guard=random.choice(("lock", "fence")),
        new_names=random.random() < 0.5,
        kinds=tuple(random.sample(PASSING, random.randint(1, 8))),
        fault_rate=random.choice((0.0, 1 / 40, 1 / 15, 1 / 7)) * (40 / max(40.0, pace.calm_from)),
        calm_from=pace.calm_from,
        patience=900.0,
        deeds=_deeds(random, pace.calm_from),
    )


def _fake(random: Random, pace: _Pace) -> FakeSettings:
    return FakeSettings(
        consumer_creating=random.choice((0.0, 1.0, 5.0)),
        subscription_life=pace.life,
        idle_interval=pace.idle,
        event_records=random.choice((1, 5, 1000)),
        max_concurrent_streams=random.choice((1, 2, 128)),
        memory_stream_bytes=random.choice((8192, 65_536, 262_144)),
    )


def _deeds(random: Random, until: float) -> tuple[tuple[float, Deed], ...]:
    """Return what befalls the world, in order. Half of the kinds are left out of each world, except the puts."""
    deeds: list[tuple[float, Deed]] = []
    for deed, (least, most) in _DEEDS.items():
        if deed == "put" or random.random() < 0.6:
            deeds += [(random.uniform(0.0, until), deed) for _ in range(random.randint(least, most))]
    return tuple(sorted(deeds))
