"""The checks of `efo doctor`, from the configuration."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import trio

from efo.arn import parse_stream
from efo.errors import ConfigurationError
from efo.exception_groups import collapse_groups
from efo_service.config.cloudwatch import CloudWatchSettings
from efo_service.config.leases import DynamoDbSettings
from efo_service.config.relay import RelaySettings
from efo_service.config.section import proxy_text
from efo_service.config.settings import KinesisSettings, Settings
from efo_service.errors import missing_package as missing_in
from efo_service.factories.kinesis import open_stream
from efo_service.factories.lease_store import inspectable_leases
from efo_service.factories.sinks import kafka_options
from efo_service.object_store.url import StoreUrl
from efo_service.operations.doctor.endpoint import NEEDED, CheckedStream, endpoint_checks, through
from efo_service.operations.doctor.kinesis import kinesis_checks
from efo_service.operations.doctor.leases import identity_checks, lease_checks
from efo_service.operations.doctor.machine import MIB, decoder_check, disk_check, java_check, port_check
from efo_service.operations.doctor.running import Check, SharedResource, missing_package, untested
from efo_service.relay.errors import SinkError
from efo_service.spark.java import find_java

_LOG_FREE: Final = 1024 * MIB
"""Free space that the log needs at least: 17 minutes of one shard at its limit of 1 MiB/s."""
_LEASES_FREE: Final = 64 * MIB
"""Free space that SQLite's leases need at least. The file and its write-ahead log have a few MiB."""

_KAFKA_SHARE: Final = 0.8
"""The share of a check's time limit after which Kafka's client gives up, with an error that explains more."""


@asynccontextmanager
async def open_checks(settings: Settings, seconds: float) -> AsyncIterator[list[Check]]:
    """Yield the checks of what the service needs, in order. They may be run until the context ends.

    `seconds`: the time limit of each.
    """
    with collapse_groups():
        async with trio.open_nursery() as nursery:
            way = endpoint_checks(
                CheckedStream(
                    settings.kinesis.stream,
                    settings.kinesis.location,
                    _region_source(settings.kinesis),
                    settings.kinesis.role,
                )
            )
            kinesis = SharedResource(nursery, lambda: open_stream(settings.kinesis))
            consumer = settings.consumer
            stream = kinesis_checks(kinesis.get, consumer.fan_out_consumer, NEEDED, consumer.read_mode)
            cloudwatch = _cloudwatch(settings)
            identity = identity_checks(
                kinesis.get,
                lambda: inspectable_leases(settings),
                lambda: _streams_of_topics(settings),
                consumer.position,
            )
            sink = _sink(settings, seconds)
            yield [*way, *stream, *_leases(settings), *sink, *identity, *cloudwatch, *_machine(settings)]
            nursery.cancel_scope.cancel()


def _stream(kinesis: KinesisSettings) -> CheckedStream:
    return CheckedStream(kinesis.stream, kinesis.location, _region_source(kinesis), kinesis.role)


def _region_source(kinesis: KinesisSettings) -> str:
    """Return what sets the region, in the order of `efo.kinesis.aws.client.endpoint_of`."""
    if kinesis.region is not None:
        return "[kinesis] region"
    if parse_stream(kinesis.stream)[1] is not None:
        return "the stream's ARN"
    return next(
        (name for name in ("AWS_REGION", "AWS_DEFAULT_REGION") if os.environ.get(name)), "the AWS configuration"
    )


def _leases(settings: Settings) -> list[Check]:
    leases = settings.leases
    path = leases.path if leases.store == "sqlite" else None
    way = _way(settings, leases.dynamodb, "dynamodb") if leases.store == "dynamodb" else ""
    return lease_checks(lambda: inspectable_leases(settings), leases.store, path, way)


def _way(settings: Settings, service: DynamoDbSettings | CloudWatchSettings, host: str) -> str:
    """Return by which proxy a service is called. A wrong variable is found by the check of the stream's endpoint."""
    kinesis = settings.kinesis
    region = service.region or kinesis.region or parse_stream(kinesis.stream)[1] or os.environ.get("AWS_REGION")
    url = service.endpoint_url or f"https://{host}.{f'{region}.' if region else ''}amazonaws.com"
    with suppress(ConfigurationError):
        return through(url, proxy_text(service.proxy_url, kinesis.proxy_url))
    return ""


def _sink(settings: Settings, seconds: float) -> list[Check]:
    try:
        return _sink_checks(settings, seconds)
    except ModuleNotFoundError as error:
        if (sentence := missing_in(error)) is None:
            raise
        if find_spec("starlette") is None:
            return [untested("sink", "the service is not installed here, but only the extra `cli`")]
        return [missing_package("sink", sentence, "pip install 'efo[service]'")]


