"""What a seed decides about a world before it starts: its settings, and what happens when. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from random import Random
from typing import Final, Literal

from efo.consumer.handlers.batched import MAX_BYTES
from efo.protocol.aggregation import AggregateMode
from efo.protocol.failure import DeadLetter, FailurePolicy
from efo.protocol.subscription import SubscriptionTiming
from efo.settings import ReadMode
from efo.testing import FakeSettings
from efo.testing.faults.kinds import PASSING, Fault
from efo_service.relay.relay import COMMIT_BYTES
from proofs.simulation.assignments import AssignmentKind
from proofs.simulation.constants import Values, choose
from proofs.simulation.disk import DiskFaults
from proofs.simulation.signing import KNOWN, SigningPlan, plan_signing
from proofs.simulation.sink import Guard

ReaderKind = Literal["batches", "records", "stream", "sink"]
"""What reads shards: a handler of batches or of records, code that iterates shard streams, or the relay into a sink."""

Refusals = Literal["dead_letter", "skip", "isolate"]
"""What happens to the records that a sink refuses. A shard that is isolated continues when the faults have ended."""

Action = Literal[
    "put", "aggregate", "burst", "split", "merge", "distribute", "crash", "stop", "pause", "deregister", "store_fault",
    "stale_listing", "control_plane_fault", "deny_fan_out",
]  # fmt: skip
"""What may happen in a world. The world chooses the worker or shard when the action is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of one world. Times are in seconds, sizes in bytes.

    `padding`: filler bytes per record.
    `at_latest`: shards that were never read start at LATEST, instead of at their oldest record.
    `at_time`: they start AT_TIMESTAMP, at this time of the world, which may be before its beginning.
    `max_leases_per_scan`, `assignment`: as in ConsumerSettings, for all workers.
    `history`: no worker starts before this time, so that nobody reads what happens until then.
    `constants`: constants of efo that have other values in this world.
    `commit_records`, `commit_bytes`: when the relay commits.
    `neighbour`: the plan of a second consumer in the same processes: of another stream, or, if `shares_stream` is true,
    of another application on the same stream.
    `holds`: a handler returns HOLD for most of its calls.
    `batched`: the records, bytes and seconds of `efo.batched` around the handler; None: without it.
    `transient_rate`: the share of records that fail at first. `poison_rate`: the share that always fail; above 0 only
    where the policy skips or dead-letters.
    `max_delay`: the longest delay in handling or a commit. `max_rare_delay`: the longest of a handler's rare delays.
    `refusals`: the sink refuses records, and this happens to them; None: it takes all.
    `log`: the log that the relay writes to; None: a sink in memory.
    `lease_file`: the SQLite file of the leases; None: they are in memory.
    `new_worker_ids`: a worker that restarts has a new id.
    `end_crash_rate`: how likely a worker crashes just after a write about the children of a shard (rule R2).
    `read_mode`: that of all workers, and of a neighbour. Fan-out is denied at times if it is "auto".
    `signing`: the fake checks signatures, and credentials, clock and permissions have faults; None: nothing is signed.
    `aggregates`: that of all workers, and of a neighbour. With "filter", aggregates have strays that nobody puts again.
    `calm_from`: no faults and no actions from then on; everything must be done `completion_timeout` later.
    """

    seed: int
    shards: int
    keys: int
    workers: int
    padding: int
    fake: FakeSettings
    timing: SubscriptionTiming
    failover_seconds: float
    checkpoint_seconds: float
    shard_sync_seconds: float
    stream_window: int
    unsubscribe_idle_seconds: float
    subscribes_per_second: float
    graceful_handoff: bool
    handoff_seconds: float
    balance_by_throughput: bool
    max_leases: int | None
    max_leases_per_scan: int | None
    assignment: AssignmentKind
    lease_cleanup_after: float
    at_latest: bool
    reader: ReaderKind
    key_concurrency: int
    holds: bool
    policy: FailurePolicy
    transient_rate: float
    poison_rate: float
    max_delay: float
    max_rare_delay: float
    guard: Guard
    refusals: Refusals | None
    log: LogPlan | None
    lease_file: LeaseFilePlan | None
    new_worker_ids: bool
    end_crash_rate: float
    fault_kinds: tuple[Fault, ...]
    fault_rate: float
    calm_from: float
    completion_timeout: float
    actions: tuple[tuple[float, Action], ...]
    at_time: float | None = None
    history: float = 0.0
    constants: Values = ()
    lease_scan_seconds: float | None = None
    commit_records: int = 20
    commit_bytes: int = COMMIT_BYTES
    neighbour: Plan | None = None
    shares_stream: bool = False
    read_mode: ReadMode = "fanout"
    poll_seconds: float = 1.0
    fanout_retry_interval: float = 30.0
    signing: SigningPlan | None = None
    aggregates: AggregateMode = AggregateMode.DEDUPLICATE
    batched: tuple[int, int, float] | None = None

    @property
    def max_listing_lag(self) -> float:
        """How old what ListShards shows may be, in seconds."""
        is_stale = any(action == "stale_listing" for _, action in self.actions)
        return min(60.0, self.lease_cleanup_after / 2) if is_stale else 0.0

    @property
    def intervals(self) -> Values:
        """The constants of efo that are as this plan says."""
        return (
            ("efo.consumer.shard_sync.CLEANUP_AFTER", self.lease_cleanup_after),
            ("efo.consumer.shard_sources.FANOUT_RETRY_INTERVAL", self.fanout_retry_interval),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlan:
    """The log of a world. `has_locks`: see Disk. `retention`, `grace` in seconds. `fan_in`: see `plan_compaction`."""

    faults: DiskFaults
    has_locks: bool
    retention: float | None
    grace: float
    fan_in: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFilePlan:
    """The SQLite file of the leases of a world.

    `kill`, `power`: how likely each statement meets the end of its process, or a power failure. `checkpoint_pages`: how
    long the WAL grows before a checkpoint.
    """

    kill: float
    power: float
    checkpoint_pages: int


@dataclass(frozen=True, slots=True)
class _Tempo:
    """How long a world lasts and how often things happen. Less happens per second in long worlds, to limit their cost.

    `idle_interval`, `subscription_life`: as in `FakeSettings`.
    """

    calm_from: float
    idle_interval: float
    subscription_life: float
    timing: SubscriptionTiming
    failover_seconds: float


_TEMPOS: Final[tuple[tuple[int, Callable[[Random], _Tempo]], ...]] = (
    (96, lambda r: _Tempo(r.uniform(15, 40), 5.0, 300.0, SubscriptionTiming(), r.choice((6.0, 10.0, 15.0)))),
    (96, lambda r: _Tempo(r.uniform(20, 55), 5.0, r.uniform(12, 25), SubscriptionTiming(), r.choice((10.0, 20.0)))),
    (
        64,
        lambda r: _Tempo(
            r.uniform(20, 55), 5.0, 25.0, SubscriptionTiming(renew_from=8.0, renew_to=20.0), r.choice((10.0, 20.0))
        ),
    ),
    (12, lambda r: _Tempo(r.uniform(350, 700), 30.0, 300.0, SubscriptionTiming(), 60.0)),
    (1, lambda r: _Tempo(r.uniform(900, 1500), 30.0, 300.0, SubscriptionTiming(), 120.0)),
)


async def _unset(_letter: DeadLetter) -> None:
    raise AssertionError("the readers of the world replace this dead-letter sink")


_POLICIES: Final[dict[str, Callable[[Random], FailurePolicy]]] = {
    "stop": lambda r: FailurePolicy(attempts=r.choice((1, 2))),
    "retry": lambda _: FailurePolicy(attempts=50, backoff=0.1, backoff_limit=2.0),
    "stop_shard": lambda r: FailurePolicy(attempts=r.choice((1, 2)), then="isolate", cooldown=r.uniform(0.0, 8.0)),
    "skip": lambda r: FailurePolicy(attempts=r.choice((1, 4)), backoff=0.1, then="skip"),
    "dead_letter": lambda r: FailurePolicy(
        attempts=r.choice((1, 4)), backoff=0.1, then="dead_letter", dead_letter=_unset
    ),
}

MAX_TRANSIENT_FAILURES: Final = 3
"""How often a record fails at most before its handler accepts it."""

_ACTIONS: Final[dict[Action, tuple[int, int]]] = {
    "put": (5, 20),
    "aggregate": (0, 10),
    "burst": (0, 3),
    "split": (0, 4),
    "merge": (0, 3),
    "crash": (0, 4),
    "stop": (0, 3),
    "pause": (0, 2),
    "deregister": (0, 1),
    "store_fault": (0, 3),
    "stale_listing": (0, 2),
    "control_plane_fault": (0, 2),
}
"""How many of each action a world has: minimum and maximum."""

_OF_THE_STREAM: Final = ("put", "burst", "aggregate", "split", "merge")
"""The actions of a stream's producer."""
NEIGHBOUR_SHARE: Final = 0.15
"""The share of worlds with two consumers."""
SIGNING_SHARE: Final = 0.15
"""The share of worlds whose calls are signed."""
_READ_MODES: Final = (60, 18, 22)
"""How many of a hundred worlds read by fan-out, by polling, and by either."""
FILTER_SHARE: Final = 0.3
"""The share of worlds whose consumers filter out all user records with hash keys outside the range of their shard."""
BATCHED_SHARE: Final = 0.3
"""The share of worlds whose handlers of batches get them by number, bytes and time."""
DISTRIBUTION_SHARE: Final = 0.2
"""The share of worlds whose stream changes its record distribution strategy to AUTO, and mostly back."""
AT_TIME_SHARE: Final = 0.15
"""The share of worlds that start AT_TIMESTAMP."""
SHORT_CLEANUP_AFTER: Final = 20.0
"""The shortest `lease_cleanup_after`. With this value a world waits at its end until the leases are deleted."""
MAX_SHARDS: Final = 6 + _ACTIONS["split"][1]
"""The maximum number of open shards."""


