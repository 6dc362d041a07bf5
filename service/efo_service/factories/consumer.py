"""The settings of the consumer, from the configuration."""

from __future__ import annotations

from efo.protocol.assignment.balance import balanced_assignment, weighted_assignment
from efo.protocol.assignment.placement import zone_assignment
from efo.protocol.assignment.view import Assignment
from efo.settings import LEASE_CLEANUP_AFTER, ConsumerSettings
from efo_service.config.dynamodb import tags_of
from efo_service.config.leases import LeaseSettings
from efo_service.config.settings import Settings


def consumer_settings(settings: Settings) -> ConsumerSettings:
    """Return how the stream is read, from [consumer], [leases] and [relay]."""
    consumer, leases, relay = settings.consumer, settings.leases, settings.relay
    return ConsumerSettings(
        consumer_name=consumer.consumer_name,
        consumer_arn=consumer.arn,
        consumer_tags=tags_of(consumer.tags),
        initial_position=consumer.position,
        read_mode=consumer.read_mode,
        poll_interval=consumer.poll_seconds,
        fanout_retry_interval=consumer.fanout_retry_seconds,
        max_record_age=relay.max_record_age,
        skip_when_behind=relay.skip_when_behind,
        subscribes_per_second=consumer.subscribes_per_second,
        checkpoint_interval=consumer.checkpoint_seconds,
        shard_sync_interval=consumer.shard_sync_seconds,
        stream_window=consumer.stream_window,
        unsubscribe_idle_after=consumer.unsubscribe_idle_seconds,
        shard_cooldown=consumer.shard_cooldown_seconds,
        aggregates=consumer.aggregates,
        failover_time=leases.failover_seconds,
        lease_scan_interval=leases.scan_interval_seconds,
        graceful_handoff=leases.graceful_handoff,
        handoff_timeout=leases.handoff_seconds,
        max_leases=leases.max_leases,
        max_leases_per_scan=leases.max_leases_per_scan,
        assignment=_assignment(leases),
        balance_by_throughput=leases.balance == "throughput",
        lease_cleanup_after=LEASE_CLEANUP_AFTER if leases.cleanup else None,
    )


def _assignment(leases: LeaseSettings) -> Assignment:
    shares = weighted_assignment(leases.worker_weights) if leases.worker_weights else balanced_assignment
    return zone_assignment(leases.zones, within=shares) if leases.zones else shares