def _sink_checks(settings: Settings, seconds: float) -> list[Check]:
    relay = settings.relay
    dead_letters = {} if relay.dead_letters is None else {f"{_system(relay)} dead letters": relay.dead_letters}
    topics = {f"{relay.sink} topic": settings.topic, **dead_letters}
    if relay.sink == "kafka":
        return _kafka(settings, topics, seconds)
    from efo_service.operations.doctor.files import jsonl_check, plugin_check, retention_check  # noqa: PLC0415 - pyarrow is slow to import

    if relay.sink == "log":
        is_limited = relay.retention_hours is not None or relay.retention_bytes is not None
        return [*_log_checks(settings, topics), retention_check(is_limited=is_limited)]
    written = _log_checks(settings, dead_letters) if dead_letters else []
    if relay.sink == "jsonl":
        return [jsonl_check(None if relay.writes_to_stdout else relay.jsonl_file), *written]
    return [plugin_check(relay.sink), *written]


def _log_checks(settings: Settings, topics: Mapping[str, str]) -> list[Check]:
    root = settings.relay.log_root
    if isinstance(root, StoreUrl):
        from efo_service.operations.doctor.object_store import object_log_checks  # noqa: PLC0415 - pyarrow is slow to import

        return object_log_checks(root, topics, settings.kinesis.stream_name)
    from efo_service.operations.doctor.files import log_checks  # noqa: PLC0415 - the same

    return log_checks(root, topics, settings.kinesis.stream_name)


def _streams_of_topics(settings: Settings) -> dict[str, float]:
    """Return when the streams were created that the topics of the log are of, as far as they say it."""
    relay = settings.relay
    topics = [settings.topic] * (relay.sink == "log")
    if relay.dead_letters is not None and relay.sink != "kafka":
        topics.append(relay.dead_letters)
    if not topics:
        return {}
    try:
        from efo_service.log.topic import log_files, read_topic  # noqa: PLC0415 - pyarrow is slow to import

        files = log_files(relay.log_root)
    except ModuleNotFoundError as error:
        if missing_in(error) is None:
            raise
        return {}  # the check of the sink says so

    found = dict[str, float]()
    for name in topics:
        with suppress(SinkError):  # there is none yet, or another check says what is wrong
            topic = read_topic(files, name)
            if topic.catalog.stream_created_at is not None:
                found[topic.where] = topic.catalog.stream_created_at
    return found


def _system(relay: RelaySettings) -> str:
    """Return where dead letters go: those of all sinks but Kafka go to the log."""
    return "kafka" if relay.sink == "kafka" else "log"


def _kafka(settings: Settings, topics: Mapping[str, str], seconds: float) -> list[Check]:
    try:
        from efo_service.operations.doctor.kafka import KafkaTarget, kafka_checks  # noqa: PLC0415 - an extra
    except ImportError:
        return [missing_package("kafka brokers", "Kafka's client is not installed", "pip install 'efo[service,kafka]'")]
    kinesis = settings.kinesis
    target = KafkaTarget(
        kafka_options(settings.relay.kafka),
        settings.consumer.application,
        topics,
        kinesis.region or parse_stream(kinesis.stream)[1],
        kinesis.profile,
        kinesis.proxy,
    )
    return kafka_checks(target, seconds * _KAFKA_SHARE)


def _cloudwatch(settings: Settings) -> list[Check]:
    if settings.cloudwatch.level == "none":
        return []
    reason = "a call publishes metrics; what fails, `efo run` logs as cloudwatch_outage_began"
    return [untested("cloudwatch:PutMetricData", reason + _way(settings, settings.cloudwatch, "monitoring"))]


def _machine(settings: Settings) -> list[Check]:
    service, pipeline = settings.service, settings.pipeline

    def get(_host: str, _port: int, path: str) -> tuple[int, str]:
        return service.address.get(path)  # with TLS, if it is configured

    checks = [port_check("service port", service.host, service.port, "[service] host and port", get)]
    relay = settings.relay
    writes_log = relay.sink == "log" or (relay.sink != "kafka" and relay.dead_letters is not None)
    if writes_log and isinstance(relay.directory, Path):
        checks.append(disk_check("log disk", relay.directory, _LOG_FREE))
    if relay.sink == "jsonl" and not relay.writes_to_stdout:
        checks.append(disk_check("jsonl disk", relay.jsonl_file, _LOG_FREE))
    if settings.leases.store == "sqlite":
        checks.append(disk_check("lease disk", settings.leases.path, _LEASES_FREE))
    has_pipeline = "pipeline" in settings.model_fields_set
    checks.append(decoder_check())
    checks.append(java_check(_java if has_pipeline else None))
    if has_pipeline and pipeline.metrics_port:
        checks.append(
            port_check("pipeline port", "0.0.0.0", pipeline.metrics_port, "[pipeline] metrics_port", None)  # noqa: S104 - as it serves
        )
    return checks


def _java() -> str:
    java = find_java()
    return f"Java {java.version} at {java.path}"
