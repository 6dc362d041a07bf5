"""The sink, from the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider

from efo.arn import parse_stream
from efo.events import Observer, RecordDeadLettered, RecordSkipped, SinkRecovered, SinkRetried, ignore_events
from efo.model import Checkpoint
from efo_service.config.settings import Settings
from efo_service.errors import UnavailableError
from efo_service.factories.kafka import kafka_options
from efo_service.relay.dead_letter import DeadLetteringSink, OnDeadLetter, SkippingSink
from efo_service.relay.errors import RecordRefusedError, SinkError
from efo_service.relay.jsonlines import open_json_lines
from efo_service.relay.mapping import Extractor, load_extractor
from efo_service.relay.measured import SinkRetries
from efo_service.relay.plugins import SinkContext, open_plugin
from efo_service.relay.retrying import RetryingSink
from efo_service.relay.sink import Sink

SYSTEMS: Final = {"log": "efo_log", "jsonl": "efo_jsonl", "kafka": "kafka"}
"""The name of each kind of sink in metrics (OpenTelemetry: messaging.system). Others have their own."""


@asynccontextmanager
async def open_sink(
    settings: Settings, observer: Observer = ignore_events, meter_provider: MeterProvider | None = None
) -> AsyncIterator[Sink]:
    """Open the sink of [relay], with what happens to records that it refuses.

    `observer`: gets an event for each record that is skipped or dead-lettered, and for each retry of the sink.
    `meter_provider`: counts these retries, and the requests to an object store. Raises ConfigurationError, SinkError.
    """
    relay = settings.relay
    extract = load_extractor(relay.trace_extractor) if relay.trace_extractor else None
    meters = NoOpMeterProvider() if meter_provider is None else meter_provider
    system = SYSTEMS.get(relay.sink, relay.sink)
    log = _SinkReport(SinkRetries(system, settings.topic, meters), observer)
    on_refused = partial(_report_refused_record, observer, relay.refused_record_action)
    if relay.sink == "kafka":
        async with _open_kafka(settings, extract, on_refused, log) as sink:
            yield sink
        return
    async with _open(settings, extract, log, meters) as sink:
        if relay.dead_letters is not None:
            log = _SinkReport(SinkRetries(system, relay.dead_letters, meters), observer)
            async with _open_log(settings, relay.dead_letters, extract, log, meters) as dead_letters:
                yield DeadLetteringSink(sink, dead_letters, on_refused)
        else:
            yield _skipping(sink, on_refused) if relay.refused_record_action == "skip" else sink


@asynccontextmanager
async def _open(
    settings: Settings, extract: Extractor | None, log: _SinkReport, meters: MeterProvider
) -> AsyncIterator[Sink]:
    relay = settings.relay
    match relay.sink:
        case "log":
            async with _open_log(settings, settings.topic, extract, log, meters) as sink:
                yield sink
        case "jsonl":
            path = None if relay.writes_to_stdout else relay.jsonl_file
            async with open_json_lines(path, encoding=relay.jsonl_encoding, extract=extract) as sink:
                yield _retrying(sink, relay.retry_seconds, log)
        case name:
            context = SinkContext(
                stream=settings.kinesis.stream_name,
                application=settings.consumer.application,
                topic=settings.topic,
                worker_id=settings.leases.worker_id or "",
                extract=extract,
            )
            async with open_plugin(name, relay.options, context) as sink:
                yield _retrying(sink, relay.retry_seconds, log)


def _retrying(sink: Sink, seconds: float, log: _SinkReport) -> RetryingSink:
    return RetryingSink(sink, seconds=seconds, isolating_errors=(), on_retry=log.retried, on_recovery=log.recovered)


def _open_log(
    settings: Settings, topic: str, extract: Extractor | None, log: _SinkReport, meters: MeterProvider
) -> AbstractAsyncContextManager[Sink]:
    if settings.relay.is_on_object_store:
        from efo_service.factories.object_log import open_object_log  # noqa: PLC0415 - the same

        return open_object_log(
            settings, topic, extract, on_retry=log.retried, on_recovery=log.recovered, meter_provider=meters
        )
    from efo_service.factories.log import open_log  # noqa: PLC0415 - pyarrow is slow to import, only if it is used

    return open_log(settings, topic, extract, on_retry=log.retried, on_recovery=log.recovered)


@asynccontextmanager
async def _open_kafka(
    settings: Settings, extract: Extractor | None, on_refused: OnDeadLetter, log: _SinkReport
) -> AsyncIterator[Sink]:
    """Open the Kafka sink with its dead-letter topic. Temporary errors are retried."""
    try:
        from efo_service.relay.kafka import errors as kafka_errors  # noqa: PLC0415 - an extra, may not be installed
        from efo_service.relay.kafka import sink as kafka  # noqa: PLC0415 - an extra, may not be installed
    except ImportError as error:
        raise UnavailableError("Kafka's client is not installed: pip install 'efo[service,kafka]'") from error
    options = settings.relay.kafka
    opening = partial(
        kafka.open_kafka,
        kafka_options(options),
        application=settings.consumer.application,
        stream=settings.kinesis.stream_name,
        region=settings.kinesis.region or parse_stream(settings.kinesis.stream)[1],
        profile=settings.kinesis.profile,
        proxy_url=settings.kinesis.proxy,
        extract=extract,
    )
    async with AsyncExitStack() as stack:
        sink: Sink = await stack.enter_async_context(opening(topic=settings.topic))
        if settings.relay.dead_letters is not None:
            dead_letters = await stack.enter_async_context(
                opening(topic=settings.relay.dead_letters, for_dead_letters=True)
            )
            sink = DeadLetteringSink(sink, dead_letters, on_refused)
        elif settings.relay.refused_record_action == "skip":
            sink = _skipping(sink, on_refused)
        isolating_errors = (kafka_errors.KafkaFencedError, kafka_errors.KafkaFatalError)
        yield RetryingSink(
            sink,
            seconds=options.retry_seconds,
            isolating_errors=isolating_errors,
            on_retry=log.retried,
            on_recovery=log.recovered,
        )


def _skipping(sink: Sink, on_refused: OnDeadLetter) -> Sink:
    """Return a sink that skips the records that `sink` refuses."""
    return DeadLetteringSink(sink, SkippingSink(), on_refused)


def _report_refused_record(observer: Observer, action: str, shard_id: str, record: Checkpoint, reason: str) -> None:
    event = RecordSkipped if action == "skip" else RecordDeadLettered
    error_type = RecordRefusedError.error_type
    observer(event(shard_id, record.sequence_number, record.sub_sequence_number, error_type, reason))


class _SinkReport:
    """Reports the retries of a sink as events, and counts them."""

    def __init__(self, retries: SinkRetries, observer: Observer) -> None:
        self._retries = retries
        self._observer = observer

    def retried(self, shard_id: str, error: SinkError, seconds: float) -> None:
        """Note that a shard's sink failed, and is tried again in some seconds."""
        self._retries.add(error)
        self._observer(SinkRetried(shard_id, error.error_type, str(error), seconds))

    def recovered(self, shard_id: str) -> None:
        """Note that a shard's sink works again."""
        self._observer(SinkRecovered(shard_id))
