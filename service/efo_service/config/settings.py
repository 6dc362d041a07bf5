"""Settings: one TOML file, overridden by environment variables `EFO_<SECTION>__<KEY>`.

The values are frozen, and everything unknown is refused with its place. AWS credentials are not settings:
they stay in the AWS chain (environment, profile, role), where they can be rotated without efo.
"""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, FilePath, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from efo.arn import parse_stream
from efo.errors import ConfigurationError
from efo.model import Position
from efo.protocol.aggregation import AggregateMode
from efo.settings import STREAM_WINDOW
from efo_service.config.dynamodb import DynamoDbSettings
from efo_service.config.kafka import KafkaSettings
from efo_service.config.pipeline import PipelineSettings
from efo_service.config.section import Count, Endpoint, Name, Seconds, Section


def _check_stream(value: str) -> str:
    try:
        parse_stream(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return value


def _check_position(value: object) -> str:
    """Return "trim_horizon", "latest" or an ISO 8601 time with its zone; TOML's date-times are taken too."""
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    if text.lower() in {"trim_horizon", "latest"}:
        return text.lower()
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a position: trim_horizon, latest or a time like 2026-01-31T12:00:00Z"
        ) from None
    if time.tzinfo is None:
        raise ValueError(f"the time {text!r} lacks its zone: write {time.isoformat()}Z for UTC")
    return text


Stream = Annotated[str, AfterValidator(_check_stream)]
InitialPosition = Annotated[str, BeforeValidator(_check_position)]


class KinesisSettings(Section):
    """The stream that is read. Credentials come from the AWS chain, never from here."""

    stream: Stream = Field(description="The stream's name or ARN.", examples=["orders"])
    region: str | None = Field(None, description="Default: the ARN's, then the AWS chain's.", examples=["eu-west-1"])
    endpoint_url: Endpoint | None = Field(
        None,
        description="Another endpoint than the region's own, for example a VPC endpoint.",
        examples=["https://127.0.0.1:4567"],
    )
    ca_file: FilePath | None = Field(
        None,
        description="Certificate authorities to trust instead of the system's (PEM).",
        examples=["ca.pem"],
    )
    profile: str | None = Field(None, description="A profile of the AWS configuration.", examples=["production"])

    @model_validator(mode="after")
    def _same_region(self) -> KinesisSettings:
        _, region = parse_stream(self.stream)
        if region is not None and self.region not in {None, region}:
            raise ValueError(
                f"region {self.region!r} is not the stream's: remove it, or write {region!r} as in the ARN"
            )
        return self

    @property
    def stream_name(self) -> str:
        """The stream's name, without the rest of its ARN."""
        return parse_stream(self.stream)[0]


class ConsumerSettings(Section):
    """How it is read, and under which names."""

    application: Name = Field("efo", description="Workers of one application share the shards.")
    name: Name | None = Field(
        None,
        description="The fan-out consumer, registered if it does not exist. Default: the application's name.",
        examples=["efo"],
    )
    initial_position: InitialPosition = Field(
        "trim_horizon",
        description="Where new shards start: trim_horizon, latest or a time like 2026-01-31T12:00:00Z.",
    )
    subscribes_per_second: Seconds = Field(20.0, description="SubscribeToShard calls of this worker, at most (R6).")
    checkpoint_seconds: Seconds = Field(5.0, description="How often progress is saved to the lease store.")
    shard_sync_seconds: Seconds = Field(60.0, description="How often ListShards is asked for shards nobody told us of.")
    stream_window: int = Field(
        STREAM_WINDOW, ge=65_535, description="Bytes that may wait for the sink, per shard: the HTTP/2 window (R9)."
    )
    unsubscribe_idle_seconds: Seconds = Field(
        60.0, description="A subscription that the sink takes nothing of for so long is given up until it does (R9)."
    )
    park_faults: bool = Field(
        default=False,
        description="What is refused for good for one shard (KMS, access denied) stops it alone, not all (R11),",
    )
    shard_cooldown_seconds: Seconds = Field(60.0, description="and this worker then leaves it alone for so long.")
    aggregates: AggregateMode = Field(
        AggregateMode.FILTER,
        description="Aggregated records of other shards: filter them out, drop the aggregate as KCL does, keep them.",
    )

    @property
    def consumer_name(self) -> str:
        """The fan-out consumer's name."""
        return self.name or self.application

    @property
    def position(self) -> Position:
        """`initial_position` as the library takes it."""
        match self.initial_position:
            case "trim_horizon":
                return Position.trim_horizon()
            case "latest":
                return Position.latest()
            case time:
                return Position.at_timestamp(datetime.fromisoformat(time).astimezone(UTC).timestamp())


_SCHEMES: Final = {"postgres": ("postgresql", "postgres"), "redis": ("redis", "rediss", "unix")}
"""How the URLs of lease stores begin."""


