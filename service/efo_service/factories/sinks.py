"""The sink, from the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields, replace
from typing import Any, Final

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.trace import Tracer
from pydantic import SecretStr

from efo.arn import parse_stream
from efo.events import Observer, RecordDeadLettered, RecordSkipped, SinkRecovered, SinkRetried, ignore_events
from efo_service.config.kafka import KafkaSettings
from efo_service.config.settings import Settings
from efo_service.errors import UnavailableError, missing_package
from efo_service.relay.destination import Destination, SinkReports, SinkRetries, SkippingSink
from efo_service.relay.errors import RecordRefusedError, SinkError
from efo_service.relay.jsonlines import Rotation, open_json_lines
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.relay.mapping import Extractor, load_extractor
from efo_service.relay.measured import SinkMeter
from efo_service.relay.plugins import SinkContext, open_plugin
from efo_service.relay.transform import Transform, load_transform
from efo_service.relay.write_buffer import RefusedRecord

SYSTEMS: Final = {"log": "efo_log", "jsonl": "efo_jsonl", "kafka": "kafka", "kinesis": "aws.kinesis"}
"""The name of each kind of sink in metrics (OpenTelemetry: messaging.system). Others have their own."""


@asynccontextmanager
async def open_sink(
    settings: Settings,
    observer: Observer = ignore_events,
    meter_provider: MeterProvider | None = None,
    tracer: Tracer | None = None,
) -> AsyncIterator[Destination]:
    """Open the sink of [relay], with what happens to records that it refuses.

    `observer`: gets an event for each record that is skipped or dead-lettered, and for each retry of the sink.
    `meter_provider`: counts what the sink does, and the requests to an object store. `tracer`: makes a span of each
    commit. Raises ConfigurationError, SinkError.
    """
    relay = settings.relay
    extract = load_extractor(relay.trace_extractor) if relay.trace_extractor else None
    meters = NoOpMeterProvider() if meter_provider is None else meter_provider
    system = SYSTEMS.get(relay.sink, relay.sink)
    action = relay.refused_record_action
    meter = SinkMeter(system, settings.topic, meters, tracer)
    reports = _Reports(meter, observer, action)
    routes = relay.kafka.routes if relay.sink == "kafka" else ()
    transform = Transform(load_transform(relay.transform), meter.dropped, routes) if relay.transform else None
    async with _open(settings, extract, reports, meters) as opened:
        destination = replace(opened, transform=transform, takes_old=relay.old_records == "dead_letter")
        if relay.dead_letters is not None:
            of_letters = _Reports(SinkMeter(system, relay.dead_letters, meters), observer, action)
            opening = _open_kafka if relay.sink == "kafka" else _open_log
            async with opening(settings, relay.dead_letters, extract, of_letters, meters) as dead_letters:
                yield replace(destination, dead_letters=dead_letters)
        elif relay.refused_record_action == "skip":
            yield replace(destination, dead_letters=Destination(SkippingSink()))
        else:
            yield destination


@asynccontextmanager
async def _open(
    settings: Settings, extract: Extractor | None, reports: SinkReports, meters: MeterProvider
) -> AsyncIterator[Destination]:
    relay = settings.relay
    retries = SinkRetries(seconds=relay.longest_retry)
    match relay.sink:
        case "log":
            async with _open_log(settings, settings.topic, extract, reports, meters) as destination:
                yield destination
        case "kafka":
            async with _open_kafka(settings, settings.topic, extract, reports, meters) as destination:
                yield destination
        case "jsonl":
            path = None if relay.writes_to_stdout else relay.jsonl_file
            rotation = Rotation(relay.jsonl_rotate_bytes, relay.jsonl_rotate_seconds, relay.jsonl_compress)
            opening = open_json_lines(path, encoding=relay.jsonl_encoding, extract=extract, rotation=rotation)
            async with opening as sink:
                yield Destination(sink, retries, reports)
        case name:
            context = SinkContext(
                stream=settings.kinesis.stream_name,
                application=settings.consumer.application,
                topic=settings.topic,
                worker_id=settings.leases.worker_id or "",
                extract=extract,
            )
            async with open_plugin(name, relay.options, context) as sink:
                yield Destination(sink, retries, reports)


def _open_log(
    settings: Settings, topic: str, extract: Extractor | None, reports: SinkReports, meters: MeterProvider
) -> AbstractAsyncContextManager[Destination]:
    try:
        if settings.relay.is_on_object_store:
            from efo_service.factories.object_log import open_object_log  # noqa: PLC0415 - the same

            return open_object_log(settings, topic, extract, reports, meters)
        from efo_service.factories.log import open_log  # noqa: PLC0415 - pyarrow is slow to import, only if it is used
    except ModuleNotFoundError as error:
        if (sentence := missing_package(error)) is None:
            raise
        raise UnavailableError(sentence) from error

    return open_log(settings, topic, extract, reports, meters)


@asynccontextmanager
async def _open_kafka(
    settings: Settings, topic: str, extract: Extractor | None, reports: SinkReports, _meters: MeterProvider
) -> AsyncIterator[Destination]:
    """Open a Kafka topic. Temporary errors are retried."""
    try:
        from efo_service.relay.kafka import errors as kafka_errors, sink as kafka  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnavailableError("Kafka's client is not installed: pip install 'efo[service,kafka]'") from error
    options = settings.relay.kafka
    opening = kafka.open_kafka(
        kafka_options(options),
        application=settings.consumer.application,
        stream=settings.kinesis.stream_name,
        region=settings.kinesis.region or parse_stream(settings.kinesis.stream)[1],
        profile=settings.kinesis.profile,
        proxy_url=settings.kinesis.proxy,
        extract=extract,
        topic=topic,
        for_dead_letters=topic == settings.relay.dead_letters,
    )
    retries = SinkRetries(
        seconds=options.longest_retry,
        isolating_errors=(kafka_errors.KafkaFencedError, kafka_errors.KafkaFatalError),
    )
    async with opening as sink:
        yield Destination(sink, retries, reports)


class _Reports:
    """Reports what a sink does as events, and counts it. Implements SinkReports.

    `action`: what happens to a record that the sink refuses.
    """

    def __init__(self, meter: SinkMeter, observer: Observer, action: str) -> None:
        self._meter = meter
        self._observer = observer
        self._action = action
        self.commit = meter.commit

    def retried(self, shard_id: str, error: SinkError, seconds: float) -> None:
        """Note that a shard's sink failed, and is tried again in some seconds."""
        self._meter.retried(error)
        self._observer(SinkRetried(shard_id, error.error_type, str(error), seconds))

    def recovered(self, shard_id: str) -> None:
        """Note that a shard's sink works again, after it failed."""
        self._observer(SinkRecovered(shard_id))

    def refused(self, shard_id: str, refused: RefusedRecord) -> None:
        """Note that a record that the sink refuses was dead-lettered or skipped."""
        at, reason = refused
        event = RecordSkipped if self._action == "skip" else RecordDeadLettered
        error_type = RecordRefusedError.error_type
        self._observer(event(shard_id, at.sequence_number, at.sub_sequence_number, error_type, reason))


def kafka_options(settings: KafkaSettings) -> KafkaOptions:
    """Return the options of [relay.kafka]."""
    return KafkaOptions(**{option.name: _revealed(getattr(settings, option.name)) for option in fields(KafkaOptions)})


def _revealed(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value
