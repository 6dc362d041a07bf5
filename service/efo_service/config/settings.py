"""Settings: one TOML file, overridden by environment variables `EFO_<SECTION>__<KEY>`.

Values are frozen. Unknown keys are refused with their location. AWS credentials are not settings: they stay in the
AWS chain (environment, profile, role), where they can be rotated without efo.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from efo.arn import parse_consumer, parse_stream
from efo.aws.role import AssumedRole
from efo.checks import check_tags
from efo.errors import ConfigurationError
from efo.kinesis.client import StreamLocation
from efo.model import Position
from efo.protocol.aggregation import AggregateMode
from efo.settings import (
    LATEST,
    TRIM_HORIZON,
    ConsumerSettings,
    OnServiceError,
    ReadMode,
    refuse_future,
)
from efo_service.config.cloudwatch import CloudWatchSettings
from efo_service.config.leases import LeaseSettings
from efo_service.config.pipeline import PipelineSection
from efo_service.config.relay import RelaySettings
from efo_service.config.section import (
    ExistingFile,
    HomeDirectory,
    Name,
    ProxyUrl,
    Reached,
    Seconds,
    Section,
    Text,
    defined,
    proxy_text,
)
from efo_service.web.probe import ServiceAddress
from efo_service.web.security.access import MAX_TOKENS, MIN_TOKEN, Token, tokens_of
from efo_service.web.tls import TlsFiles


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
    try:
        refuse_future(time.timestamp(), datetime.now(UTC).timestamp(), repr(text))
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return text


def _check_consumer(value: str) -> str:
    try:
        parse_consumer(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return value


ConsumerArn = Annotated[str, AfterValidator(_check_consumer)]
Stream = Annotated[str, AfterValidator(_check_stream)]
InitialPosition = Annotated[str, BeforeValidator(_check_position)]


class KinesisSettings(Reached):
    """The stream to read. Credentials come from the AWS chain, never from this file."""

    stream: Stream = Field(description="Name or ARN of the stream.", examples=["orders"])
    region: Text | None = Field(
        None, description="AWS region. Default: the ARN's region, then the AWS chain's.", examples=["eu-west-1"]
    )
    profile: Text | None = Field(None, description="Profile of the AWS configuration.", examples=["production"])
    proxy_url: ProxyUrl | None = Field(
        None,
        description="HTTP proxy for Kinesis and the services that provide credentials, instead of HTTPS_PROXY and"
        " NO_PROXY; empty: none. A user and a password are for the environment alone.",
        examples=["http://proxy.example:3128"],
    )
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
    def proxy(self) -> str | None:
        """The argument `proxy_url` of the library."""
        return proxy_text(self.proxy_url)

    @property
    def location(self) -> StreamLocation:
        """Where the stream is: arguments of the library's openers."""
        return {
            "region": self.region,
            "endpoint_url": self.endpoint_url,
            "ca_file": str(self.ca_file) if self.ca_file else None,
            "profile": self.profile,
            "proxy_url": self.proxy,
        }

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


def _check_consumer_tags(value: dict[str, str]) -> dict[str, str]:
    try:
        check_tags("tags", value)
    except ConfigurationError as error:
        raise ValueError(str(error).removeprefix("tags: ")) from None
    return value


_of_library = partial(defined, ConsumerSettings)


class ConsumerSection(Section):
    """The fan-out consumer, and how it reads the stream."""

    application: Name = Field("efo", description="Name of the application. Its workers share the shards.")
    consumer_name: Name | None = _of_library("consumer_name")
    consumer_arn: ConsumerArn | None = _of_library("consumer_arn")
    consumer_tags: Annotated[dict[str, str], AfterValidator(_check_consumer_tags)] = _of_library("consumer_tags")
    ephemeral: bool = _of_library("ephemeral")
    initial_position: InitialPosition = _of_library("initial_position")
    read_mode: ReadMode = _of_library("read_mode")
    poll_seconds: float = _of_library("poll_seconds")
    subscribes_per_second: float = _of_library("subscribes_per_second")
    checkpoint_seconds: float = _of_library("checkpoint_seconds")
    shard_sync_seconds: float = _of_library("shard_sync_seconds")
    stream_window: int = _of_library("stream_window")
    unsubscribe_idle_seconds: float = _of_library("unsubscribe_idle_seconds")
    on_service_error: OnServiceError = Field(
        "stop",
        description="What a refusal of one shard (KMS, access denied) does: isolate isolates the shard; with stop, a"
        " consumer that has read waits until it is permitted again (R16), and one that has not stops the service.",
    )
    shard_cooldown_seconds: float = _of_library("shard_cooldown_seconds")
    aggregates: AggregateMode = _of_library("aggregates")

    @property
    def fan_out_consumer(self) -> str:
        """The fan-out consumer's name."""
        if self.consumer_arn is not None:
            return parse_consumer(self.consumer_arn)[1]
        return self.consumer_name or self.application

    @model_validator(mode="after")
    def _has_one_consumer(self) -> ConsumerSection:
        if self.consumer_arn is not None and self.consumer_name is not None:
            raise ValueError("consumer_name and consumer_arn are the same consumer's: remove one of them")
        if self.consumer_arn is not None and self.read_mode == "polling":
            raise ValueError(
                "consumer_arn has no effect with read_mode = polling, which needs no fan-out consumer: remove it"
            )
        if self.consumer_tags and (self.consumer_arn is not None or self.read_mode == "polling"):
            why = "consumer_arn, whose consumer somebody else registers" if self.consumer_arn else "read_mode = polling"
            raise ValueError(f"consumer_tags has no effect with {why}: remove it")
        if self.ephemeral and (self.consumer_arn is not None or self.read_mode == "polling"):
            why = "consumer_arn, whose consumer belongs to its owner" if self.consumer_arn else "read_mode = polling"
            raise ValueError(f"ephemeral has no effect with {why}: remove it")
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


