"""Settings: one TOML file, overridden by environment variables `EFO_<SECTION>__<KEY>`.

Values are frozen. Unknown keys are refused with their location. AWS credentials are not settings: they stay in the
AWS chain (environment, profile, role), where they can be rotated without efo.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from efo.arn import parse_consumer, parse_stream
from efo.errors import ConfigurationError
from efo.kinesis.aws.role import AssumedRole
from efo.model import Position
from efo.protocol.aggregation import AggregateMode
from efo.settings import (
    LATEST,
    MAX_POLL_INTERVAL,
    STREAM_WINDOW,
    SUBSCRIBES_PER_SECOND,
    TRIM_HORIZON,
    OnServiceError,
    ReadMode,
)
from efo_service.config.cloudwatch import CloudWatchSettings
from efo_service.config.dynamodb import DynamoDbSettings
from efo_service.config.kafka import KafkaSettings
from efo_service.config.pipeline import PipelineSettings
from efo_service.config.section import Count, Endpoint, ExistingFile, LocalPath, LogDirectory, Name, Seconds, Section
from efo_service.relay.object_store.url import StoreUrl, log_root, parse_url
from efo_service.relay.plugins import BUILT_IN, check_sink, owns_positions
from efo_service.web.probe import ServiceAddress
from efo_service.web.tls import TlsFiles

MIN_TOKEN: Final = 16
"""Characters of a token: fewer could be guessed."""


def _check_stream(value: str) -> str:
    try:
        parse_stream(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return value


def _check_position(value: object) -> str:
    """Return "trim_horizon", "latest" or an ISO 8601 time with a time zone. TOML date-times are accepted too."""
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    if text.lower() in {"trim_horizon", "latest"}:
        return text.lower()
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a position: write trim_horizon, latest or a time like 2026-01-31T12:00:00Z"
        ) from None
    if time.tzinfo is None:
        raise ValueError(f"the time {text!r} has no time zone: write {time.isoformat()}Z for UTC")
    return text


def _check_sink(value: str) -> str:
    try:
        check_sink(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return value


def _check_consumer(value: str) -> str:
    try:
        parse_consumer(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return value


ConsumerArn = Annotated[str, AfterValidator(_check_consumer)]
SinkName = Annotated[str, AfterValidator(_check_sink)]
Stream = Annotated[str, AfterValidator(_check_stream)]
InitialPosition = Annotated[str, BeforeValidator(_check_position)]


class KinesisSettings(Section):
    """The stream to read. Credentials come from the AWS chain, never from this file."""

    stream: Stream = Field(description="Name or ARN of the stream.", examples=["orders"])
    region: str | None = Field(
        None, description="AWS region. Default: the ARN's region, then the AWS chain's.", examples=["eu-west-1"]
    )
    endpoint_url: Endpoint | None = Field(
        None,
        description="Endpoint to use instead of the region's own, for example a VPC endpoint.",
        examples=["https://127.0.0.1:4567"],
    )
    ca_file: ExistingFile | None = Field(
        None,
        description="PEM file of certificate authorities to trust instead of the system's.",
        examples=["ca.pem"],
    )
    profile: str | None = Field(None, description="Profile of the AWS configuration.", examples=["production"])
    role_arn: str | None = Field(
        None,
        description="Role to assume, as for a stream of another account. Its credentials are refreshed in time.",
        examples=["arn:aws:iam::123456789012:role/kinesis-reader"],
    )
    external_id: str | None = Field(
        None, description="External id that the role's trust policy asks for.", examples=["efo-4711"]
    )
    role_session_name: str = Field("efo", description="Name of the role's session, for CloudTrail.")

    @model_validator(mode="after")
    def _has_a_role(self) -> KinesisSettings:
        if self.role_arn is None and self.external_id is not None:
            raise ValueError("external_id needs role_arn: the role that is to be assumed")
        try:
            self.role  # noqa: B018 - a property that raises
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def role(self) -> AssumedRole | None:
        """The role to assume."""
        return None if self.role_arn is None else AssumedRole(self.role_arn, self.external_id, self.role_session_name)

    @model_validator(mode="after")
    def _same_region(self) -> KinesisSettings:
        _, region = parse_stream(self.stream)
        if region is not None and self.region not in {None, region}:
            raise ValueError(f"region {self.region!r} is not that of the stream's ARN: remove it, or write {region!r}")
        return self

    @property
    def stream_name(self) -> str:
        """The stream's name, taken from the ARN if `stream` is one."""
        return parse_stream(self.stream)[0]


