"""The settings of the Kafka sink: the table [relay.kafka]. What they mean together: docs/kafka.md."""

from __future__ import annotations

import re
from string import Formatter
from typing import Annotated

from pydantic import AfterValidator, Field, FilePath, SecretStr, model_validator

from efo_service.config.section import Count, Name, Seconds, Section
from efo_service.relay.kafka.options import Compression, Delivery, Mechanism, PartitionBy, SecurityProtocol

PLACES = {"stream", "shard"}
"""What a template of a topic may name."""


def _check_template(value: str) -> str:
    try:
        parts = list(Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is no template of a topic: {error}") from None
    for text, name, how, conversion in parts:
        is_place = name is None or (name in PLACES and not how and not conversion)
        if not (is_place and re.fullmatch(r"[A-Za-z0-9._-]*", text)):
            raise ValueError(
                f"{value!r} is no topic: letters, digits, '.', '_', '-', {{stream}} and {{shard}} make one"
            )
    return value


Template = Annotated[str, Field(min_length=1, max_length=249), AfterValidator(_check_template)]


class KafkaSettings(Section):
    """Kafka, for sink = "kafka". Its secrets (password, ...) are taken from the environment alone."""

    bootstrap_servers: str = Field(
        "127.0.0.1:9092", min_length=1, description="Some of the cluster's brokers, HOST:PORT by commas."
    )
    topic: Template | None = Field(
        None,
        description="The topic; {stream} and {shard} stand for their names. Default: that of [relay].",
        examples=["kinesis.{stream}"],
    )
    delivery: Delivery = Field(
        "exactly_once", description="exactly_once: records and position in one transaction; at_least_once: cheaper."
    )
    partition_by: PartitionBy = Field(
        "key", description="key: as Java's producer does, so that a key's order survives a reshard; or shard."
    )
    compression: Compression = Field("lz4", description="Of the batches.")
    commit_milliseconds: Annotated[int, Field(ge=10, le=5000)] = Field(
        200, description="Commit a group this long after its first record, instead of [relay]'s; 100 to 500 is good."
    )
    create_topics: bool = Field(default=True, description="Create the topics that are missing; else refuse to start.")
    partitions: Count = Field(12, description="Partitions of a topic that is created,")
    replication_factor: Annotated[int, Field(ge=-1, le=32767)] = Field(
        -1, description="and how many brokers have each; -1: the cluster's default."
    )
    checkpoint_topic: Name = Field("efo-checkpoints", description="The compacted topic of the shards' positions.")
    checkpoint_partitions: Count = Field(16, description="Its partitions, if it is created.")
    connect_seconds: Seconds = Field(30.0, description="How long to wait for the brokers at the start.")
    transaction_seconds: Annotated[float, Field(ge=1, le=900)] = Field(
        30.0, description="A transaction that is not done after so long is aborted: readers wait for it no longer."
    )
    retry_seconds: Seconds = Field(
        120.0, description="After so long without success a shard's lease is released; other workers may take it."
    )
    security_protocol: SecurityProtocol = Field("plaintext", description="Kafka's own names.")
    ca_file: FilePath | None = Field(
        None, description="Certificate authorities to trust instead of the system's (PEM).", examples=["ca.pem"]
    )
    certificate_file: FilePath | None = Field(
        None, description="The client's certificate, for mutual TLS (PEM),", examples=["client.pem"]
    )
    key_file: FilePath | None = Field(None, description="and its key.", examples=["client.key"])
    key_password: SecretStr | None = Field(None, description="The key's password.")
    sasl_mechanism: Mechanism | None = Field(
        None,
        description="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER (by OIDC) or AWS_MSK_IAM.",
        examples=["SCRAM-SHA-512"],
    )
    sasl_username: str | None = Field(None, description="For PLAIN and SCRAM.", examples=["efo"])
    sasl_password: SecretStr | None = Field(None, description="The same.")
    oauth_token_url: str | None = Field(
        None, description="For OAUTHBEARER: where tokens are given.", examples=["https://id.example.com/token"]
    )
    oauth_client_id: str | None = Field(None, description="The same.", examples=["efo"])
    oauth_client_secret: SecretStr | None = Field(None, description="The same.")
    oauth_scope: str | None = Field(None, description="The same.", examples=["kafka"])
    aws_region: str | None = Field(
        None, description="For AWS_MSK_IAM: the cluster's. Default: the stream's.", examples=["eu-west-1"]
    )

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
                f"sasl_mechanism {self.sasl_mechanism} needs {' and '.join(missing)};"
                " a secret is set as EFO_RELAY__KAFKA__<KEY> in the environment"
            )
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file belong together: set both or neither")
        return self
