"""The settings of the Kafka sink, [relay.kafka]. See docs/kafka.md."""

from __future__ import annotations

import re
from math import inf
from string import Formatter
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, model_validator

from efo.foreign_errors import reason_of
from efo_service.config.section import Count, ExistingFile, Name, Seconds, Section
from efo_service.relay.kafka.options import Compression, Delivery, Mechanism, PartitionBy, SecurityProtocol

PLACEHOLDERS = {"stream", "shard"}
"""The placeholders that a topic template may contain."""


def _check_template(value: str) -> str:
    try:
        parts = list(Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is not a topic template: {reason_of(error)}") from None
    for text, name, format_spec, conversion in parts:
        is_valid = name is None or (name in PLACEHOLDERS and not format_spec and not conversion)
        if not (is_valid and re.fullmatch(r"[A-Za-z0-9._-]*", text)):
            raise ValueError(f"{value!r} is not a topic: use letters, digits, '.', '_', '-', {{stream}} and {{shard}}")
    return value


Template = Annotated[str, Field(min_length=1, max_length=249), AfterValidator(_check_template)]


class KafkaSettings(Section):
    """The Kafka cluster, for sink = "kafka". Secrets (password, ...) come only from the environment."""

    bootstrap_servers: str = Field(
        "127.0.0.1:9092", min_length=1, description="Some of the cluster's brokers: HOST:PORT, separated by commas."
    )
    topic: Template | None = Field(
        None,
        description="Topic. {stream} and {shard} in it are replaced by their names. Default: [relay] topic.",
        examples=["kinesis.{stream}"],
    )
    delivery: Delivery = Field(
        "exactly_once",
        description="Delivery guarantee: exactly_once (records and position in one transaction) or at_least_once"
        " (cheaper).",
    )
    partition_by: PartitionBy = Field(
        "key",
        description="Partition by key, as Java's producer does (a reshard keeps the order of each key), or by shard.",
    )
    compression: Compression = Field("lz4", description="Compression of record batches: none, gzip, snappy, lz4, zstd.")
    commit_milliseconds: Annotated[int, Field(ge=10, le=5000)] = Field(
        200,
        description="Commit this long after the first uncommitted record, instead of [relay] commit_milliseconds."
        " 100 to 500 is good.",
    )
    create_topics: bool = Field(
        default=True, description="Whether to create missing topics. If false, a missing topic is an error at start."
    )
    partitions: Count = Field(12, description="Number of partitions of a topic that efo creates.")
    replication_factor: Annotated[int, Field(ge=-1, le=32767)] = Field(
        -1, description="Replication factor of a topic that efo creates. -1 is the cluster's default."
    )
    routes: tuple[Name, ...] = Field(
        (),
        description="Topics to which [relay] transform may route records, besides topic. They are created as topic is.",
        examples=[["orders-eu", "orders-us"]],
    )
    checkpoint_topic: Name = Field(
        "efo-checkpoints", description="Compacted topic that keeps the position of each shard."
    )
    checkpoint_partitions: Count = Field(16, description="Number of partitions of checkpoint_topic, if efo creates it.")
    connect_seconds: Seconds = Field(30.0, description="How long to wait for the brokers at the start.")
    transaction_seconds: Annotated[float, Field(ge=1, le=900)] = Field(
        30.0, description="Time-out of a transaction: the broker then aborts it, so that readers do not wait longer."
    )
    retry_seconds: Seconds | None = Field(
        None,
        description="How long a failed commit of a shard is retried. Then its lease is released, so that another"
        " worker, which may reach the brokers, can take it. Default: until it works.",
        examples=[120.0],
    )
    security_protocol: SecurityProtocol = Field(
        "plaintext", description="Security protocol: plaintext, ssl, sasl_plaintext or sasl_ssl, as in Kafka."
    )
    ca_file: ExistingFile | None = Field(
        None,
        description="PEM file of certificate authorities to trust instead of the system's.",
        examples=["ca.pem"],
    )
    certificate_file: ExistingFile | None = Field(
        None, description="PEM file of the client certificate, for mutual TLS.", examples=["client.pem"]
    )
    key_file: ExistingFile | None = Field(
        None, description="PEM file of the client certificate's key.", examples=["client.key"]
    )
    key_password: SecretStr | None = Field(None, description="Password of the key in key_file.")
    sasl_mechanism: Mechanism | None = Field(
        None,
        description="SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER (by OIDC) or AWS_MSK_IAM.",
        examples=["SCRAM-SHA-512"],
    )
    sasl_username: str | None = Field(None, description="User name for PLAIN and SCRAM.", examples=["efo"])
    sasl_password: SecretStr | None = Field(None, description="Password for PLAIN and SCRAM.")
    oauth_token_url: str | None = Field(
        None, description="URL of the token endpoint for OAUTHBEARER.", examples=["https://id.example.com/token"]
    )
    oauth_client_id: str | None = Field(None, description="Client id for OAUTHBEARER.", examples=["efo"])
    oauth_client_secret: SecretStr | None = Field(None, description="Client secret for OAUTHBEARER.")
    oauth_scope: str | None = Field(None, description="Scope for OAUTHBEARER.", examples=["kafka"])
    aws_region: str | None = Field(
        None,
        description="AWS region of the cluster, for AWS_MSK_IAM. Default: the stream's region.",
        examples=["eu-west-1"],
    )

    @property
    def longest_retry(self) -> float:
        """How long a failed commit of a shard is retried, in seconds."""
        return inf if self.retry_seconds is None else self.retry_seconds

    @model_validator(mode="after")
    def _complete(self) -> KafkaSettings:
        sasl = self.security_protocol.startswith("sasl")
        if sasl != (self.sasl_mechanism is not None):
            raise ValueError(
                "security_protocol sasl_ssl (or sasl_plaintext) and sasl_mechanism belong together: set both or neither"
            )
        needed: tuple[str, ...] = ()
        match self.sasl_mechanism:
            case "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512":
                needed = ("sasl_username", "sasl_password")
            case "OAUTHBEARER":
                needed = ("oauth_token_url", "oauth_client_id", "oauth_client_secret")
        if missing := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(
                f"sasl_mechanism {self.sasl_mechanism} needs {' and '.join(missing)}:"
                " set secrets as EFO_RELAY__KAFKA__<KEY> in the environment"
            )
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file belong together: set both or neither")
        return self