class ConsumerSettings(Section):
    """The fan-out consumer, and how it reads the stream."""

    application: Name = Field("efo", description="Name of the application. Its workers share the shards.")
    name: Name | None = Field(
        None,
        description="Name of the fan-out consumer, registered if it does not exist. Default: the application's name.",
        examples=["efo"],
    )
    arn: ConsumerArn | None = Field(
        None,
        description="ARN of a fan-out consumer that somebody else registers, as in another account, instead of a name.",
        examples=["arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/efo:1700000000"],
    )
    initial_position: InitialPosition = Field(
        "trim_horizon",
        description="Initial position of unread shards: trim_horizon, latest or a time like 2026-01-31T12:00:00Z.",
    )
    read_mode: ReadMode = Field(
        "fanout",
        description="How shards are read: fanout (enhanced fan-out), polling (GetRecords, whose limits all applications"
        " share), or auto (fan-out, and polling while the stream has all consumers that it may, or fan-out is denied).",
    )
    poll_seconds: Seconds = Field(
        1.0,
        le=MAX_POLL_INTERVAL,
        description="Most time between two GetRecords calls for a shard that is current. One that lags is read faster.",
    )
    fanout_retry_seconds: Seconds = Field(
        300.0, description="With read_mode = auto: how long shards are polled until fan-out is tried again."
    )
    subscribes_per_second: Seconds = Field(
        SUBSCRIBES_PER_SECOND, description="Maximum number of SubscribeToShard calls per second by this worker (R6)."
    )
    checkpoint_seconds: Seconds = Field(5.0, description="Time between two checkpoints of a shard in the lease store.")
    shard_sync_seconds: Seconds = Field(
        60.0, description="Time between two shard syncs: ListShards finds shards that have no lease yet."
    )
    stream_window: int = Field(
        STREAM_WINDOW,
        ge=65_535,
        description="HTTP/2 stream window of each shard: how many bytes may wait for the sink (R9).",
    )
    unsubscribe_idle_seconds: Seconds = Field(
        60.0,
        description="A subscription ends if the sink takes no records for this long. It resumes on demand (R9).",
    )
    on_service_error: OnServiceError = Field(
        "stop",
        description="What a permanent error of one shard (KMS, access denied) does: stop the service, or isolate the"
        " shard (R11).",
    )
    shard_cooldown_seconds: Seconds = Field(
        60.0, description="How long this worker does not take the lease of an isolated shard again."
    )
    aggregates: AggregateMode = Field(
        AggregateMode.FILTER,
        description="User records of other shards in KPL aggregates: filter omits them, drop omits the aggregate (as"
        " KCL), keep omits none.",
    )

    @property
    def consumer_name(self) -> str:
        """The fan-out consumer's name."""
        return self.name or (self.application if self.arn is None else parse_consumer(self.arn)[1])

    @model_validator(mode="after")
    def _has_one_consumer(self) -> ConsumerSettings:
        if self.arn is not None and self.name is not None:
            raise ValueError("name and arn are the same consumer's: remove one of them")
        if self.arn is not None and self.read_mode == "polling":
            raise ValueError("arn has no effect with read_mode = polling, which needs no fan-out consumer: remove it")
        return self

    @property
    def position(self) -> Position:
        """`initial_position` as a Position."""
        match self.initial_position:
            case "trim_horizon":
                return TRIM_HORIZON
            case "latest":
                return LATEST
            case time:
                return Position.at_timestamp(datetime.fromisoformat(time).astimezone(UTC).timestamp())


_SCHEMES: Final = {"postgres": ("postgresql", "postgres"), "redis": ("redis", "rediss", "unix")}
"""The URL schemes of lease stores."""


