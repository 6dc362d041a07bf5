"""The settings of the consumer, from the configuration."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from efo.protocol.assignment.balance import balanced_assignment, weighted_assignment
from efo.protocol.assignment.placement import zone_assignment
from efo.protocol.assignment.view import Assignment
from efo.settings import ConsumerSettings
from efo_service.config.leases import LeaseSettings
from efo_service.config.settings import Settings

_NAMES: Final = frozenset(one.name for one in fields(ConsumerSettings))


def consumer_settings(settings: Settings) -> ConsumerSettings:
    """Return how the stream is read: what [consumer], [leases] and [relay] have under the names of the library."""
    chosen = {
        name: getattr(section, name)
        for section in (settings.consumer, settings.leases, settings.relay)
        for name in _NAMES.intersection(type(section).model_fields)
    }
    name, assignment = settings.consumer.fan_out_consumer, _assignment(settings.leases)
    return ConsumerSettings(**{**chosen, "consumer_name": name, "assignment": assignment})


def _assignment(leases: LeaseSettings) -> Assignment:
    shares = weighted_assignment(leases.worker_weights) if leases.worker_weights else balanced_assignment
    return zone_assignment(leases.zones, within=shares) if leases.zones else shares