class LeaseSettings(Section):
    """Which worker reads which shard, and how far."""

    store: Literal["sqlite", "dynamodb", "postgres", "redis"] = Field(
        "sqlite",
        description="sqlite: a file, for one machine's workers; dynamodb (KCL's table), postgres, redis: for many's.",
    )
    path: Path = Field(Path("var/leases.sqlite"), description="The file of the sqlite store.")
    url: SecretStr | None = Field(
        None, description="The server of postgres or redis: postgresql://USER:PASSWORD@HOST:PORT/DATABASE, redis://..."
    )
    start_seconds: Seconds = Field(30.0, description="How long to wait for a store that is not there at the start.")
    failover_seconds: Seconds = Field(10.0, description="A worker silent for this long loses its leases (R10).")
    scan_interval_seconds: Seconds | None = Field(
        None,
        description="Time between two looks at all leases. Default: a twentieth of that, longer for many workers.",
        examples=[5.0],
    )
    graceful_handoff: bool = Field(
        True, description="Ask a worker for its leases, so that a move repeats nothing. Else take them from it."
    )
    handoff_seconds: Seconds = Field(30.0, description="Then take them if it has not let go in this and that time.")
    max_leases: Count | None = Field(None, description="This worker owns no more. Default: no limit.", examples=[100])
    balance: Literal["count", "throughput"] = Field(
        "count", description="What workers share out: shards by their number, or what the shards bring."
    )
    cleanup: bool = Field(True, description="Delete leases of finished shards ten minutes after they have served.")
    worker_id: str = Field(
        default_factory=socket.gethostname,
        min_length=1,
        description="Names this worker; unique per application. Default: the host's name.",
        examples=["worker-1"],
    )
    dynamodb: DynamoDbSettings = DynamoDbSettings()

    @model_validator(mode="after")
    def _has_url(self) -> LeaseSettings:
        if (schemes := _SCHEMES.get(self.store)) is None:
            return self
        url = self.url.get_secret_value() if self.url else ""
        if not url.startswith(tuple(f"{scheme}://" for scheme in schemes)):
            raise ValueError(
                f'store = "{self.store}" needs the URL of a server: set EFO_LEASES__URL={schemes[0]}://... in the '
                "environment"
            )
        return self


class RelaySettings(Section):
    """Where records go. The first limit reached commits a group."""

    sink: Literal["log", "jsonl", "kafka"] = Field(
        "log",
        description="log: the embedded log that Spark reads, exactly once; jsonl: JSON lines, at least once; kafka.",
    )
    directory: Path = Field(Path("var/log"), description="The log's root.")
    topic: Name | None = Field(None, description="Default: the stream's name.", examples=["orders"])
    commit_records: Count = Field(10_000, description="Commit a group at this many records,")
    commit_bytes: Count = Field(4 * 1024 * 1024, description="at this many bytes of keys and values,")
    commit_milliseconds: Count = Field(50, description="or this long after its first record.")
    retention_hours: Seconds | None = Field(
        None, description="The log forgets records this long after their commit. Default: never.", examples=[72.0]
    )
    retention_bytes: Count | None = Field(
        None,
        description="The log forgets its oldest records above this size of a topic. Default: never.",
        examples=[107374182400],
    )
    maintenance_seconds: Seconds = Field(
        30.0, description="How often small segments are rolled up, and expired ones removed that all readers have read."
    )
    jsonl_file: Path = Field(
        Path("-"),
        description="The file of the lines, one per worker; - for stdout (efo's own log then goes to stderr).",
    )
    jsonl_encoding: Literal["base64", "utf-8"] = Field(
        "base64", description="base64 for any bytes; utf-8 for values that can be read, others are refused."
    )
    dead_letters: Name | None = Field(
        None,
        description="A topic (of Kafka, or of the log) for records that the sink refuses. Without one they stop it.",
        examples=["refused"],
    )
    trace_extractor: str | None = Field(
        None,
        description="Finds the records' W3C trace contexts, for their headers: a function, package.module:function.",
        examples=["efo_service.relay.mapping:from_tags"],
    )
    kafka: KafkaSettings = KafkaSettings()

    @property
    def commit_seconds(self) -> float:
        """How old a group may grow, in seconds."""
        return (self.kafka.commit_milliseconds if self.sink == "kafka" else self.commit_milliseconds) / 1000

    @property
    def owns_positions(self) -> bool:
        """Whether the sink itself knows how far each shard is, which wins over the leases (rule R12)."""
        return self.sink == "log" or (self.sink == "kafka" and self.kafka.delivery == "exactly_once")


class ServiceSettings(Section):
    """Health, metrics and shutdown."""

    host: str = Field("127.0.0.1", min_length=1, description="Where /livez, /readyz, /metrics and /status are served.")
    port: int = Field(8080, ge=0, le=65535, description="Its port; 0 takes a free one.")
    drain_seconds: Seconds = Field(
        25.0, description="Time to finish after SIGTERM; keep it below Kubernetes' grace period (30 s)."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="debug, info, warning, error.")


class Settings(BaseSettings):
    """Everything that efo can be told. Load it with `efo_service.config.loading.load`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="EFO_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        env_nested_max_split=2,
    )

    kinesis: KinesisSettings
    consumer: ConsumerSettings = ConsumerSettings()
    leases: LeaseSettings = Field(default_factory=LeaseSettings)
    relay: RelaySettings = RelaySettings()
    service: ServiceSettings = ServiceSettings()
    pipeline: PipelineSettings = PipelineSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment win over what the file said."""
        return env_settings, init_settings

    @model_validator(mode="after")
    def _letters_apart(self) -> Settings:
        if self.relay.dead_letters == self.topic:
            raise ValueError(f"[relay] dead_letters {self.topic!r} is the records' own topic: choose another name")
        return self

    @property
    def topic(self) -> str:
        """The topic; of a Kafka topic per shard, {shard} is left in it."""
        name = self.relay.topic or self.kinesis.stream_name
        if self.relay.sink == "kafka" and self.relay.kafka.topic is not None:
            name = self.relay.kafka.topic
        return name.replace("{stream}", self.kinesis.stream_name)