def plan(seed: int) -> Plan:
    """Return the plan of the world of this seed. It depends on the seed alone."""
    random = Random(f"constants {seed}")
    plan = replace(
        _with_settings(_start_at_time(_plan(seed), Random(f"time {seed}")), random), constants=choose(random)
    )
    if Random(f"{seed}/aggregate mode").random() < FILTER_SHARE:
        plan = replace(plan, aggregates=AggregateMode.FILTER)
    plan = _with_distribution(_with_batches(plan, Random(f"{seed}/batched")), Random(f"{seed}/auto"))
    plan = _with_neighbour(_with_read_mode(plan, Random(f"read mode {seed}")), Random(f"neighbour {seed}"))
    return _with_signing(plan, Random(f"{seed}/credentials"))


def _plan(seed: int) -> Plan:
    random = Random(f"world {seed}")
    weights, tempos = zip(*_TEMPOS, strict=True)
    tempo = random.choices(tempos, weights)[0](random)
    reader: ReaderKind = random.choice(("batches", "records", "stream", "sink", "sink"))
    policy = random.choice(tuple(_POLICIES))
    skips_failed = policy in ("skip", "dead_letter")
    fails = reader in ("batches", "records") and random.random() < 0.6
    slow = random.random() < 0.4
    workers = random.choice((1, 2, 2, 3, 3, 4))
    key_concurrency = random.choice((1, 1, 3, 8)) if reader in ("batches", "records") else 1
    return Plan(
        seed=seed,
        shards=random.randint(1, MAX_SHARDS - _ACTIONS["split"][1]),
        keys=random.randint(1, 30),
        workers=workers,
        padding=random.choice((0, 0, 0, 100, 100, 1500)),
        fake=_fake(random, tempo),
        timing=tempo.timing,
        failover_seconds=tempo.failover_seconds,
        checkpoint_seconds=random.choice((1.0, 5.0, 5.0)),
        shard_sync_seconds=random.choice((10.0, 30.0, 60.0)),
        stream_window=random.choice((16_384, 65_536, 1_048_576)),
        unsubscribe_idle_seconds=random.choice((10.0, 60.0)),
        subscribes_per_second=random.choice((2.0, 20.0, 20.0)),
        graceful_handoff=random.random() < 0.75,
        handoff_seconds=random.choice((2.0, 30.0)),
        balance_by_throughput=random.random() < 0.3,
        max_leases=(max_leases := random.choice((None, None, ceil(MAX_SHARDS / workers)))),
        max_leases_per_scan=Random(f"per scan {seed}").choice((None, None, 1, 2)),
        assignment=_assignment(Random(f"assignment {seed}"), has_limit=max_leases is not None),
        lease_cleanup_after=random.choice((SHORT_CLEANUP_AFTER, 60.0, 600.0)),
        at_latest=random.random() < 0.15,
        reader=reader,
        key_concurrency=key_concurrency,
        holds=reader in ("batches", "records") and key_concurrency == 1 and random.random() < 0.4,
        policy=_POLICIES[policy](random),
        transient_rate=random.choice((0.01, 0.05)) if fails else 0.0,
        poison_rate=0.03 if fails and skips_failed else 0.0,
        max_delay=random.choice((0.05, 0.5)) if slow else 0.0,
        max_rare_delay=random.choice((0.0, 20.0, 70.0)) if slow else 0.0,
        guard=random.choice(("lock", "fence")),
        refusals=_refusals(Random(f"refusals {seed}")) if reader == "sink" and seed % 2 == 0 else None,
        log=_log(Random(f"log {seed}")) if reader == "sink" and seed % 2 else None,
        lease_file=_lease_file(Random(f"lease file {seed}")) if reader != "sink" or seed % 2 == 0 else None,
        new_worker_ids=random.random() < 0.5,
        end_crash_rate=Random(f"end {seed}").choice((0.0, 0.0, 0.0, 0.0, 0.2)),
        fault_kinds=tuple(random.sample(PASSING, random.randint(1, 8))),
        fault_rate=random.choice((0.0, 1 / 40, 1 / 15, 1 / 7)) * (40 / max(40.0, tempo.calm_from)),
        calm_from=tempo.calm_from,
        completion_timeout=900.0,
        actions=_actions(random, tempo.calm_from),
    )