class LeaseSettings(Section):
    """The lease store, and how workers share the shards."""

    store: Literal["sqlite", "dynamodb", "postgres", "redis", "log"] = Field(
        "sqlite",
        description="Lease store: sqlite (a file, for one machine), dynamodb (KCL's table), postgres, redis, or log"
        " (beside the log of [relay] directory, on an object store).",
    )
    path: LocalPath = Field(Path("var/leases.sqlite"), description="File of the sqlite lease store.")
    url: SecretStr | None = Field(
        None,
        description="URL of the postgres or redis server: postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or"
        " redis://...",
    )
    start_seconds: Seconds = Field(
        30.0, description="How long to wait at the start for a lease store that is unavailable."
    )
    failover_seconds: Seconds = Field(
        10.0, description="Fail-over time: a lease that is not renewed for this long expires, and others take it (R10)."
    )
    scan_interval_seconds: Seconds | None = Field(
        None,
        description="Time between two lease scans. Default: a twentieth of failover_seconds, longer with many workers.",
        examples=[5.0],
    )
    graceful_handoff: bool = Field(
        True,
        description="Whether to request a lease from its owner, so that no record is read twice. If false, the lease"
        " is stolen.",
    )
    handoff_seconds: Seconds = Field(
        30.0, description="A requested lease that is not released within this time and failover_seconds is stolen."
    )
    max_leases: Count | None = Field(
        None, description="Maximum number of leases that this worker owns. Default: no limit.", examples=[100]
    )
    balance: Literal["count", "throughput"] = Field(
        "count", description="What workers share evenly: the number of shards (count) or their traffic (throughput)."
    )
    max_leases_per_scan: Count | None = Field(
        None,
        description="Maximum number of leases that this worker takes in one lease scan. Default: no limit.",
        examples=[10],
    )
    worker_weights: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        {},
        description="Weights of workers, by their ids or the beginnings of these; others weigh 1. Shares are in"
        " proportion. The same for all workers.",
    )
    zones: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        description="Zones of workers, with which their ids begin. Each zone reads a part of the hash keys, while it"
        " has workers. The same for all workers.",
    )
    cleanup: bool = Field(
        True, description="Whether to delete the lease of a finished shard ten minutes after nothing depends on it."
    )
    worker_id: str | None = Field(
        None,
        min_length=1,
        description="Name of this worker, unique within the application. Default: one that is unique on this host, and"
        " the same after a restart.",
        examples=["worker-1"],
    )
    dynamodb: DynamoDbSettings = DynamoDbSettings()

    @model_validator(mode="after")
    def _is_in_a_zone(self) -> LeaseSettings:
        if self.zones and not (self.worker_id or "").startswith(self.zones):
            raise ValueError(
                f"worker_id {self.worker_id!r} begins with none of the zones {', '.join(self.zones)}: set worker_id,"
                f" such as {self.zones[0]}-worker-1"
            )
        return self

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


_COMMIT_MILLISECONDS: Final = 50
_STORE_COMMIT_MILLISECONDS: Final = 5000
_MAINTENANCE_SECONDS: Final = 30.0
_STORE_MAINTENANCE_SECONDS: Final = 300.0