class ServiceSettings(Section):
    """Health, metrics, the page and shutdown."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address that serves the page and /livez, /readyz, /metrics and /status; 0.0.0.0 is all of IPv4, ::"
        " all of IPv6 and IPv4. Beyond loopback, the page and /status need the token or a client certificate"
        " (docs/deployment.md).",
    )
    port: int = Field(8080, ge=0, le=65535, description="Port that serves these endpoints. 0 takes a free port.")
    token: SecretStr | None = Field(
        None,
        description="Token for the page, /status and actions on shards, at least 16 characters; or two, separated by a"
        " space, while clients change to the new one. NAME:TOKEN gives it a name for the log. Without one, only this"
        " machine may read, and nobody may act.",
    )
    read_token: SecretStr | None = Field(
        None, description="The same for a token, or two, with which nobody may act: for the page and /status."
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
    directory: HomeDirectory = Field(
        Path(),
        validate_default=True,
        description="Directory to which relative paths are relative, such as those of the log and the leases; itself"
        " relative to the directory of this file, without a file to the one in which efo is started.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum level of log lines: debug, info, warning or error."
    )

    @field_validator("host")
    @classmethod
    def _is_host(cls, host: str) -> str:
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not bare.strip() or bare != bare.strip() or not bare.isprintable() or set("/@*") & set(bare):
            raise ValueError("not an address: write 127.0.0.1, 0.0.0.0, :: (all of IPv6 and IPv4) or a host name")
        return bare

    @field_validator("token", "read_token")
    @classmethod
    def _is_long(cls, token: SecretStr | None) -> SecretStr | None:
        text = token.get_secret_value() if token is not None else None
        if text is not None:
            parts = tokens_of(text)
            is_long = all(len(part.secret) >= MIN_TOKEN for part in parts)
            if not (parts and is_long and text.isascii() and text == text.strip()):
                raise ValueError(
                    f"a token has at least {MIN_TOKEN} ASCII characters without spaces: make one with openssl rand -hex"
                    " 24. Two are separated by a space"
                )
            if len(parts) > MAX_TOKENS:
                raise ValueError(f"{len(parts)} tokens: at most {MAX_TOKENS}, the one before and the new one")
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
        tokens = self.tokens
        return ServiceAddress(self.host, self.port, tokens[0].secret if tokens else None, self.certificate_file)

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens: those that may act first, in the order in which they are written."""
        own = () if self.token is None else tokens_of(self.token.get_secret_value())
        reading = () if self.read_token is None else tokens_of(self.read_token.get_secret_value(), may_act=False)
        return own + reading

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

    _secret_files: tuple[Path, ...] = PrivateAttr(())

    kinesis: KinesisSettings
    consumer: ConsumerSection = ConsumerSection()
    leases: LeaseSettings = Field(default_factory=LeaseSettings)
    relay: RelaySettings = Field(default_factory=RelaySettings)
    service: ServiceSettings = Field(default_factory=ServiceSettings)
    cloudwatch: CloudWatchSettings = CloudWatchSettings()
    pipeline: PipelineSection = Field(default_factory=PipelineSection)

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
        if self.consumer.consumer_arn is not None:
            stream, _ = parse_consumer(self.consumer.consumer_arn)
            if self.kinesis.stream not in {stream, parse_stream(stream)[0]}:
                raise ValueError(
                    f"[consumer] consumer_arn is of the stream {stream}, not of {self.kinesis.stream}: correct one"
                )
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
    def secret_files(self) -> tuple[Path, ...]:
        """The files that secrets were read from."""
        return self._secret_files

    def note_secret_files(self, files: Iterable[Path]) -> None:
        """Note the files that secrets were read from."""
        self._secret_files = tuple(files)

    @property
    def topic(self) -> str:
        """The topic of the records. If each shard has its own Kafka topic, {shard} stays in the name."""
        name = self.relay.topic or self.kinesis.stream_name
        if self.relay.sink == "kafka" and self.relay.kafka.topic is not None:
            name = self.relay.kafka.topic
        return name.replace("{stream}", self.kinesis.stream_name)
