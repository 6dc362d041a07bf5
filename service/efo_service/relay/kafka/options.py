"""How to reach a Kafka cluster, and how the sink writes to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from efo.definitions import documented, setting

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"]
Delivery = Literal["exactly_once", "at_least_once"]
PartitionBy = Literal["key", "shard"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
SecurityProtocol = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]


CHECKPOINT_PARTITIONS: Final = 16
"""The number of partitions of the topic of positions, if efo creates it."""


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """The cluster, the security of its connections, and the sink's guarantees. The security options are Kafka's own."""

    bootstrap_servers: str = setting("127.0.0.1:9092", "Some of the cluster's brokers: HOST:PORT, separated by commas.")
    delivery: Delivery = setting(
        "exactly_once",
        "Delivery guarantee: exactly_once (records and position in one transaction) or at_least_once (cheaper).",
    )
    partition_by: PartitionBy = setting(
        "key", "Partition by key, as Java's producer does (a reshard keeps the order of each key), or by shard."
    )
    compression: Compression = setting("lz4", "Compression of record batches: none, gzip, snappy, lz4, zstd.")
    create_topics: bool = setting(
        True, "Whether to create missing topics. If false, a missing topic is an error at start."
    )
    partitions: int = setting(12, "Number of partitions of a topic that efo creates.", least=1)
    replication_factor: int = setting(
        -1, "Replication factor of a topic that efo creates. -1 is the cluster's default.", least=-1, most=32767
    )
    routes: tuple[str, ...] = setting(
        (),
        "Topics to which [relay] transform may route records, besides topic. They are created as topic is.",
        example=["orders-eu", "orders-us"],
    )
    checkpoint_topic: str = setting("efo-checkpoints", "Compacted topic that keeps the position of each shard.")
    connect_seconds: float = setting(30.0, "How long to wait for the brokers at the start.", above=0)
    transaction_seconds: float = setting(
        30.0,
        "Time-out of a transaction: the broker then aborts it, so that readers do not wait longer.",
        least=1,
        most=900,
    )
    security_protocol: SecurityProtocol = setting(
        "plaintext", "Security protocol: plaintext, ssl, sasl_plaintext or sasl_ssl, as in Kafka."
    )
    ca_file: Path | None = setting(
        None, "PEM file of certificate authorities for the brokers, instead of the system's.", example="ca.pem"
    )
    certificate_file: Path | None = setting(
        None, "PEM file of the client certificate, for mutual TLS.", example="client.pem"
    )
    key_file: Path | None = setting(None, "PEM file of the client certificate's key.", example="client.key")
    key_password: str | None = setting(None, "Password of the key in key_file.", is_secret=True)
    sasl_mechanism: Mechanism | None = setting(
        None,
        "SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER (by OIDC) or AWS_MSK_IAM.",
        example="SCRAM-SHA-512",
    )
    sasl_username: str | None = setting(None, "User name for PLAIN and SCRAM.", example="efo")
    sasl_password: str | None = setting(None, "Password for PLAIN and SCRAM.", is_secret=True)
    oauth_token_url: str | None = setting(
        None, "URL of the token endpoint for OAUTHBEARER.", example="https://id.example.com/token"
    )
    oauth_client_id: str | None = setting(None, "Client id for OAUTHBEARER.", example="efo")
    oauth_client_secret: str | None = setting(None, "Client secret for OAUTHBEARER.", is_secret=True)
    oauth_scope: str | None = setting(None, "Scope for OAUTHBEARER.", example="kafka")
    aws_region: str | None = setting(
        None,
        "AWS region of the cluster, for AWS_MSK_IAM. Default: the stream's region.",
        example="eu-west-1",
    )