class RelaySettings(Section):
    """The sink, and when to commit. The first limit that is reached triggers a commit."""

    sink: SinkName = Field(
        "log",
        description="Sink: log (the embedded log that Spark reads, exactly once), jsonl (at least once), kafka, or one"
        " of another package.",
        examples=["log", "jsonl", "kafka"],
    )
    options: dict[str, str | int | float | bool] = Field(
        default={}, description="Options of a sink of another package, which it documents."
    )
    directory: LogDirectory = Field(
        Path("var/log"),
        description="Root of the embedded log: a directory, or s3://bucket/prefix, gs://bucket/prefix,"
        " az://container/prefix.",
        examples=["s3://logs/efo"],
    )
    store_options: dict[str, str | int | float | bool] = Field(
        default={},
        description="Options of the object store of such a URL, such as endpoint and region. Never credentials: they"
        " come from the environment.",
    )
    topic: Name | None = Field(
        None, description="Topic that records are written to. Default: the stream's name.", examples=["orders"]
    )
    commit_records: Count = Field(10_000, description="Commit after this many records.")
    commit_bytes: Count = Field(
        4 * 1024 * 1024, description="Commit after this many bytes as the sink writes them, headers included."
    )
    commit_milliseconds: Count | None = Field(
        None,
        description="Commit this long after the first uncommitted record; up to a second later with many shards, or for"
        " a shard that lags. Default: 50, and 5000 for a log on an object store, where each commit has a price.",
        examples=[50],
    )
    retention_hours: Seconds | None = Field(
        None, description="How long the log keeps a record after its commit. Default: forever.", examples=[72.0]
    )
    retention_bytes: Count | None = Field(
        None,
        description="Maximum size of a topic of the log. Above it, the oldest records expire. Default: no limit.",
        examples=[107374182400],
    )
    maintenance_seconds: Seconds | None = Field(
        None,
        description="Time between two maintenance passes. A pass compacts segments, and deletes expired ones that all"
        " readers have read. Default: 30, and 300 for a log on an object store.",
        examples=[30.0],
    )
    jsonl_file: LocalPath = Field(
        Path("-"),
        description="File of the JSON lines, one per worker. - is stdout; efo's own log then goes to stderr.",
    )
    jsonl_encoding: Literal["base64", "utf-8"] = Field(
        "base64",
        description="Encoding of values: base64 for any bytes, or utf-8, which refuses values that are not UTF-8.",
    )
    dead_letters: Name | None = Field(
        None,
        description="Topic (of Kafka or the log) for records that the sink refuses.",
        examples=["refused"],
    )
    on_refused_record: Literal["dead_letter", "skip", "isolate", "stop"] | None = Field(
        None,
        description="What a record that the sink can never write does: it goes to dead_letters, is skipped, isolates"
        " its shard or stops the service (R11). Default: dead_letter if dead_letters is set, else isolate.",
        examples=["isolate"],
    )
    on_sink_error: Literal["stop", "isolate"] = Field(
        "stop",
        description="What a permanent error of the sink for one shard does: stop the service, or isolate the shard"
        " (R11). A shard that another worker has opened since (sink_fenced) is always isolated.",
    )
    retry_seconds: Seconds = Field(
        300.0,
        description="How long the log and JSON lines retry on a full disk, and a log on an object store while the store"
        " does not answer. Kafka has its own retry_seconds.",
    )
    trace_extractor: str | None = Field(
        None,
        description="Function that extracts a record's W3C trace context for its headers, as package.module:function.",
        examples=["efo_service.relay.mapping:from_tags"],
    )
    kafka: KafkaSettings = KafkaSettings()

    @property
    def refused_record_action(self) -> Literal["dead_letter", "skip", "isolate", "stop"]:
        """What happens to a record that the sink can never write."""
        return self.on_refused_record or ("isolate" if self.dead_letters is None else "dead_letter")

    @property
    def writes_to_stdout(self) -> bool:
        """Whether records are written to stdout, which must then contain nothing else."""
        return self.sink == "jsonl" and str(self.jsonl_file) == "-"

    @model_validator(mode="after")
    def _has_options_for_a_sink(self) -> RelaySettings:
        if self.options and self.sink in BUILT_IN:
            raise ValueError(f'options are for sinks of other packages: sink = "{self.sink}" has none, remove them')
        return self

    @model_validator(mode="after")
    def _has_a_place_for_dead_letters(self) -> RelaySettings:
        if self.on_refused_record == "dead_letter" and self.dead_letters is None:
            raise ValueError('on_refused_record = "dead_letter" needs dead_letters: the name of a topic')
        if self.on_refused_record not in (None, "dead_letter") and self.dead_letters is not None:
            raise ValueError(
                f'dead_letters is never used with on_refused_record = "{self.on_refused_record}": remove one of them'
            )
        return self

    @property
    def commit_seconds(self) -> float:
        """How long after its first record a commit is due, in seconds."""
        if self.sink == "kafka":
            return self.kafka.commit_milliseconds / 1000
        default = _STORE_COMMIT_MILLISECONDS if self.sink == "log" and self.is_on_object_store else _COMMIT_MILLISECONDS
        return (self.commit_milliseconds or default) / 1000

    @property
    def is_on_object_store(self) -> bool:
        """Whether the embedded log is on an object store."""
        return isinstance(self.directory, str)

    @property
    def log_root(self) -> Path | StoreUrl:
        """The root of the embedded log."""
        return parse_url(self.directory, self.store_options) if isinstance(self.directory, str) else self.directory

    @property
    def maintenance_interval(self) -> float:
        """Seconds between two maintenance passes of the embedded log."""
        default = _STORE_MAINTENANCE_SECONDS if self.is_on_object_store else _MAINTENANCE_SECONDS
        return self.maintenance_seconds or default

    @model_validator(mode="after")
    def _has_options_for_a_store(self) -> RelaySettings:
        try:
            log_root(str(self.directory), self.store_options)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def owns_positions(self) -> bool:
        """Whether the sink keeps the position of each shard, which wins over the checkpoint (rule R12)."""
        if self.sink not in BUILT_IN:
            return owns_positions(self.sink)
        return self.sink == "log" or (self.sink == "kafka" and self.kafka.delivery == "exactly_once")


