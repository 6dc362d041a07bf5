"""The Kinesis client, from the configuration."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from efo.kinesis.aws.client import open_kinesis
from efo.kinesis.client import KinesisClient
from efo_service.config.settings import KinesisSettings


def open_stream(settings: KinesisSettings) -> AbstractAsyncContextManager[KinesisClient]:
    """Open the stream of [kinesis]. Entering raises ConfigurationError."""
    return open_kinesis(
        settings.stream,
        region=settings.region,
        endpoint_url=settings.endpoint_url,
        ca_file=str(settings.ca_file) if settings.ca_file else None,
        profile=settings.profile,
        role=settings.role,
        proxy_url=settings.proxy,
    )
