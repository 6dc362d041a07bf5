"""Feeds OpenTelemetry instruments from diagnostic events. It needs only the API; the application chooses the SDK.

The shard is an attribute of gauges and counters, never of histograms. Counters per shard are kept here and read by
callbacks; gauges are computed from what the consumer knows (`efo.protocol.reading`) when they are exported. So the
series of a shard end when its reading ends, and an event costs no call of OpenTelemetry for them. Each callback reads
one figure of a shard, so exporters' threads, which run the callbacks, never see a partial change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Final

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation, get_meter

from efo.events import (
    AggregateDamaged,
    BatchDelivered,
    ConnectionClosed,
    ConnectionOpened,
    ConsumerOpened,
    DeliveryBlocked,
    Event,
    EventReceived,
    HandlerFailed,
    LeaseLost,
    LeaseStoreCalled,
    PollAttempted,
    RecordDeadLettered,
    RecordSkipped,
    RecordsProcessed,
    ShardFinished,
    ShardIsolated,
    ShardRepositioned,
    ShardStarted,
    ShardStopped,
    StreamReset,
    SubscribeAttempted,
    SubscriptionEnded,
)
from efo.protocol.reading import Readings, ShardReading, checkpoint_age, condition, event_age, lag
from efo.telemetry import instruments
from efo.telemetry.combined import FREQUENT, nothing_held
from efo.telemetry.instruments import Instrument
from efo.telemetry.observables import observables_of

SHARD_STATES: Final = ("waiting_parent", "ready", "consuming", "finished")
LEASE_STATES: Final = ("held", "unowned", "expired")
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

Attributes = Mapping[str, str]


class _Peaks:
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
        if self._highest is None or value > self._highest:
            self._highest = value
        if now >= self.due:
            self.flush(now)

    def flush(self, now: float) -> None:
        """Pass on the highest measurement that was not passed on."""
        if self._highest is not None:
            self._record(self._highest)
            self._highest, self.due = None, now + self._interval()


class _Durations:
    """Passes on the first measurements of each second, and then each that is the highest so far, of all shards."""

    __slots__ = ("_due", "_highest", "_left", "_record")

    def __init__(self, record: Callable[[float], None]) -> None:
        self._record = record
        self._highest = 0.0
        self._left = DURATIONS_PER_SECOND
        self._due = -inf

    def add(self, value: float, now: float) -> None:
        if now >= self._due:
            self._due, self._left, self._highest = now + 1, DURATIONS_PER_SECOND, 0.0
        if self._left or value > self._highest:
            self._left = max(0, self._left - 1)
            self._highest = max(self._highest, value)
            self._record(value)


@dataclass(slots=True)
class _ShardFigures:
    """The figures of one shard. `left_at`: a reading of `clock`, None while the shard is read."""

    attributes: Attributes
    intervals: _Peaks
    ages: _Peaks
    records: int = 0
    wire_bytes: int = 0
    inflight: int = 0
    backpressure: float = 0.0
    left_at: float | None = None


class OtelObserver:
    """An observer that feeds the instruments of `efo.telemetry.instruments`.

    `stream`, `application` and `consumer` (the fan-out consumer's name; None: the application's) are attributes of all
    instruments; `server_address`, the endpoint's host, is an attribute of the duration of calls. `meter_provider`: None
    for the global one. `clock`: returns seconds, monotonic.

    Observers of several streams may share a provider. One with the same names replaces the gauges of the one before.
    """

    def __init__(
        self,
        *,
        stream: str,
        application: str,
        consumer: str | None = None,
        server_address: str | None = None,
        meter_provider: MeterProvider | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._common: Attributes = {
            "messaging.system": "aws.kinesis",
            "messaging.destination.name": stream,
            "messaging.consumer.group.name": application,
            "messaging.destination.subscription.name": consumer or application,
        }
        self._server = {"server.address": server_address} if server_address else {}
        self._clock = clock
        self._shards: dict[str, _ShardFigures] = {}
        self._readings: Readings | None = None
        self._feeds = self._table
        self._drain: Callable[[], None] = nothing_held
        meter = get_meter("efo", meter_provider=meter_provider, schema_url=instruments.SCHEMA_URL)
        observed: dict[Instrument, Callable[..., Iterable[Observation]]] = {
            instruments.CONSUMED: self._observe_consumed,
            instruments.SUBSCRIPTION_IO: self._observe_wire_bytes,
            instruments.CONSUMER_LAG: partial(self._observe_reading, lag),
            instruments.EVENT_AGE: partial(self._observe_reading, event_age),
            instruments.CHECKPOINT_AGE: partial(self._observe_reading, checkpoint_age),
            instruments.SHARD_STATUS: self._observe_status,
            instruments.SHARD_COUNT: self._observe_shard_counts,
            instruments.LEASE_COUNT: self._observe_lease_counts,
            instruments.WORKER_COUNT: self._observe_workers,
            instruments.RECORD_INFLIGHT: self._observe_inflight,
            instruments.BACKPRESSURE_TIME: self._observe_backpressure,
        }
        self._instruments: dict[Instrument, Any] = {
            instrument: create_instrument(meter, instrument)
            for instrument in instruments.ALL
            if instrument not in observed
        }
        shared, key = observables_of(meter), tuple(self._common.values())
        for instrument, observe in observed.items():
            shared.observe(meter, instrument, key, observe)
        # What each event of a shard feeds.
        self._process = {**self._common, "messaging.operation.name": "process"}
        self._process_duration: Histogram = self._instruments[instruments.PROCESS_DURATION]
        self._record_interval = partial(self._record, instruments.EVENT_INTERVAL)
        self._record_age = partial(self._record, instruments.RECORD_AGE)
        self._durations = _Durations(partial(self._process_duration.record, attributes=self._process))

    @property
    def _table(self) -> dict[type, Callable[[Any], None]]:
        """The method for each type of event that is not frequent. Other events feed no instrument."""
        return {
            ConsumerOpened: self._opened,
            SubscribeAttempted: self._attempted,
            SubscriptionEnded: self._ended,
            PollAttempted: self._polled,
            DeliveryBlocked: self._blocked,
            AggregateDamaged: self._aggregate_damaged,
            ConnectionOpened: self._connection_opened,
            ConnectionClosed: self._connection_closed,
            StreamReset: self._reset,
            HandlerFailed: self._handler_failed,
            RecordSkipped: self._record_skipped,
            RecordDeadLettered: self._record_dead_lettered,
            ShardIsolated: self._isolated,
            ShardStarted: self._started,
            ShardRepositioned: self._repositioned,
            ShardStopped: self._left,
            ShardFinished: self._left,
            LeaseStoreCalled: self._store_called,
            LeaseLost: self._lease_lost,
        }

    def observes(self, event_type: type) -> bool:
        """Whether events of this type feed an instrument (see `combine_observers`)."""
        return event_type in FREQUENT or event_type in self._feeds

    def __call__(self, event: Event) -> None:
        """Feed the instruments from one event."""
        if type(event) in FREQUENT:
            self.observe_many((event,))
        elif (feed := self._feeds.get(type(event))) is not None:
            feed(event)

    def observe_many(self, events: Sequence[Event]) -> None:
        """Feed the instruments from events of the types in `FREQUENT` (see `efo.telemetry.combined`)."""
        now = self._clock()
        for event in events:
            match event:
                case EventReceived(shard_id=shard_id):
                    self._received(event, self._shards.get(shard_id) or self._shard(shard_id), now)
                case BatchDelivered(shard_id=shard_id):
                    (self._shards.get(shard_id) or self._shard(shard_id)).inflight += event.records
                case RecordsProcessed(shard_id=shard_id):
                    self._processed(event, self._shards.get(shard_id) or self._shard(shard_id), now)

    def held_by(self, drain: Callable[[], None]) -> None:
        """Call `drain` before each export: it passes on the events that are held back."""
        self._drain = drain

    def _opened(self, event: ConsumerOpened) -> None:
        self._readings = event.readings

    # --- subscriptions ---------------------------------------------------------------------------------

    def _attempted(self, event: SubscribeAttempted) -> None:
        error = error_attributes(event.error_type)
        self._add(instruments.SUBSCRIPTION_ATTEMPTS, 1, error)
        self._record(instruments.SUBSCRIPTION_WAIT, event.waited)
        operation = {"messaging.operation.name": "subscribe", "messaging.operation.type": "receive"}
        self._record(instruments.OPERATION_DURATION, event.duration, operation | self._server | error)
        if event.error_type is None:
            self._add(instruments.SUBSCRIPTION_ACTIVE, 1)

    def _polled(self, event: PollAttempted) -> None:
        operation = {"messaging.operation.name": "poll", "messaging.operation.type": "receive"}
        attributes = operation | self._server | error_attributes(event.error_type)
        self._record(instruments.OPERATION_DURATION, event.duration, attributes)

    def _ended(self, event: SubscriptionEnded) -> None:
        self._add(instruments.SUBSCRIPTION_ACTIVE, -1)
        self._record(instruments.SUBSCRIPTION_DURATION, event.age, {"efo.subscription.end_reason": event.reason})
        if event.reason == "protocol":
            self._add(instruments.DECODE_ERRORS, 1, error_attributes("protocol"))

    def _received(self, event: EventReceived, shard: _ShardFigures, now: float) -> None:
        if event.interval is not None:
            shard.intervals.add(event.interval, now)
        if now >= shard.ages.due:
            shard.ages.flush(now)
        shard.wire_bytes += event.wire_bytes

    def _aggregate_damaged(self, _event: AggregateDamaged) -> None:
        self._add(instruments.DECODE_ERRORS, 1, error_attributes("aggregation"))

    def _connection_opened(self, event: ConnectionOpened) -> None:
        self._instruments[instruments.CONNECTION_ACTIVE].add(1, {"server.address": event.address})

    def _connection_closed(self, event: ConnectionClosed) -> None:
        self._instruments[instruments.CONNECTION_ACTIVE].add(-1, {"server.address": event.address})

    def _reset(self, event: StreamReset) -> None:
        attributes = {"server.address": event.address, "efo.http2.error_code": event.error_code}
        self._instruments[instruments.HTTP2_RESETS].add(1, attributes)

    # --- records and shards ----------------------------------------------------------------------------

    def _blocked(self, event: DeliveryBlocked) -> None:
        self._shard(event.shard_id).backpressure += event.duration

    def _processed(self, event: RecordsProcessed, shard: _ShardFigures, now: float) -> None:
        self._durations.add(event.duration, now)
        if event.oldest_age is not None:
            shard.ages.add(event.oldest_age, now)
        shard.records += event.records
        shard.inflight = max(0, shard.inflight - event.records)

    def _handler_failed(self, event: HandlerFailed) -> None:
        if event.call == "handler":
            self._process_duration.record(event.duration, self._process | error_attributes(event.error_type))

    def _record_skipped(self, event: RecordSkipped) -> None:
        self._add(instruments.RECORD_FAILURES, 1, {"efo.failure.action": "skip"} | error_attributes(event.error_type))

    def _record_dead_lettered(self, event: RecordDeadLettered) -> None:
        self._add(
            instruments.RECORD_FAILURES, 1, {"efo.failure.action": "dead_letter"} | error_attributes(event.error_type)
        )

    def _isolated(self, event: ShardIsolated) -> None:
        self._add(instruments.SHARD_ISOLATIONS, 1, error_attributes(event.error_type))

    def _started(self, event: ShardStarted) -> None:
        shard = self._shard(event.shard_id)
        shard.inflight, shard.left_at = 0, None

    def _repositioned(self, event: ShardRepositioned) -> None:
        """Reset the records in flight: acks of batches that were delivered before a seek have no effect."""
        if shard := self._shards.get(event.shard_id):
            shard.inflight = 0

    def _left(self, event: ShardStopped | ShardFinished) -> None:
        if shard := self._shards.get(event.shard_id):
            now = shard.left_at = self._clock()
            shard.intervals.flush(now)
            shard.ages.flush(now)
        self._forget()

    # --- leases ----------------------------------------------------------------------------------------

    def _store_called(self, event: LeaseStoreCalled) -> None:
        attributes = {"efo.lease.operation": event.operation} | error_attributes(event.error_type)
        self._add(instruments.LEASE_OPERATIONS, event.leases, attributes)
        self._record(instruments.LEASE_OPERATION_DURATION, event.duration, attributes)
        if event.operation == "checkpoint":
            operation = {"messaging.operation.name": "checkpoint", "messaging.operation.type": "settle"}
            self._record(instruments.OPERATION_DURATION, event.duration, operation | error_attributes(event.error_type))

    def _lease_lost(self, event: LeaseLost) -> None:
        self._add(instruments.LEASE_LOSSES, 1, {"efo.lease.loss_reason": event.reason})

    # --- the instruments -------------------------------------------------------------------------------

    def _add(self, instrument: Instrument, amount: int, attributes: Attributes | None = None) -> None:
        self._instruments[instrument].add(amount, {**self._common, **(attributes or {})})

    def _record(self, instrument: Instrument, value: float, attributes: Attributes | None = None) -> None:
        self._instruments[instrument].record(value, {**self._common, **(attributes or {})})

    # --- per shard; the callbacks run in exporters' threads --------------------------------------------

    def _shard(self, shard_id: str) -> _ShardFigures:
        if figures := self._shards.get(shard_id):
            return figures
        attributes = self._attributes_of(shard_id)
        figures = self._shards[shard_id] = _ShardFigures(
            attributes,
            _Peaks(self._record_interval, self._peak_interval),
            _Peaks(self._record_age, self._peak_interval),
        )
        return figures

    def _peak_interval(self) -> float:
        return max(PEAK_INTERVAL, len(self._shards) / PEAKS_PER_SECOND)

    def _attributes_of(self, shard_id: str) -> Attributes:
        return {**self._common, "messaging.destination.partition.id": shard_id}

    def _forget(self) -> None:
        """Drop the figures of shards that stopped long ago. Only reporting tasks write; callbacks only read."""
        horizon = self._clock() - KEEP_COUNTERS
        self._shards = {
            key: shard for key, shard in self._shards.items() if shard.left_at is None or shard.left_at > horizon
        }

    def _counted(self) -> Iterator[_ShardFigures]:
        """Yield the figures of the shards whose counters are still observed."""
        self._drain()
        horizon = self._clock() - KEEP_COUNTERS
        return (s for s in list(self._shards.values()) if s.left_at is None or s.left_at > horizon)

    def _observe_consumed(self, _options: CallbackOptions) -> Iterable[Observation]:
        operation = {"messaging.operation.name": "receive"}
        return [Observation(shard.records, {**shard.attributes, **operation}) for shard in self._counted()]

    def _observe_wire_bytes(self, _options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(shard.wire_bytes, shard.attributes) for shard in self._counted()]

    def _observe_backpressure(self, _options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(shard.backpressure, shard.attributes) for shard in self._counted()]

    def _observe_inflight(self, _options: CallbackOptions) -> Iterable[Observation]:
        self._drain()
        shards = [shard for shard in list(self._shards.values()) if shard.left_at is None]
        return [Observation(shard.inflight, shard.attributes) for shard in shards]

    # --- gauges, from what the consumer knows -----------------------------------------------------------

    def _observe_reading(
        self, measure: Callable[[ShardReading, float], float | None], _options: CallbackOptions
    ) -> Iterable[Observation]:
        if (readings := self._readings) is None:
            return []
        now = readings.now()
        values = ((shard.shard_id, measure(shard, now)) for shard in readings.shards())
        return [Observation(value, self._attributes_of(shard_id)) for shard_id, value in values if value is not None]

    def _observe_status(self, _options: CallbackOptions) -> Iterable[Observation]:
        if (readings := self._readings) is None:
            return []
        now = readings.now()
        return [
            Observation(
                1,
                {
                    **self._attributes_of(shard.shard_id),
                    "efo.subscription.state": shard.state,
                    "efo.shard.condition": condition(shard, now),
                    "efo.shard.read_mode": shard.read_mode or "none",
                },
            )
            for shard in readings.shards()
        ]

    def _observe_shard_counts(self, _options: CallbackOptions) -> Iterable[Observation]:
        counts = self._readings and self._readings.counts()
        return self._by_state("efo.shard.state", SHARD_STATES, counts.shards) if counts else []

    def _observe_lease_counts(self, _options: CallbackOptions) -> Iterable[Observation]:
        counts = self._readings and self._readings.counts()
        return self._by_state("efo.lease.state", LEASE_STATES, counts.leases) if counts else []

    def _observe_workers(self, _options: CallbackOptions) -> Iterable[Observation]:
        counts = self._readings and self._readings.counts()
        return [Observation(counts.workers, self._common)] if counts else []

    def _by_state(self, name: str, states: Iterable[str], counts: Mapping[str, int]) -> Iterable[Observation]:
        return [Observation(counts.get(state, 0), {**self._common, name: state}) for state in states]


def error_attributes(error_type: str | None) -> dict[str, str]:
    """Return the attribute of a failure; none of a success."""
    return {"error.type": error_type} if error_type else {}


def create_instrument(meter: Meter, instrument: Instrument) -> Any:
    """Create an instrument that is not observable."""
    name, unit, description = instrument.name, instrument.unit, instrument.description
    create = getattr(meter, f"create_{instrument.kind}")
    if instrument.kind == "histogram":
        return create(name, unit, description, explicit_bucket_boundaries_advisory=instrument.buckets)
    return create(name, unit, description)
