"""What is measured of each shard, and under which name it is reported: bounded, however many shards a process meets.

The figures of a shard are dropped some minutes after its reading has ended, when each exporter has their last values.
OpenTelemetry's SDK keeps every set of attributes that it ever got, and distinguishes at most 2,000 of an
instrument. So an observer names a limited number of shards in its life; all further ones are reported together.

An SDK makes an observable instrument once for each name, and drops the callbacks of those who make it again. So the
instrument is made here, with one callback that asks all observers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from threading import Lock
from typing import Any, Final
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from efo.telemetry.instruments import Instrument

Attributes = Mapping[str, str]

SHARD: Final = "messaging.destination.partition.id"
OTHER: Final = "other"
"""The name of all shards beyond those that are distinguished."""
MAX_SHARDS: Final = 500
"""How many shards an observer names in its life, by default: in the status each has some four sets of attributes."""
KEEP_COUNTERS: Final = 300.0
"""Seconds for which counters of a stopped shard are still observed, so that no exporter misses their last values."""
PEAK_INTERVAL: Final = 1.0
"""Seconds between two measurements of a shard by a histogram that takes the highest, with few shards."""
PEAKS_PER_SECOND: Final = 100
"""How many measurements all shards together may add to such a histogram in a second: with more shards than that, each
has one less often. Otherwise a shard of a thousand, whose events are a second apart, would have one for each event."""
DURATIONS_PER_SECOND: Final = 100
"""How many batches of all shards are measured in a second, besides each that takes longer than those before it in that
second. The SDK takes some 20 us for each: 5,000 batches a second would take a tenth of a core."""


class Peaks:
    """Passes on the highest of the measurements of each interval, of one shard.

    A measurement takes the SDK longer than efo needs for an event of one record. So a busy shard has one each interval,
    and a quiet one has one for each event. `due`: from when on the next one is passed on, and `flush` is to be called.
    `interval`: returns seconds.
    """

    __slots__ = ("_highest", "_interval", "_record", "due")

    def __init__(self, record: Callable[[float], None], interval: Callable[[], float]) -> None:
        self._record = record
        self._interval = interval
        self._highest: float | None = None
        self.due = -inf

    def add(self, value: float, now: float) -> None:
        """Add a measurement."""
        if self._highest is None or value > self._highest:
            self._highest = value
        if now >= self.due:
            self.flush(now)

    def flush(self, now: float) -> None:
        """Pass on the highest measurement that was not passed on."""
        if self._highest is not None:
            self._record(self._highest)
            self._highest, self.due = None, now + self._interval()


class Durations:
    """Passes on the first measurements of each second, and then each that is the highest so far, of all shards."""

    __slots__ = ("_due", "_highest", "_left", "_record")

    def __init__(self, record: Callable[[float], None]) -> None:
        self._record = record
        self._highest = 0.0
        self._left = DURATIONS_PER_SECOND
        self._due = -inf

    def add(self, value: float, now: float) -> None:
        """Add a measurement."""
        if now >= self._due:
            self._due, self._left, self._highest = now + 1, DURATIONS_PER_SECOND, 0.0
        if self._left or value > self._highest:
            self._left = max(0, self._left - 1)
            self._highest = max(self._highest, value)
            self._record(value)


@dataclass(slots=True)
class ShardFigures:
    """The figures of one shard. `left_at`: a reading of `clock`, None while the shard is read.

    `blocked`: the highest value that was reported of `backpressure`, with a wait that went on then. Exporters' threads
    write it: a counter must not fall when what waited is dropped.
    """

    attributes: Attributes
    intervals: Peaks
    ages: Peaks
    records: int = 0
    wire_bytes: int = 0
    inflight: int = 0
    filtered: int = 0
    backpressure: float = 0.0
    blocked: float = 0.0
    left_at: float | None = None


COUNTERS: Final = ("records", "wire_bytes", "filtered", "backpressure")
"""The figures that only grow."""


class ShardSeries:
    """The figures of the shards of one consumer.

    `common`: the attributes of all series. `clock`: monotonic seconds. `max_shards`: how many shards it names; None:
    all, for an SDK that forgets. `record_interval`, `record_age`: see Peaks. Only reporting tasks write; the callbacks
    of exporters' threads only read.
    """

    def __init__(
        self,
        common: Attributes,
        clock: Callable[[], float],
        max_shards: int | None,
        record_interval: Callable[[float], None],
        record_age: Callable[[float], None],
    ) -> None:
        self._common = common
        self._clock = clock
        self._max_shards = inf if max_shards is None else max_shards
        self._record_interval = record_interval
        self._record_age = record_age
        self._named: set[str] = set()
        self._shards: dict[str, ShardFigures] = {}
        self._ended = dict.fromkeys(COUNTERS, 0.0)
        """The counters of shards that are not named, and whose figures were dropped."""

    def __len__(self) -> int:
        return len(self._shards)

    def get(self, shard_id: str) -> ShardFigures | None:
        """Return the figures of a shard, if there are any."""
        return self._shards.get(shard_id)

    def of(self, shard_id: str) -> ShardFigures:
        """Return the figures of a shard. What is reported of one that is not read does not stay."""
        if figures := self._shards.get(shard_id):
            return figures
        figures = self._shards[shard_id] = ShardFigures(
            self.attributes(shard_id),
            Peaks(self._record_interval, self._peak_interval),
            Peaks(self._record_age, self._peak_interval),
            left_at=self._clock(),
        )
        return figures

    def started(self, shard_id: str) -> None:
        """Note that a shard is read from now on."""
        figures = self.of(shard_id)
        figures.inflight, figures.left_at = 0, None

    def left(self, shard_id: str) -> None:
        """Note that a shard is not read any more, and drop the figures of those that stopped long ago."""
        now = self._clock()
        if figures := self._shards.get(shard_id):
            figures.left_at = now
            figures.intervals.flush(now)
            figures.ages.flush(now)
        kept: dict[str, ShardFigures] = {}
        for key, each in self._shards.items():
            if each.left_at is None or each.left_at > now - KEEP_COUNTERS:
                kept[key] = each
            elif each.attributes[SHARD] == OTHER:
                for name in COUNTERS:
                    self._ended[name] += getattr(each, name)
        self._shards = kept

    def attributes(self, shard_id: str) -> Attributes:
        """Return the attributes of a shard's series."""
        if shard_id not in self._named:
            if len(self._named) >= self._max_shards:
                return {**self._common, SHARD: OTHER}
            if self._max_shards < inf:
                self._named.add(shard_id)
        return {**self._common, SHARD: shard_id}

    def counters(self, name: str, ongoing: Mapping[str, float] | None = None) -> Iterator[tuple[Attributes, float]]:
        """Yield a counter of the shards that are read or were until lately. Those of one name are to be added up.

        `ongoing`: of "backpressure", for how long an event of each shard has waited that still waits.
        """
        horizon = self._clock() - KEEP_COUNTERS
        for shard_id, figures in list(self._shards.items()):
            if figures.left_at is None or figures.left_at > horizon or figures.attributes[SHARD] == OTHER:
                value = getattr(figures, name)
                if ongoing is not None:
                    value = figures.blocked = max(figures.blocked, value + ongoing.get(shard_id, 0.0))
                yield figures.attributes, value
        if self._ended[name]:
            yield {**self._common, SHARD: OTHER}, self._ended[name]

    def inflight(self) -> Iterator[tuple[Attributes, float]]:
        """Yield the records in flight of the shards that are read. Those of one name are to be added up."""
        for figures in list(self._shards.values()):
            if figures.left_at is None:
                yield figures.attributes, figures.inflight

    def _peak_interval(self) -> float:
        return max(PEAK_INTERVAL, len(self._shards) / PEAKS_PER_SECOND)


