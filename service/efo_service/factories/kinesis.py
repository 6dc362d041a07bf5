"""The Kinesis client, from the configuration."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import trio

from efo.kinesis.aws.client import open_kinesis
from efo.kinesis.client import KinesisClient
from efo.kinesis.identity import StreamIdentity
from efo_service.config.settings import KinesisSettings


def open_stream(settings: KinesisSettings) -> AbstractAsyncContextManager[KinesisClient]:
    """Open the stream of [kinesis]. Entering raises ConfigurationError."""
    return open_kinesis(settings.stream, role=settings.role, **settings.location)


async def created_within(settings: KinesisSettings, seconds: float) -> float | None:
    """Return when the stream of [kinesis] was created, None if the service does not tell it.

    Raises trio.TooSlowError, and EfoError.
    """
    with trio.fail_after(seconds):
        async with open_stream(settings) as kinesis:
            described = await StreamIdentity(kinesis.control_plane).look(trio.current_time())
            return None if described is None else described.created_at
