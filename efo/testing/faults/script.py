"""Decides which fault fires when, without I/O and without a clock. The same seed results in the same faults.

A rule counts each target separately: each shard for SubscribeToShard, and otherwise each operation. So the faults of
one shard do not depend on how the tasks of other shards are scheduled.

seed = 7

[[fault]]
kind = "reset"              # the fault's class name in lower case, with hyphens: GoAway is go-away
code = "REFUSED_STREAM"     # the fault's fields
when = { shard = "shardId-000000000000", nth = 3 }

[random]                    # additionally, all faults of PASSING at random
rate = 0.01                 # per second and shard
stop = 600
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import msgspec

from efo.errors import ConfigurationError
from efo.testing.faults.kinds import PASSING, Fault, Site
from efo.testing.state.shards import Listeners
from efo.text import decode

ALWAYS: Final = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """When a fault fires. At most one of `nth`, `at`, `probability` and `rate`; by default, at the first occasion.

    The fault's site defines the occasions: calls, starts of subscriptions, events, or listings. Each target is counted
    separately. Times are seconds since the fake's start.

    `shard`, `stream`: fires only for these. `operation`: for faults of calls, the operation, or "*" for all; by default
    SubscribeToShard, and ListShards for StaleListing.
    `nth`: fires from the n-th occasion on; the first is 1. `at`: fires at the first occasion at or after this time; a
    fault that needs no event fires at this time. `probability`: of firing at an occasion, 0 to 1. `rate`: average
    number of times per second and target, at random. `times`: maximum number of times for each target; by default 1,
    or ALWAYS for `probability` and `rate`. `start`, `stop`: fires only from `start` on and before `stop`.
    """

    shard: str | None = None
    stream: str | None = None
    operation: str | None = None
    nth: int | None = None
    at: float | None = None
    probability: float | None = None
    rate: float | None = None
    times: float | None = None
    start: float = 0.0
    stop: float = math.inf

    def __post_init__(self) -> None:
        conditions = [n for n in ("nth", "at", "probability", "rate") if getattr(self, n) is not None]
        if len(conditions) > 1:
            raise ConfigurationError(f"{' and '.join(conditions)} exclude each other: set only one of them")
        if self.nth is not None and self.nth < 1:
            raise ConfigurationError(f"nth = {self.nth}: expected at least 1")
        if self.probability is not None and not 0 <= self.probability <= 1:
            raise ConfigurationError(f"probability = {self.probability}: expected 0 to 1")
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise ConfigurationError(f"rate = {self.rate}: expected a number of times per second above 0")

    @property
    def max_times(self) -> float:
        """Maximum number of times that the fault fires for one target."""
        if self.times is not None:
            return self.times
        return ALWAYS if self.probability is not None or self.rate is not None else 1


@dataclass(frozen=True, slots=True)
class FaultTarget:
    """The target of a fault: an operation, and for SubscribeToShard the shard."""

    operation: str
    stream: str | None = None
    shard: str | None = None


@dataclass(frozen=True, slots=True)
class Fired:
    """A fault that fired. `at`: seconds since the fake's start."""

    at: float
    fault: Fault
    target: FaultTarget


@dataclass(slots=True)
class _TargetState:
    """The state of one rule for one target.

    `next_at`: when a timed fault is due. `occasions`, `fired`: numbers so far.
    """

    random: Random
    next_at: float
    occasions: int = 0
    fired: int = 0


@dataclass(slots=True, eq=False)
class Rule:
    """A fault and when it fires."""

    fault: Fault
    when: When
    seed: str
    _states: dict[FaultTarget, _TargetState] = field(default_factory=dict)

    def applies(self, site: Site, target: FaultTarget) -> bool:
        """Return whether the rule is for this site and target."""
        when = self.when
        operation = when.operation or self.fault.operation
        return (
            site is self.fault.site
            and operation in ("*", target.operation)
            and when.shard in (None, target.shard)
            and when.stream in (None, target.stream)
        )

    def fires(self, target: FaultTarget, now: float, *, occasion: bool) -> bool:
        """Return whether the fault fires now, and count it. `occasion`: False between events."""
        when, state = self.when, self._state(target, now)
        state.occasions += occasion
        if not when.start <= now < when.stop or state.fired >= when.max_times:
            return False
        if when.at is not None or when.rate is not None:
            fires = now >= state.next_at and (occasion or self._fires_between_events(state))
        else:
            fires = occasion and self._fires_at_occasion(state)
        if fires:
            state.fired += 1
            if when.rate is not None:
                state.next_at = now + state.random.expovariate(when.rate)
        return fires

    def count_occasion(self, target: FaultTarget, now: float) -> None:
        """Count an occasion at which another fault fired."""
        self._state(target, now).occasions += 1

    def due(self, target: FaultTarget, now: float) -> float:
        """Return when the fault fires without an event; infinity if it does not."""
        state = self._state(target, now)
        if not self._fires_between_events(state) or state.fired >= self.when.max_times:
            return math.inf
        due = max(state.next_at, self.when.start)
        return due if due < self.when.stop else math.inf

    def _fires_between_events(self, state: _TargetState) -> bool:
        # `at` is a single time: further firings happen at the following events.
        timed = self.when.rate is not None or (self.when.at is not None and not state.fired)
        return timed and not self.fault.needs_event

    def _fires_at_occasion(self, state: _TargetState) -> bool:
        when = self.when
        if when.probability is not None:
            return state.random.random() < when.probability
        return state.occasions >= (when.nth or 1)

    def _state(self, target: FaultTarget, now: float) -> _TargetState:
        if target not in self._states:
            random = Random(f"{self.seed}/{target}")
            next_at = self.when.at if self.when.at is not None else math.inf
            if self.when.rate is not None:
                next_at = max(now, self.when.start) + random.expovariate(self.when.rate)
            self._states[target] = _TargetState(random, next_at)
        return self._states[target]