def observations(found: Iterable[tuple[Attributes, float]], extra: Attributes | None = None) -> list[Observation]:
    """Return observations of a counter, one for each set of attributes. `extra`: more attributes."""
    sums: dict[str, tuple[Attributes, float]] = {}
    for attributes, value in found:
        name = attributes[SHARD]
        sums[name] = attributes, value + (sums[name][1] if name in sums else 0)
    return [Observation(value, {**attributes, **(extra or {})}) for attributes, value in sums.values()]


Callback = Callable[[CallbackOptions], Iterable[Observation]]

_LOCK: Final = Lock()


class Observables:
    """The observable instruments of a meter. Get it by `observables_of`."""

    def __init__(self) -> None:
        self._callbacks: dict[Instrument, dict[Hashable, Callback]] = {}

    def observe(self, meter: Meter, instrument: Instrument, key: Hashable, callback: Callback) -> None:
        """Ask `callback` too when the instrument is exported. It replaces that of the same `key`.

        So what is observed under a key, such as a stream and an application, ends only with the meter or with the next
        observer of the same: its last values can still be exported.
        """
        with _LOCK:
            callbacks = self._callbacks.get(instrument)
            if callbacks is None:
                callbacks = self._callbacks[instrument] = {}
                create = getattr(meter, f"create_{instrument.kind}")
                create(instrument.name, [_asking(callbacks)], instrument.unit, instrument.description)
            callbacks[key] = callback


_SHARED: Final[WeakKeyDictionary[Meter, Observables]] = WeakKeyDictionary()


def observables_of(meter: Meter) -> Observables:
    """Return the observable instruments of a meter: the same object for all who use it."""
    with _LOCK:
        return _SHARED.setdefault(meter, Observables())


def _asking(callbacks: dict[Hashable, Callback]) -> Callable[[Any], Iterable[Observation]]:
    """Return a callback that asks all. Exporters' threads call it, so it copies the dict, which is atomic."""
    return lambda options: [found for callback in list(callbacks.values()) for found in callback(options)]