def _start_at_time(plan: Plan, random: Random) -> Plan:
    """Return the plan, for a share of the seeds with a start AT_TIMESTAMP: before, in or at the end of a history."""
    if random.random() >= AT_TIME_SHARE:
        return plan
    history = plan.calm_from * random.uniform(0.1, 0.7)
    times = [-random.uniform(0.0, 100.0), random.uniform(0.0, history), history]
    if reshards := [at for at, action in plan.actions if action in ("split", "merge") and at < history]:
        # The shard has ended just before the time, or a little longer ago than a reading takes along.
        times += [min(history, random.choice(reshards) + random.uniform(0.0, 10.0)) for _ in range(3)]
    return replace(plan, at_latest=False, at_time=random.choice(times), history=history)


def _with_settings(plan: Plan, random: Random) -> Plan:
    """Return the plan with settings that change how often efo does something."""
    return replace(
        plan,
        lease_scan_seconds=random.choice((None, None, 0.1, 3.0)),
        commit_records=random.choice((1, 20, 20, 500)),
        commit_bytes=random.choice((200, 2000, COMMIT_BYTES)),
    )


def _with_batches(plan: Plan, random: Random) -> Plan:
    """Return the plan, for a share of the seeds with calls of the handler that have what came in several events."""
    if plan.reader != "batches" or plan.key_concurrency > 1 or random.random() >= BATCHED_SHARE:
        return plan
    limits = random.choice((1, 7, 500)), random.choice((300, MAX_BYTES)), random.choice((0.5, 5.0, 20.0))
    return replace(plan, batched=limits)


