"""What to do about an error: one sentence for each `error_type`. Pure.

The log tells it when an outage begins or its cause changes, and /status as long as the outage lasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BETWEEN: Final = "between this worker and Kinesis"

REMEDIES: Final[Mapping[str, str]] = {
    # The service's refusals.
    "AccessDeniedException": "permit the call in the policy of these credentials: the error names the action",
    "ExpiredTokenException": "look at what renews these credentials (role, profile, agent), or log in again; efo takes"
    " new ones by itself",
    "credentials": "look at the provider of these credentials that the error names; efo tries it once a second",
    "credentials_rejected": "give this worker credentials that exist: the key was deleted, or its secret is wrong",
    "clock_skew": "correct the clock of this host (chronyc tracking, timedatectl)",
    "ResourceInUseException": "look for another program that reads by the same fan-out consumer: each application needs"
    " one of its own",
    "ResourceNotFoundException": "look whether the stream and its fan-out consumer still exist (efo consumers list)",
    "stream_recreated": "reset the leases of the former stream (efo leases reset), and relay into a new topic",
    "throttled": "lower [consumer] subscribes_per_second of all workers, and look for other callers of the account; for"
    " puts and polling, add shards",
    "InternalFailureException": "the service fails by itself: look at the AWS Health Dashboard if this goes on",
    "service": "look up this error in AWS's documentation of the call",
    "kms": "enable the stream's KMS key, and permit kms:Decrypt on it to these credentials",
    # The fan-out consumer.
    "consumer_limit": "deregister a fan-out consumer that nobody uses (efo consumers)",
    "consumer_gone": "set [consumer] consumer_arn to the present consumer's, or remove it: efo then registers one",
    "consumer_not_found": "set [consumer] consumer_arn to the present consumer's, or remove it: efo then registers one",
    "consumer_not_active": "look at the state of the fan-out consumer (efo consumers)",
    "consumer_replaced": "find out who deregisters the fan-out consumer: efo has registered it again",
    "not_visible": "wait: the service shows a new shard or consumer late; if this goes on, the stream was recreated",
    # The way to the service.
    "dns": "look at the DNS of this host, and at the name in the error ([kinesis] endpoint_url, region, proxy_url)",
    "connect": f"look at routes, security groups, VPC endpoints and firewalls {_BETWEEN}",
    "proxy": "look at the proxy that the error names, and at what it permits (CONNECT to port 443)",
    "tls": f"look at ca_file, the clock of this host, and what intercepts TLS {_BETWEEN}",
    "wrong_endpoint": f"look at endpoint_url, and at what answers {_BETWEEN} in its place: a portal, a proxy, a server",
    "not_http2": f"look at endpoint_url, and at proxies {_BETWEEN}: SubscribeToShard needs HTTP/2",
    "transport": f"look at the network {_BETWEEN}",
    "reset": f"nothing, unless it goes on: then look at proxies and load balancers {_BETWEEN}",
    "goaway": "nothing, unless it goes on: the service asks for new connections",
    "silence": f"look at firewalls and NAT {_BETWEEN} that forget idle connections, and at the AWS Health Dashboard",
    "protocol": f"look at proxies {_BETWEEN} that change bytes",
    "checksum": f"look at proxies {_BETWEEN} that change bytes",
    "frame": f"look at proxies {_BETWEEN} that change bytes",
    "event": "this efo does not understand an event: look for a newer version, and report it",
    "order": "report this error: the service sent records out of order, and efo stops rather than lose their order",
    # Leases and sinks.
    "lease_store_unavailable": "make the lease store reachable from this worker; it then takes its leases again",
    "lease_store_locked": "end the program that holds the lock of the file that the error names (fuser FILE); a file on"
    " a network share belongs on a local disk",
    "lease_store_full": "free space on the disk of the file that the error names; then leases and checkpoints are"
    " written again",
    "lease_store_corrupt": "look at the row or the file that the error names",
    "cancelled": "make the lease store faster, or reachable: it did not respond in time",
    "sink_full": "free space, or raise the quota; no record is lost",
    "sink_locked": "end the other writer that the error names, or wait: it is a worker that still finishes",
    "sink_fenced": "nothing: another worker has taken the shard",
    "sink": "look at the path or the server that the error names",
    "sink_unavailable": "look at the path or the server that the error names: its disk, its mount, its permissions",
    "kafka_unavailable": "look at the brokers, and at the network to them",
    "kafka_aborted": "look at the log of the brokers: they aborted a transaction, which is written again",
    "kafka_fenced": "nothing: another worker has taken the shard",
    "kafka_fatal": "nothing, unless it goes on: the shard is opened again; then look at the log of the brokers",
    "record_refused": "correct the producer of such records, or set [relay] dead_letters",
    "sink_defect": "report the line of the log that names it",
    "object_store_unavailable": "look at the object store, and at the network to it",
    "object_store_denied": "permit the object store's operations to these credentials: the error names one",
}
"""What an operator does about an error, by its `error_type`."""


def remedy(error_type: str) -> str:
    """Return what to do about an error of this type; empty if nothing general can be said."""
    return REMEDIES.get(error_type, "")
