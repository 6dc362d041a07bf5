"""The checks of `efo doctor`, from the configuration."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from efo.arn import parse_stream
from efo.exception_groups import collapse_groups
from efo_service.config.settings import KinesisSettings, Settings
from efo_service.factories.kinesis import open_stream
from efo_service.factories.lease_store import inspectable_leases
from efo_service.operations.doctor.endpoint import StreamLocation, endpoint_checks
from efo_service.operations.doctor.kinesis import kinesis_checks
from efo_service.operations.doctor.leases import lease_checks
from efo_service.operations.doctor.machine import MIB, disk_check, java_check, port_check
from efo_service.operations.doctor.running import Check
from efo_service.operations.doctor.shared import Shared
from efo_service.spark.java import find_java
from efo_service.web.probe import http_get

_LOG_FREE: Final = 1024 * MIB
"""Free space that the log needs at least: 17 minutes of one shard at its limit of 1 MiB/s."""
_LEASES_FREE: Final = 64 * MIB
"""Free space that SQLite's leases need at least. The file and its write-ahead log have a few MiB."""


@asynccontextmanager
async def open_checks(settings: Settings) -> AsyncIterator[list[Check]]:
    """Yield the checks of what the service needs, in order. They may be run until the context ends."""
    with collapse_groups():
        async with trio.open_nursery() as nursery:
            way = endpoint_checks(_location(settings.kinesis))
            kinesis = Shared(nursery, lambda: open_stream(settings.kinesis))
            stream = kinesis_checks(kinesis.get, settings.consumer.consumer_name, [check.name for check in way])
            yield [*way, *stream, *_leases(settings), *_machine(settings)]
            nursery.cancel_scope.cancel()


def _location(kinesis: KinesisSettings) -> StreamLocation:
    return StreamLocation(
        kinesis.stream,
        kinesis.region,
        kinesis.endpoint_url,
        str(kinesis.ca_file) if kinesis.ca_file else None,
        kinesis.profile,
        _region_source(kinesis),
    )


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
    return lease_checks(lambda: inspectable_leases(settings), leases.store, path)


def _machine(settings: Settings) -> list[Check]:
    service, pipeline = settings.service, settings.pipeline
    checks = [port_check("service port", service.host, service.port, "[service] host and port", http_get)]
    if settings.relay.sink == "log":
        checks.append(disk_check("log disk", settings.relay.directory, _LOG_FREE))
    if settings.leases.store == "sqlite":
        checks.append(disk_check("lease disk", settings.leases.path, _LEASES_FREE))
    has_pipeline = "pipeline" in settings.model_fields_set
    checks.append(java_check(_java if has_pipeline else None))
    if has_pipeline and pipeline.metrics_port:
        checks.append(
            port_check("pipeline port", "0.0.0.0", pipeline.metrics_port, "[pipeline] metrics_port", None)  # noqa: S104 - as it serves
        )
    return checks


def _java() -> str:
    java = find_java()
    return f"Java {java.version} at {java.path}"
