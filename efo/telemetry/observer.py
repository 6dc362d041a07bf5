"""Feeds OpenTelemetry instruments from diagnostic events. It needs only the API; the application chooses the SDK.

The shard is an attribute of observable gauges and counters alone. Counters per shard are kept here and read by
callbacks; gauges are computed from what the consumer knows (`efo.health`) when they are exported. So the
series of a shard end when its reading ends, and an event costs no call of OpenTelemetry for them. Each callback reads
one figure of a shard, so exporters' threads, which run the callbacks, never see a partial change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation, get_meter

from efo.checks import check_count
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
    RecordsDropped,
    RecordsExpired,
    RecordsFiltered,
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
from efo.health import (
    Readings,
    ShardReading,
    checkpoint_age,
    condition,
    event_age,
    lag,
    read_lag,
    unacked_age,
)
from efo.telemetry import instruments
from efo.telemetry.combined import FREQUENT, nothing_held
from efo.telemetry.instruments import Instrument
from efo.telemetry.shard_series import (
    MAX_SHARDS,
    SHARD,
    Attributes,
    Durations,
    ShardFigures,
    ShardSeries,
    observables_of,
    observations,
)

SHARD_STATES: Final = ("waiting_parent", "ready", "consuming", "finished")
LEASE_STATES: Final = ("held", "unowned", "expired")


class OtelObserver:
    """An observer that feeds the instruments of `efo.telemetry.instruments`.

    `stream`, `application` and `consumer` (the fan-out consumer's name; None: the application's) are attributes of all
    instruments; `server_address`, the endpoint's host, is an attribute of the duration of calls. `meter_provider`: None
    for the global one. `max_shards`: how many shards are distinguished in its life, all others being the shard "other",
    since OpenTelemetry's SDK keeps all that it ever got; None: no limit. `clock`: returns seconds, monotonic.

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
        max_shards: int | None = MAX_SHARDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if max_shards is not None:
            check_count("max_shards", max_shards, unit=", or None")
        self._common: Attributes = {
            "messaging.system": "aws.kinesis",
            "messaging.destination.name": stream,
            "messaging.consumer.group.name": application,
            "messaging.destination.subscription.name": consumer or application,
        }
        self._server = {"server.address": server_address} if server_address else {}
        self._clock = clock
        self._readings: Readings | None = None
        self._filtering: Attributes = {}  # of the counter of filtered records, once there are any
        self._feeds = self._table
        self._drain: Callable[[], None] = nothing_held
        meter = get_meter("efo", meter_provider=meter_provider, schema_url=instruments.SCHEMA_URL)
        observed: dict[Instrument, Callable[..., Iterable[Observation]]] = {
            instruments.CONSUMED: self._observe_consumed,
            instruments.SUBSCRIPTION_IO: partial(self._observe_counter, "wire_bytes"),
            instruments.CONSUMER_LAG: partial(self._observe_reading, lag),
            instruments.READ_LAG: partial(self._observe_reading, read_lag),
            instruments.UNACKED_AGE: partial(self._observe_reading, unacked_age),
            instruments.EVENT_AGE: partial(self._observe_reading, event_age),
            instruments.CHECKPOINT_AGE: partial(self._observe_reading, checkpoint_age),
            instruments.SHARD_STATUS: self._observe_status,
            instruments.SHARD_COUNT: self._observe_shard_counts,
            instruments.LEASE_COUNT: self._observe_lease_counts,
            instruments.WORKER_COUNT: self._observe_workers,
            instruments.RECORD_INFLIGHT: self._observe_inflight,
            instruments.BACKPRESSURE_TIME: self._observe_backpressure,
            instruments.RECORDS_FILTERED: self._observe_filtered,
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
        record_interval, record_age = (
            partial(self._record, instruments.EVENT_INTERVAL),
            partial(self._record, instruments.RECORD_AGE),
        )
        self._shards = ShardSeries(self._common, clock, max_shards, record_interval, record_age)
        self._durations = Durations(partial(self._process_duration.record, attributes=self._process))

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
            RecordsFiltered: self._filtered,
            ConnectionOpened: self._connection_opened,
            ConnectionClosed: self._connection_closed,
            StreamReset: self._reset,
            HandlerFailed: self._handler_failed,
            RecordSkipped: self._record_skipped,
            RecordDeadLettered: self._record_dead_lettered,
            RecordsDropped: self._dropped,
            RecordsExpired: self._expired,
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
                    self._received(event, self._shards.get(shard_id) or self._shards.of(shard_id), now)
                case BatchDelivered(shard_id=shard_id):
                    (self._shards.get(shard_id) or self._shards.of(shard_id)).inflight += event.records
                case RecordsProcessed(shard_id=shard_id):
                    self._processed(event, self._shards.get(shard_id) or self._shards.of(shard_id), now)

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

    def _received(self, event: EventReceived, shard: ShardFigures, now: float) -> None:
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
        self._shards.of(event.shard_id).backpressure += event.duration

    def _filtered(self, event: RecordsFiltered) -> None:
        self._shards.of(event.shard_id).filtered += event.records
        self._filtering = {"efo.aggregate.mode": str(event.mode)}

    def _processed(self, event: RecordsProcessed, shard: ShardFigures, now: float) -> None:
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

    def _dropped(self, event: RecordsDropped) -> None:
        self._add(instruments.RECORDS_DROPPED, event.records, {"efo.drop.reason": event.reason})
        if event.reason == "behind":
            self._add(instruments.RECORD_SKIPPED_TIME, max(0.0, event.until - event.since))

    def _expired(self, event: RecordsExpired) -> None:
        self._add(instruments.RECORD_EXPIRED_TIME, event.seconds)

    def _isolated(self, event: ShardIsolated) -> None:
        self._add(instruments.SHARD_ISOLATIONS, 1, error_attributes(event.error_type))

    def _started(self, event: ShardStarted) -> None:
        self._shards.started(event.shard_id)

    def _repositioned(self, event: ShardRepositioned) -> None:
        """Reset the records in flight: acks of batches that were delivered before a seek have no effect."""
        if shard := self._shards.get(event.shard_id):
            shard.inflight = 0

    def _left(self, event: ShardStopped | ShardFinished) -> None:
        self._shards.left(event.shard_id)

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

    def _add(self, instrument: Instrument, amount: float, attributes: Attributes | None = None) -> None:
        self._instruments[instrument].add(amount, {**self._common, **(attributes or {})})

    def _record(self, instrument: Instrument, value: float, attributes: Attributes | None = None) -> None:
        self._instruments[instrument].record(value, {**self._common, **(attributes or {})})

    # --- per shard; the callbacks run in exporters' threads --------------------------------------------

    def _observe_consumed(self, _options: CallbackOptions) -> Iterable[Observation]:
        self._drain()
        return observations(self._shards.counters("records"), {"messaging.operation.name": "receive"})

    def _observe_counter(self, name: str, _options: CallbackOptions) -> Iterable[Observation]:
        self._drain()
        return observations(self._shards.counters(name))

    def _observe_backpressure(self, _options: CallbackOptions) -> Iterable[Observation]:
        self._drain()
        waits: dict[str, float] = {}
        if (readings := self._readings) is not None:
            now = readings.now()
            waits = {s.shard_id: now - s.pending_since for s in readings.shards() if s.pending_since is not None}
        return observations(self._shards.counters("backpressure", waits))

    def _observe_filtered(self, _options: CallbackOptions) -> Iterable[Observation]:
        if not self._filtering:
            return []
        return observations(self._shards.counters("filtered"), self._filtering)

    def _observe_inflight(self, _options: CallbackOptions) -> Iterable[Observation]:
        self._drain()
        return observations(self._shards.inflight())

    # --- gauges, from what the consumer knows -----------------------------------------------------------

    def _observe_reading(
        self, measure: Callable[[ShardReading, float], float | None], _options: CallbackOptions
    ) -> Iterable[Observation]:
        if (readings := self._readings) is None:
            return []
        now = readings.now()
        highest: dict[str, tuple[Attributes, float]] = {}
        for shard in readings.shards():
            if (value := measure(shard, now)) is not None:
                attributes = self._shards.attributes(shard.shard_id)
                name = attributes[SHARD]
                if name not in highest or value > highest[name][1]:
                    highest[name] = attributes, value
        return [Observation(value, attributes) for attributes, value in highest.values()]

    def _observe_status(self, _options: CallbackOptions) -> Iterable[Observation]:
        if (readings := self._readings) is None:
            return []
        now = readings.now()
        return [
            Observation(
                1,
                {
                    **self._shards.attributes(shard.shard_id),
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