class ServiceSettings(Section):
    """Health, metrics, the page and shutdown."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address that serves the page and /livez, /readyz, /metrics and /status. Beyond loopback, the page"
        " and /status need the token or a client certificate (docs/page.md).",
    )
    port: int = Field(8080, ge=0, le=65535, description="Port that serves these endpoints. 0 takes a free port.")
    token: SecretStr | None = Field(
        None,
        description="Token for the page, /status and actions on shards, at least 16 characters. Without one, only this"
        " machine may read, and nobody may act.",
    )
    certificate_file: ExistingFile | None = Field(
        None, description="PEM file of the server's certificate: serve HTTPS instead of HTTP.", examples=["tls.crt"]
    )
    key_file: ExistingFile | None = Field(
        None, description="PEM file of the certificate's private key.", examples=["tls.key"]
    )
    client_ca_file: ExistingFile | None = Field(
        None,
        description="PEM file of authorities: a client with a certificate of theirs may read without the token.",
        examples=["clients.pem"],
    )
    drain_seconds: Seconds = Field(
        25.0, description="How long the drain may take. Keep it below Kubernetes' grace period (30 s)."
    )
    group_access: Literal["none", "read", "write"] = Field(
        "none",
        description="What the group of the log's and leases' files may do: none, read (for Spark as another user), or"
        " write (also for its reader offsets). Existing files keep their modes.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum level of log lines: debug, info, warning or error."
    )

    @field_validator("token")
    @classmethod
    def _is_long(cls, token: SecretStr | None) -> SecretStr | None:
        text = token.get_secret_value() if token is not None else None
        if text is not None and (len(text) < MIN_TOKEN or not text.isascii() or text != text.strip()):
            raise ValueError(
                f"a token has at least {MIN_TOKEN} ASCII characters without surrounding spaces: make one with"
                " openssl rand -hex 24"
            )
        return token

    @model_validator(mode="after")
    def _has_certificate(self) -> ServiceSettings:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file belong together: set both or neither")
        if self.client_ca_file is not None and self.certificate_file is None:
            raise ValueError("client_ca_file needs certificate_file and key_file: client certificates are part of TLS")
        return self

    @property
    def tls(self) -> TlsFiles | None:
        """The files of the server's TLS; None: plain HTTP."""
        if self.certificate_file is None or self.key_file is None:
            return None
        return TlsFiles(self.certificate_file, self.key_file, self.client_ca_file)

    @property
    def address(self) -> ServiceAddress:
        """Where commands on the same machine find the service."""
        return ServiceAddress(
            self.host, self.port, self.token.get_secret_value() if self.token else None, self.certificate_file
        )

    @property
    def umask(self) -> int:
        """The file mode creation mask of the process: others get no access to records and leases."""
        return {"none": 0o077, "read": 0o027, "write": 0o007}[self.group_access]


class Settings(BaseSettings):
    """All settings of efo. Load them with `efo_service.config.loading.load`."""

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
    cloudwatch: CloudWatchSettings = CloudWatchSettings()
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
        """Let the environment override the file."""
        return env_settings, init_settings

    @model_validator(mode="after")
    def _consumer_of_the_stream(self) -> Settings:
        if self.consumer.arn is not None:
            stream, _ = parse_consumer(self.consumer.arn)
            if self.kinesis.stream not in {stream, parse_stream(stream)[0]}:
                raise ValueError(f"[consumer] arn is of the stream {stream}, not of {self.kinesis.stream}: correct one")
        return self

    @model_validator(mode="after")
    def _letters_apart(self) -> Settings:
        if self.relay.dead_letters == self.topic:
            raise ValueError(f"[relay] dead_letters {self.topic!r} is also the records' topic: choose another name")
        return self

    @model_validator(mode="after")
    def _leases_beside_a_log(self) -> Settings:
        if self.leases.store != "log":
            return self
        if self.relay.sink != "log":
            raise ValueError(
                f'[leases] store = "log" keeps the leases beside the log, but [relay] sink is "{self.relay.sink}": use'
                " sqlite, dynamodb, postgres or redis"
            )
        if not self.relay.is_on_object_store:
            raise ValueError(
                f'[leases] store = "log" needs a log on an object store, but [relay] directory is'
                f' {self.relay.directory}, on a local disk: use store = "sqlite", for one machine as this log is'
            )
        return self

    @property
    def topic(self) -> str:
        """The topic of the records. If each shard has its own Kafka topic, {shard} stays in the name."""
        name = self.relay.topic or self.kinesis.stream_name
        if self.relay.sink == "kafka" and self.relay.kafka.topic is not None:
            name = self.relay.kafka.topic
        return name.replace("{stream}", self.kinesis.stream_name)
