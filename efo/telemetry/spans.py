"""OpenTelemetry spans of a consumer. They need only the API; the application chooses the SDK.

    process STREAM      around a call of the handler, or a commit group of the relay; linked to the records' traces
    subscribe STREAM    the handshake of a SubscribeToShard call, not the five minutes that follow it
    checkpoint STREAM   a write of checkpoints to the lease store

The last two are made from diagnostic events, when they are over. A process span starts a trace of its own: the records
of a batch come from many traces, and the consumer itself runs for months. What a span costs is paid once for a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import monotonic, time_ns
from types import TracebackType
from typing import Final, Self

import trio
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import (
    NoOpTracer,
    ProxyTracer,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from efo.checks import check_count
from efo.errors import error_type_of
from efo.events import Event, LeaseStoreCalled, SubscribeAttempted
from efo.exception_groups import leaf_exceptions
from efo.model import Record
from efo.protocol.failure import FailureAction
from efo.telemetry.instruments import SCHEMA_URL
from efo.telemetry.trace_context import TraceContext, TraceExtractor, from_tags

MAX_LINKS: Final = 128
"""How many records of a process span are searched for trace contexts, so that a large batch costs no more than others.
The SDK keeps as many links (OpenTelemetry: Link count limit)."""
BATCH_SPANS_PER_SECOND: Final = 20
"""How many process spans a shard has in a second, by default. The service sends a shard's 2 MiB/s in fewer events, so
only a backlog of very small events, and a fast server in a test, have batches without a span of their own."""

Attributes = Mapping[str, str]

_CALLS: Final = {SubscribeAttempted, LeaseStoreCalled}


class OtelTracing:
    """Makes the spans of a consumer: pass it to `consume` or `open_consumer`.

    `tracer_provider`: None for the global one. `extract`: returns the trace context of a record, to which the process
    span is linked; by default that of the KPL tags `traceparent` and `tracestate`. None: no links.
    `batch_spans_per_second`: how many process spans a shard has in a second at most. Further batches of that second
    have none; the next span counts them in its attribute `efo.batch.omitted`. Raises ConfigurationError.

    Without an OtelTracing, a consumer makes spans if the application has set a global provider before.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        extract: TraceExtractor | None = from_tags,
        batch_spans_per_second: int = BATCH_SPANS_PER_SECOND,
    ) -> None:
        check_count("batch_spans_per_second", batch_spans_per_second)
        self.batch_spans_per_second = batch_spans_per_second
        self.tracer_provider = tracer_provider
        self.extract = extract


def tracer_of(provider: TracerProvider | None) -> Tracer | None:
    """Return the tracer of efo; None if no provider is set, or if the SDK is disabled. None: the global provider."""
    tracer = get_tracer("efo", tracer_provider=provider, schema_url=SCHEMA_URL)
    return None if isinstance(tracer, (NoOpTracer, ProxyTracer)) else tracer


def spans_of(
    tracing: OtelTracing,
    *,
    stream: str,
    application: str,
    consumer: str | None,
    server_address: str | None,
    clock: Callable[[], float] = monotonic,
) -> Spans | None:
    """Return the spans of one consumer; None if no provider is set. The other arguments are those of OtelObserver."""
    if (tracer := tracer_of(tracing.tracer_provider)) is None:
        return None
    common = {
        "messaging.system": "aws.kinesis",
        "messaging.destination.name": stream,
        "messaging.consumer.group.name": application,
        "messaging.destination.subscription.name": consumer or application,
    }
    server = {"server.address": server_address} if server_address else {}
    return Spans(tracer, stream, common, server, tracing.extract, tracing.batch_spans_per_second, clock)


