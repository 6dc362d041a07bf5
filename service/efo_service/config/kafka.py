"""The settings of the Kafka sink, [relay.kafka]. See docs/sinks.md."""

from __future__ import annotations

import re
from functools import partial
from math import inf
from string import Formatter
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, model_validator

from efo.third_party_errors import reason_of
from efo_service.config.section import ExistingFile, Name, Seconds, Section, defined
from efo_service.relay.kafka.options import (
    Compression,
    Delivery,
    KafkaOptions,
    Mechanism,
    PartitionBy,
    SecurityProtocol,
)

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


_of_sink = partial(defined, KafkaOptions)


def _servers(text: str) -> str:
    if "://" in text:
        raise ValueError("expected HOST:PORT, several separated by commas, without a scheme: see security_protocol")
    return text


class KafkaSettings(Section):
    """The Kafka cluster, for sink = "kafka". Secrets (password, ...) come only from the environment."""

    bootstrap_servers: Annotated[str, Field(min_length=1), AfterValidator(_servers)] = _of_sink("bootstrap_servers")
    topic: Template | None = Field(
        None,
        description="Topic. {stream} and {shard} in it are replaced by their names. Default: [relay] topic.",
        examples=["kinesis.{stream}"],
    )
    delivery: Delivery = _of_sink("delivery")
    partition_by: PartitionBy = _of_sink("partition_by")
    compression: Compression = _of_sink("compression")
    commit_seconds: Annotated[float, Field(ge=0.01, le=5.0)] = Field(
        0.2,
        description="Commit this long after the first uncommitted record, instead of [relay] commit_seconds."
        " 0.1 to 0.5 is good.",
    )
    create_topics: bool = _of_sink("create_topics")
    partitions: int = _of_sink("partitions")
    replication_factor: int = _of_sink("replication_factor")
    routes: tuple[Name, ...] = _of_sink("routes")
    checkpoint_topic: Name = _of_sink("checkpoint_topic")
    connect_seconds: float = _of_sink("connect_seconds")
    transaction_seconds: float = _of_sink("transaction_seconds")
    retry_seconds: Seconds | None = Field(
        None,
        description="How long a failed commit of a shard is retried. Then its lease is released, so that another"
        " worker, which may reach the brokers, can take it. Default: until it works.",
        examples=[120.0],
    )
    security_protocol: SecurityProtocol = _of_sink("security_protocol")
    ca_file: ExistingFile | None = _of_sink("ca_file")
    certificate_file: ExistingFile | None = _of_sink("certificate_file")
    key_file: ExistingFile | None = _of_sink("key_file")
    key_password: SecretStr | None = _of_sink("key_password")
    sasl_mechanism: Mechanism | None = _of_sink("sasl_mechanism")
    sasl_username: str | None = _of_sink("sasl_username")
    sasl_password: SecretStr | None = _of_sink("sasl_password")
    oauth_token_url: str | None = _of_sink("oauth_token_url")
    oauth_client_id: str | None = _of_sink("oauth_client_id")
    oauth_client_secret: SecretStr | None = _of_sink("oauth_client_secret")
    oauth_scope: str | None = _of_sink("oauth_scope")
    aws_region: str | None = _of_sink("aws_region")

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
