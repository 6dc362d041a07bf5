"""The arguments of `efo.open_consumer` and of `efo.Handler`, as types, for the surfaces that pass them on."""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict

from efo.events import Observer
from efo.kinesis.client import KinesisClient
from efo.leases.store import LeaseStore
from efo.producer.producer import Serializer
from efo.producer.settings import ProducerSettings
from efo.settings import ConsumerSettings, OnServiceError, PositionLike, UntilLike

if TYPE_CHECKING:
    from efo.telemetry.spans import OtelTracing

Stream = str | AbstractAsyncContextManager[KinesisClient]
"""The name or the ARN of a stream; or what `efo.open_kinesis` returned, which the surface opens in its trio thread."""


class OpenOptions(TypedDict, total=False):
    """The keyword arguments of `efo.open_consumer`, whose docstring says what they mean."""

    application: Required[str]
    leases: str | Path | LeaseStore
    worker_id: str | None
    initial_position: PositionLike | None
    until: UntilLike | None
    timeout: float | None
    settings: ConsumerSettings | None
    on_service_error: OnServiceError
    region: str | None
    endpoint_url: str | None
    ca_file: str | None
    profile: str | None
    proxy_url: str | None
    observer: Observer | None
    tracing: OtelTracing | None
    rng: random.Random | None


class ProducerOptions(TypedDict, total=False):
    """The keyword arguments of `efo.open_producer`, whose docstring says what they mean."""

    serializer: Serializer[Any]
    settings: ProducerSettings | None
    region: str | None
    endpoint_url: str | None
    ca_file: str | None
    profile: str | None
    proxy_url: str | None
    observer: Observer | None
    rng: random.Random | None
