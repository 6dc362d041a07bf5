"""Which fault fires when: the decision alone. It does no I/O and has no clock; the same seed makes the same faults.

A rule keeps books for each target by itself (a shard for SubscribeToShard, else an operation): what happens to one
shard does not depend on how the tasks of others are scheduled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Self

from efo.errors import ConfigurationError
from efo.testing.faults.kinds import PASSING, Fault, Site
from efo.testing.state.listeners import Listeners

ALWAYS: Final = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """When a fault fires. At most one of `nth`, `at`, `probability` and `rate`; without any, at the first occasion.

    An occasion is what the fault's site counts: a call, a subscription's start, an event, a listing. Every target is
    counted by itself. Seconds are counted from the fake's start.

    `shard`, `stream`: only there. `operation`: for faults of calls, which one; "*" for all; SubscribeToShard unless
    said, and ListShards for its listings.
    `nth`: from the n-th occasion on, the first is 1. `at`: the first occasion at or after so many seconds; a fault
    that needs no event strikes at that moment. `probability`: at each occasion, 0 to 1. `rate`: so often per second
    and target, at random. `times`: how often at most for a target: once, or without end for `probability` and `rate`.
    `start`, `stop`: only in this time.
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
        given = [n for n in ("nth", "at", "probability", "rate") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ConfigurationError(f"{' and '.join(given)}: a fault fires by one of them, so leave the others out")
        if self.nth is not None and self.nth < 1:
            raise ConfigurationError(f"nth = {self.nth}: occasions are counted from 1")
        if self.probability is not None and not 0 <= self.probability <= 1:
            raise ConfigurationError(f"probability = {self.probability}: expected 0 to 1")
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise ConfigurationError(f"rate = {self.rate}: expected a number of times per second, above 0")

    @property
    def most(self) -> float:
        """How often the fault fires at most for one target."""
        if self.times is not None:
            return self.times
        return ALWAYS if self.probability is not None or self.rate is not None else 1


@dataclass(frozen=True, slots=True)
class Target:
    """What a fault may strike: an operation, and for SubscribeToShard the shard."""

    operation: str
    stream: str | None = None
    shard: str | None = None


@dataclass(frozen=True, slots=True)
class Fired:
    """A fault that fired, `at` seconds after the start, and at what."""

    at: float
    fault: Fault
    target: Target


@dataclass(slots=True)
class _Book:
    """One rule's account of one target. `next_at`: when a timed fault is due."""

    random: Random
    next_at: float
    seen: int = 0
    fired: int = 0


@dataclass(slots=True, eq=False)
class Rule:
    """A fault and when it fires."""

    fault: Fault
    when: When
    seed: str
    _books: dict[Target, _Book] = field(default_factory=dict)

    def applies(self, site: Site, target: Target) -> bool:
        """Tell whether the fault can strike there at all."""
        when = self.when
        operation = when.operation or self.fault.operation
        return (
            site is self.fault.site
            and operation in ("*", target.operation)
            and when.shard in (None, target.shard)
            and when.stream in (None, target.stream)
        )

    def strikes(self, target: Target, now: float, *, occasion: bool) -> bool:
        """Tell whether the fault fires now, and keep the books. `occasion`: False between events, True at one."""
        when, book = self.when, self._book(target, now)
        book.seen += occasion
        if not when.start <= now < when.stop or book.fired >= when.most:
            return False
        if when.at is not None or when.rate is not None:
            fires = now >= book.next_at and (occasion or self._needs_no_event(book))
        else:
            fires = occasion and self._counts(book)
        if fires:
            book.fired += 1
            if when.rate is not None:
                book.next_at = now + book.random.expovariate(when.rate)
        return fires

    def pass_over(self, target: Target, now: float) -> None:
        """Count an occasion at which another fault struck."""
        self._book(target, now).seen += 1

    def due(self, target: Target, now: float) -> float:
        """Return when the fault strikes without an event; infinity where it does not."""
        book = self._book(target, now)
        if not self._needs_no_event(book) or book.fired >= self.when.most:
            return math.inf
        due = max(book.next_at, self.when.start)
        return due if due < self.when.stop else math.inf

    def _needs_no_event(self, book: _Book) -> bool:
        # `at` is one moment: if the fault is to fire more often, it is at the events that follow.
        timed = self.when.rate is not None or (self.when.at is not None and not book.fired)
        return timed and not self.fault.needs_event

    def _counts(self, book: _Book) -> bool:
        when = self.when
        if when.probability is not None:
            return book.random.random() < when.probability
        return book.seen >= (when.nth or 1)

    def _book(self, target: Target, now: float) -> _Book:
        if target not in self._books:
            random = Random(f"{self.seed}/{target}")
            next_at = self.when.at if self.when.at is not None else math.inf
            if self.when.rate is not None:
                next_at = max(now, self.when.start) + random.expovariate(self.when.rate)
            self._books[target] = _Book(random, next_at)
        return self._books[target]


class FaultScript:
    """Faults and when they fire. Of several that are due at one occasion, the one added first fires.

    `faults`: pairs of a fault and its When, or faults alone. `seed`: of all that is left to chance.
    `fired` has what fired so far, in order; `listeners` are called when a fault was added. One script serves one fake.
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
        """Return a script that fires one of `kinds` at random, `rate` times per second and shard in all."""
        faults = tuple(kinds)
        when = When(rate=rate / len(faults), stop=stop)
        return cls([(fault, when) for fault in faults], seed=seed)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def add(self, fault: Fault, when: When | None = None) -> Rule:
        """Add a fault; it may strike from now on. Returns the rule, for `remove`."""
        rule = Rule(fault, when if when is not None else When(), f"{self.seed}/{self._added}")
        self._added += 1
        self._rules.append(rule)
        self.listeners.tell()
        return rule

    def remove(self, rule: Rule) -> None:
        """Take a fault out; it does not strike any more."""
        self._rules.remove(rule)

    def clear(self) -> None:
        """Take all faults out. What fired stays in `fired`."""
        self._rules.clear()

    def take(self, site: Site, target: Target, now: float, *, occasion: bool = True) -> Fault | None:
        """Return the fault that strikes now, if one does, and note that it fired.

        `occasion`: False between events, where only faults strike that need none.
        """
        taken: Fault | None = None
        for rule in tuple(self._rules):
            if not rule.applies(site, target):
                continue
            if taken is None:
                if rule.strikes(target, now, occasion=occasion):
                    taken = rule.fault
                    self.fired.append(Fired(now, taken, target))
            elif occasion:
                rule.pass_over(target, now)
        return taken

    def due(self, target: Target, now: float) -> float:
        """Return when a fault strikes this shard's subscription even if no event comes; infinity for none."""
        return min(
            (rule.due(target, now) for rule in self._rules if rule.applies(Site.EVENT, target)), default=math.inf
        )