def _with_read_mode(plan: Plan, random: Random) -> Plan:
    """Return the plan, for a share of the seeds with polling, or with fan-out that is denied at times."""
    mode: ReadMode = random.choices(("fanout", "polling", "auto"), _READ_MODES)[0]
    if mode == "fanout":
        return plan
    denials: list[tuple[float, Action]] = []
    if mode == "auto":
        denials = [(random.uniform(0.0, plan.calm_from), "deny_fan_out") for _ in range(random.randint(1, 3))]
    return replace(
        plan,
        read_mode=mode,
        poll_seconds=random.choice((0.25, 1.0, 1.0, 5.0)),
        fanout_retry_interval=random.choice((2.0, 10.0, 30.0)),
        actions=tuple(sorted([*plan.actions, *denials])),
    )


def _with_signing(plan: Plan, random: Random) -> Plan:
    """Return the plan, for a share of the seeds with signatures. Both consumers of a process sign."""
    if random.random() >= SIGNING_SHARE:
        return plan
    signing, fake = plan_signing(random, plan.calm_from), replace(plan.fake, credentials=KNOWN)
    neighbour = None if plan.neighbour is None else replace(plan.neighbour, signing=signing, fake=fake)
    return replace(plan, signing=signing, fake=fake, neighbour=neighbour)


