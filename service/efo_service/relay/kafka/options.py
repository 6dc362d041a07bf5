"""How to reach a Kafka cluster, and how the sink writes to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"]
Delivery = Literal["exactly_once", "at_least_once"]
PartitionBy = Literal["key", "shard"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
SecurityProtocol = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """The cluster, the security of its connections, and the sink's guarantees. Times are in seconds.

    `delivery`: "exactly_once" writes records and position in one transaction. `partition_by`: "key" chooses partitions
    as Java's producer does, "shard" gives each shard one partition. `partitions`, `replication_factor`: of topics that
    the sink creates, if `create_topics` allows it; -1 is the cluster's default. `routes`: topics that a transform may
    name, besides that of the shard. `checkpoint_topic`: the compacted topic
    of the shards' positions. `connect_seconds`: how long to wait for the brokers at the start. `transaction_seconds`:
    the broker aborts a transaction that is open for longer. The names of the security options are Kafka's own.
    """

    bootstrap_servers: str = "127.0.0.1:9092"
    delivery: Delivery = "exactly_once"
    partition_by: PartitionBy = "key"
    compression: Compression = "lz4"
    create_topics: bool = True
    partitions: int = 12
    replication_factor: int = -1
    routes: tuple[str, ...] = ()
    checkpoint_topic: str = "efo-checkpoints"
    checkpoint_partitions: int = 16
    connect_seconds: float = 30.0
    transaction_seconds: float = 30.0
    security_protocol: SecurityProtocol = "plaintext"
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    sasl_mechanism: Mechanism | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    oauth_token_url: str | None = None
    oauth_client_id: str | None = None
    oauth_client_secret: str | None = field(default=None, repr=False)
    oauth_scope: str | None = None
    aws_region: str | None = None
