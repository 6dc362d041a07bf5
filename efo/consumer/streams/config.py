"""One stream of several, and what is different about it (KCL: StreamConfig)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from efo.arn import parse_stream
from efo.aws.role import AssumedRole
from efo.checks import check_text, check_type, shown
from efo.errors import ConfigurationError
from efo.kinesis.client import KinesisClient
from efo.settings import ConsumerSettings, PositionLike, parse_position


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """One stream of a consumer of several, and what is different about it. None: as for all streams.

    `stream`: its name or ARN, or a client that `open_kinesis` made.
    `initial_position`: where its shards start that were never read.
    `consumer_arn`: a fan-out consumer that somebody else registers, as in another account.
    `role`: a role to assume, for a stream of another account. `region`: the stream's; an ARN has it.
    `settings`: all other settings of this stream. The subscribe budget and `max_leases` are those of all streams;
    `assignment` and `balance` must be the same in all of them.
    `stream_id`: "account:stream:epoch", by which its leases are named in a multi-stream lease table (KCL:
    StreamIdentifier). None: the account, the name and the creation time that the service describes. Set it if the table
    is KCL's and its tracker names another epoch.

    Raises ConfigurationError.
    """

    stream: str | KinesisClient
    initial_position: PositionLike | None = None
    consumer_arn: str | None = None
    role: AssumedRole | None = None
    region: str | None = None
    settings: ConsumerSettings | None = None
    stream_id: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stream, KinesisClient):
            if self.role is not None or self.region is not None:
                raise ConfigurationError("role and region have no effect on an open client: pass them to open_kinesis")
        else:
            parse_stream(self.stream)
        if self.initial_position is not None:
            parse_position(self.initial_position, "initial_position")
        if self.role is not None:
            check_type("role", self.role, AssumedRole, "an AssumedRole, or None")
        for name in ("region", "stream_id"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name), "a text, or None")
        self.settings_over(ConsumerSettings())

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.stream.stream if isinstance(self.stream, KinesisClient) else parse_stream(self.stream)[0]

    @property
    def known_region(self) -> str | None:
        """The stream's region, if the stream itself says it."""
        return self.stream.region if isinstance(self.stream, KinesisClient) else parse_stream(self.stream)[1]

    def settings_over(self, common: ConsumerSettings) -> ConsumerSettings:
        """Return the settings of this stream. `common`: those of all streams. Raises ConfigurationError."""
        if self.settings is not None:
            check_type("settings", self.settings, ConsumerSettings, "a ConsumerSettings, or None")
        settings = common if self.settings is None else self.settings
        if self.initial_position is not None:
            settings = replace(settings, initial_position=self.initial_position)
        if self.consumer_arn is not None:
            settings = replace(settings, consumer_arn=self.consumer_arn, consumer_name=None, consumer_tags={})
        return settings


_OF_THE_BALANCE: Final = ("assignment", "balance")
"""The settings by which leases are balanced."""

StreamLike = str | KinesisClient | StreamConfig
"""A stream: its name or ARN, a client that `open_kinesis` made, or a StreamConfig."""

StreamTracker = Callable[[], Awaitable[Iterable[StreamLike]]]
"""Returns the streams to read from now on (KCL: MultiStreamTracker)."""


def region_of(streams: Iterable[StreamLike] | StreamTracker) -> str | None:
    """Return the region of all streams of a list, if their ARNs or clients name the same one: for what they share."""
    if not isinstance(streams, Sequence) or isinstance(streams, str):
        return None
    regions = {config.known_region for config in map(stream_config, streams)}
    return regions.pop() if len(regions) == 1 else None


def stream_config(stream: StreamLike) -> StreamConfig:
    """Return a stream as a StreamConfig. Raises ConfigurationError."""
    if isinstance(stream, StreamConfig):
        return stream
    if not isinstance(stream, str | KinesisClient):
        raise ConfigurationError(f"stream {shown(stream)}: expected a name, an ARN, a client or a StreamConfig")
    return StreamConfig(stream=stream)


def stream_configs(streams: Iterable[StreamLike]) -> dict[str, StreamConfig]:
    """Return streams by name, in their order. Raises ConfigurationError, also if two have the same name."""
    if isinstance(streams, str | bytes) or not isinstance(streams, Iterable):
        raise ConfigurationError(f"streams={shown(streams)}: expected several, such as ['orders', 'clicks']")
    configs: dict[str, StreamConfig] = {}
    for stream in streams:
        config = stream_config(stream)
        if config.name in configs:
            raise ConfigurationError(
                f"the stream {config.name!r} is there twice: records and leases carry its name alone, so that streams"
                " of the same name, as in two accounts, need a consumer each"
            )
        configs[config.name] = config
    return configs


def check_one_balance(configs: Iterable[StreamConfig], common: ConsumerSettings) -> None:
    """Check that the leases of all streams are balanced alike. `common`: the settings of all streams.

    The workers make one plan for all streams. Raises ConfigurationError, which names the streams and the setting.
    """
    settings = {config.name: config.settings_over(common) for config in configs}
    for name in _OF_THE_BALANCE:
        first, *others = settings or [""]
        for other in others:
            one, another = getattr(settings[first], name), getattr(settings[other], name)
            if one != another:
                raise ConfigurationError(
                    f"{name} of the stream {first!r} is {_named(one)}, and of {other!r} {_named(another)}: the leases"
                    f" of all streams are balanced as one, so give all of them the same {name}, or a consumer each"
                )


def _named(value: object) -> str:
    return str(getattr(value, "__name__", None) or shown(value))