def _with_distribution(plan: Plan, random: Random) -> Plan:
    """Return the plan, for a share of the seeds with changes to AUTO and back, and records put after each of them."""
    if random.random() >= DISTRIBUTION_SHARE:
        return plan
    actions = [*plan.actions]
    for _ in range(random.randint(1, 4)):
        at = random.uniform(0.0, plan.calm_from)
        actions += [(at, "distribute")]
        actions += [(random.uniform(at, plan.calm_from), random.choice(("put", "put", "aggregate"))) for _ in range(4)]
    return replace(plan, actions=tuple(sorted(actions)))


def _with_neighbour(plan: Plan, random: Random) -> Plan:
    """Return the plan, for a share of the seeds with a second consumer. Its plan is that of a seed of its own."""
    if random.random() >= NEIGHBOUR_SHARE:
        return plan
    shares_stream = random.random() < 0.5
    actions = [
        (at, action)
        for at, action in _actions(random, plan.calm_from)
        # The faults of listings are those of the world. One producer puts the records of a stream.
        if action != "stale_listing" and not (shares_stream and action in _OF_THE_STREAM)
    ]
    neighbour = replace(
        _with_settings(_plan(-1 - plan.seed), random),
        fake=plan.fake,
        timing=plan.timing,
        failover_seconds=plan.failover_seconds,
        lease_cleanup_after=plan.lease_cleanup_after,
        fault_rate=0.0,
        calm_from=plan.calm_from,
        actions=tuple(actions),
        read_mode=plan.read_mode,
        fanout_retry_interval=plan.fanout_retry_interval,
        aggregates=plan.aggregates,
    )
    # The crashes of a file are those of the processes of one consumer: two in the same processes have rows in memory.
    neighbour = replace(_start_at_time(neighbour, random), lease_file=None)
    return replace(plan, neighbour=neighbour, lease_file=None, shares_stream=shares_stream)


def _assignment(random: Random, *, has_limit: bool) -> AssignmentKind:
    """Return what all workers decide with. A zone whose workers own all that they may leaves leases for very long."""
    kinds: list[AssignmentKind] = ["balanced", "balanced", "weighted", "random"]
    return random.choice(kinds if has_limit else [*kinds, "zones"])


def _fake(random: Random, tempo: _Tempo) -> FakeSettings:
    return FakeSettings(
        consumer_creating=random.choice((0.0, 1.0, 5.0)),
        subscription_life=tempo.subscription_life,
        idle_interval=tempo.idle_interval,
        event_records=random.choice((1, 5, 1000)),
        max_concurrent_streams=random.choice((1, 2, 128)),
        memory_stream_bytes=random.choice((8192, 65_536, 262_144)),
    )


def _log(random: Random) -> LogPlan:
    """Return the plan of a log."""
    return LogPlan(
        faults=DiskFaults(
            error=random.choice((0.0, 0.0, 1 / 2000, 1 / 300)),
            full=random.choice((0.0, 0.0, 1 / 2000)),
            kill=random.choice((0.0, 1 / 3000, 1 / 1000)),
            power=random.choice((0.0, 1 / 3000, 1 / 1000)),
        ),
        has_locks=random.random() < 0.7,
        retention=random.choice((None, None, 10.0)),
        grace=random.choice((5.0, 60.0)),
        fan_in=random.choice((2, 4, 32)),
    )


def _refusals(random: Random) -> Refusals | None:
    return random.choice((None, None, "dead_letter", "dead_letter", "skip", "isolate"))


def _lease_file(random: Random) -> LeaseFilePlan | None:
    """Return the plan of a lease file, None for most worlds."""
    if random.random() < 0.6:
        return None
    return LeaseFilePlan(
        kill=random.choice((0.0, 1 / 500, 1 / 150)),
        power=random.choice((0.0, 1 / 500, 1 / 150)),
        checkpoint_pages=random.choice((2, 20, 1000)),
    )


def _actions(random: Random, until: float) -> tuple[tuple[float, Action], ...]:
    """Return the actions with their times, in order. Each kind but "put" is missing from 40 % of the worlds."""
    actions: list[tuple[float, Action]] = []
    for action, (least, most) in _ACTIONS.items():
        if action == "put" or random.random() < 0.6:
            actions += [(random.uniform(0.0, until), action) for _ in range(random.randint(least, most))]
    return tuple(sorted(actions))