class FaultScript:
    """Faults and when they fire. If several faults are due at an occasion, the one that was added first fires.

    `faults`: pairs of a fault and its When, or only faults. `seed`: for all random decisions. `fired`: the faults that
    fired, in order. `listeners` are called when a fault is added. A script can be used with one fake only.
    """

    def __init__(self, faults: Iterable[Fault | tuple[Fault, When]] = (), *, seed: int = 0) -> None:
        self.fired: list[Fired] = []
        self.seed = seed
        self._rules: list[Rule] = []
        self._added = 0
        self.listeners = Listeners()
        for entry in faults:
            if isinstance(entry, tuple):
                self.add(*entry)
            else:
                self.add(entry)

    @classmethod
    def random(
        cls, seed: int, *, kinds: Iterable[Fault] = PASSING, rate: float = 1 / 60, stop: float = math.inf
    ) -> Self:
        """Return a script that fires random faults of `kinds`, `rate` per second and shard in total, before `stop`."""
        faults = tuple(kinds)
        when = When(rate=rate / len(faults), stop=stop)
        return cls([(fault, when) for fault in faults], seed=seed)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def add(self, fault: Fault, when: When | None = None) -> Rule:
        """Add a fault, which can fire from now on. Return its rule, for `remove`."""
        rule = Rule(fault, when if when is not None else When(), f"{self.seed}/{self._added}")
        self._added += 1
        self._rules.append(rule)
        self.listeners.notify()
        return rule

    def remove(self, rule: Rule) -> None:
        """Remove a fault."""
        self._rules.remove(rule)

    def clear(self) -> None:
        """Remove all faults. `fired` does not change."""
        self._rules.clear()

    def take(self, site: Site, target: FaultTarget, now: float, *, occasion: bool = True) -> Fault | None:
        """Return the fault that fires now, if any, and record it in `fired`.

        `occasion`: False between events; then only faults fire that need no event.
        """
        fault: Fault | None = None
        for rule in tuple(self._rules):
            if not rule.applies(site, target):
                continue
            if fault is None:
                if rule.fires(target, now, occasion=occasion):
                    fault = rule.fault
                    self.fired.append(Fired(now, fault, target))
            elif occasion:
                rule.count_occasion(target, now)
        return fault

    def due(self, target: FaultTarget, now: float) -> float:
        """Return when a fault fires for this shard's subscription without an event; infinity if none does."""
        return min(
            (rule.due(target, now) for rule in self._rules if rule.applies(Site.EVENT, target)), default=math.inf
        )


class _Random(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate: float = 1 / 60
    stop: float = float("inf")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seed: int = 0
    fault: list[dict[str, Any]] = []
    random: _Random | None = None


def load_faults(path: Path) -> FaultScript:
    """Read a fault script from a file. Raises ConfigurationError: the file cannot be read or is invalid."""
    try:
        content = msgspec.convert(tomllib.loads(decode(path.read_bytes())), _File)
    except OSError as error:
        raise ConfigurationError(f"{path}: the fault script cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: a value is nested too deep") from None
    except ValueError as error:  # not TOML, not UTF-8, invalid, or a number with too many digits
        raise ConfigurationError(f"{path}: {error}") from None
    script = FaultScript(seed=content.seed)
    for number, entry in enumerate(content.fault, start=1):
        try:
            script.add(*_read(entry))
        except (msgspec.ValidationError, ConfigurationError) as error:
            raise ConfigurationError(f"{path}, fault {number}: {error}") from None
    if content.random is not None:
        for fault in PASSING:
            script.add(fault, When(rate=content.random.rate / len(PASSING), stop=content.random.stop))
    return script


def _read(entry: dict[str, Any]) -> tuple[Fault, When]:
    fault = dict(entry)
    when = fault.pop("when", {})
    known = [field.name for field in fields(When)]
    if not isinstance(when, dict) or (unknown := sorted(set(when) - set(known))):
        problem = f"unknown field in when: {', '.join(unknown)}" if isinstance(when, dict) else "when is not a table"
        raise ConfigurationError(f"{problem}; expected {', '.join(known)}")
    return msgspec.convert(fault, Fault), msgspec.convert(when, When)