class Spans:
    """The spans of one consumer. It is an observer: it makes spans of calls that are over. Made by `spans_of`."""

    def __init__(
        self,
        tracer: Tracer,
        stream: str,
        common: Attributes,
        server: Attributes,
        extract: TraceExtractor | None,
        limit: int,
        clock: Callable[[], float],
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._tracer = tracer
        self._stream = stream
        self._common = common
        self._extract = extract
        self._subscribe = {**_operation("subscribe", "receive"), **common, **server}
        self._checkpoint = {**_operation("checkpoint", "settle"), **common}

    def of_shard(self, shard_id: str) -> ShardSpans:
        """Return the process spans of one shard."""
        attributes = {**_operation("process", "process"), **self._common, **_partition(shard_id)}
        return ShardSpans(self._tracer, f"process {self._stream}", attributes, self._extract, self._limit, self._clock)

    def observes(self, event_type: type) -> bool:
        """Whether spans are made of events of this type (see `combine_observers`)."""
        return event_type in _CALLS

    def __call__(self, event: Event) -> None:
        """Make the span of a call that is over: of SubscribeToShard, and of the lease store for checkpoints."""
        if type(event) in _CALLS:  # of batches and events there are many more
            self._called(event)

    def _called(self, event: Event) -> None:
        if isinstance(event, SubscribeAttempted):
            attributes = {**self._subscribe, **_partition(event.shard_id)}
            self._record("subscribe", attributes, event.duration, event.error_type)
        elif isinstance(event, LeaseStoreCalled) and event.operation == "checkpoint":
            attributes = {**self._checkpoint, **(_partition(event.shard_id) if event.shard_id else {})}
            self._record("checkpoint", attributes | {"efo.lease.count": event.leases}, event.duration, event.error_type)

    def _record(
        self, operation: str, attributes: Mapping[str, str | int], duration: float, error_type: str | None
    ) -> None:
        ended = time_ns()
        span = self._tracer.start_span(
            f"{operation} {self._stream}",
            context=_ROOT,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=ended - round(duration * 1e9),
        )
        if error_type is not None:
            set_error(span, error_type)
        span.end(ended)


class ShardSpans:
    """The process spans of one shard. `limit`: at most as many each second."""

    __slots__ = ("_attributes", "_clock", "_extract", "_left", "_limit", "_name", "_omitted", "_second_ends", "_tracer")

    def __init__(
        self,
        tracer: Tracer,
        name: str,
        attributes: Attributes,
        extract: TraceExtractor | None,
        limit: int,
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._tracer = tracer
        self._name = name
        self._attributes = attributes
        self._extract = extract
        self._limit = self._left = limit
        self._second_ends = -inf
        self._omitted = 0

    def of_batch(self, records: Sequence[Record]) -> ProcessSpan | None:
        """Start the process span of a batch, to be used as a context manager; None beyond the limit of this second."""
        if (now := self._clock()) >= self._second_ends:
            self._second_ends, self._left = now + 1, self._limit
        if not self._left:
            self._omitted += 1
            return None
        self._left -= 1
        omitted = {_OMITTED: self._omitted} if self._omitted else {}
        self._omitted = 0
        span = self._start({_COUNT: len(records), **omitted})
        span.add(records)
        span.reported = len(records)
        return span

    def of_group(self) -> ProcessSpan:
        """Start the process span of records that are still to be added. Then use it as a context manager."""
        return self._start({_COUNT: 0})

    def _start(self, counts: Mapping[str, int]) -> ProcessSpan:
        attributes: dict[str, str | int] = {**self._attributes, **counts}  # cheaper than to set them later
        span = self._tracer.start_span(self._name, context=_ROOT, kind=SpanKind.CONSUMER, attributes=attributes)
        return ProcessSpan(span, self._extract)


class CurrentSpan:
    """A span that has started. In its block it is current, so spans that start there are its children.

    It ends with the block. An exception that leaves the block is its error; only the exception's type is recorded,
    since its text may contain data.
    """

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> Self:
        self._token = otel_context.attach(set_span_in_context(self._span))
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        otel_context.detach(self._token)
        if error is not None:
            set_error(self._span, _error_type(error))
        self._span.end()


class ProcessSpan(CurrentSpan):
    """A process span that has started. `add` its records, then enter it."""

    __slots__ = ("_extract", "_failures", "_linked", "_records", "_searched", "reported")

    def __init__(self, span: Span, extract: TraceExtractor | None) -> None:
        super().__init__(span)
        self.reported = 0
        """The number of records that the span's attribute says."""
        self._extract = extract if span.is_recording() else None
        self._records = 0
        self._searched = self._failures = 0
        self._linked: set[TraceContext] | None = None

    def add(self, records: Sequence[Record]) -> None:
        """Count more records, and link the span to their trace contexts: of the first MAX_LINKS.

        The attribute `efo.batch.unsearched` says how many more there were, and `efo.batch.extract_failures` for how
        many the extractor raised.
        """
        self._records += len(records)
        if self._extract is None or self._searched >= MAX_LINKS:
            return
        found = records[: MAX_LINKS - self._searched]
        self._searched += len(found)
        # After the start, and not with it, because only a span that is sampled is worth the search.
        contexts, failures = _contexts(found, self._extract)
        self._failures += failures
        for context in contexts:
            self._linked = self._linked or set()
            if context not in self._linked:
                self._linked.add(context)
                self._span.add_link(_span_context(context))

    def __enter__(self) -> Self:
        self._tell()
        return super().__enter__()

    def abandon(self) -> None:
        """End it instead of entering it, as cancelled: its records are not processed."""
        self._tell()
        set_error(self._span, _CANCELLED)
        self._span.end()

    def _tell(self) -> None:
        if self._records != self.reported:
            self._span.set_attribute(_COUNT, self._records)
        if self._extract is not None and self._records > self._searched:
            self._span.set_attribute(_UNSEARCHED, self._records - self._searched)
        if self._failures:
            self._span.set_attribute(_EXTRACT_FAILURES, self._failures)


def record_failure(error_type: str, attempt: int, action: FailureAction) -> None:
    """Add the failure of a handler to the current span, which fails unless the handler is tried again (rule R11).

    An exception that stops the shard or everything leaves the span's block, which records it.
    """
    span = get_current_span()
    if not span.is_recording() or action in {"stop", "isolate"}:
        return
    span.add_event(
        "exception", {"exception.type": error_type, "efo.failure.attempt": attempt, "efo.failure.action": action}
    )
    if action not in {"retry", "split"}:
        _fail(span, error_type)


def set_error(span: Span, error_type: str) -> None:
    """Record an error, without its text, which may contain data."""
    if span.is_recording():
        span.add_event("exception", {"exception.type": error_type})
        _fail(span, error_type)


def _error_type(error: BaseException) -> str:
    """Return the type of an error; of a group, which nurseries raise, that of the first failure in it."""
    failure = next((leaf for leaf in leaf_exceptions(error) if not isinstance(leaf, trio.Cancelled)), None)
    return _CANCELLED if failure is None else error_type_of(failure)


def _fail(span: Span, error_type: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(StatusCode.ERROR)


def _contexts(records: Sequence[Record], extract: TraceExtractor) -> tuple[list[TraceContext], int]:
    """Return the trace contexts of records, as far as they are valid, and for how many records `extract` raised."""
    contexts, failures = list[TraceContext](), 0
    if extract is from_tags:
        records = [record for record in records if record.tags]  # most records have none, and this is the quick way
    for record in records:
        try:
            found = extract(record)
        except Exception:  # noqa: BLE001 - a span must not stop what it describes
            failures += 1
            continue
        if found is not None and found.is_valid:
            contexts.append(found)
    return contexts, failures


def _span_context(found: TraceContext) -> SpanContext:
    carrier = {"traceparent": found.traceparent, "tracestate": found.tracestate or ""}
    return get_current_span(_PROPAGATOR.extract(carrier, _ROOT)).get_span_context()


_ROOT: Final = Context()
"""The parent of spans that start a trace."""
_CANCELLED: Final = "cancelled"
_COUNT: Final = "messaging.batch.message_count"
_OMITTED: Final = "efo.batch.omitted"
_UNSEARCHED: Final = "efo.batch.unsearched"
_EXTRACT_FAILURES: Final = "efo.batch.extract_failures"
_PROPAGATOR: Final = TraceContextTextMapPropagator()


def _operation(name: str, kind: str) -> dict[str, str]:
    return {"messaging.operation.name": name, "messaging.operation.type": kind}


def _partition(shard_id: str) -> dict[str, str]:
    return {"messaging.destination.partition.id": shard_id}
