"""The options of the Kafka sink, from the configuration."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import SecretStr

from efo_service.config.kafka import KafkaSettings
from efo_service.relay.kafka.options import KafkaOptions


def kafka_options(settings: KafkaSettings) -> KafkaOptions:
    """Return the options of [relay.kafka]."""
    return KafkaOptions(**{option.name: _revealed(getattr(settings, option.name)) for option in fields(KafkaOptions)})


def _revealed(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value
