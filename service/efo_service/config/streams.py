"""The settings of all streams of a process: the tables [streams.NAME], merged over the top-level sections. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from efo.arn import parse_stream
from efo.errors import ConfigurationError
from efo_service.config.settings import KinesisSettings, ServiceSettings, Settings
from efo_service.object_store.url import StoreUrl

TABLE: Final = "streams"
"""The table of the file that has a table for each stream."""
SECTIONS: Final = tuple(name for name in Settings.model_fields if name != "service")
"""The sections that a stream may have. [service] is the process's."""
NAME_PATTERN: Final = "[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*"
"""The names of tables below [streams]: TOML takes them without quotes, and an environment variable can have them."""
MAX_LENGTH: Final = 64


class StreamSettings(Settings):
    """The settings of one stream. The environment is merged before: it may have layers below and above the file."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take the arguments as they are."""
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings of a process. `streams`: those of each stream by its name, in the order of the file, at least one.

    `has_tables`: whether the file has them in [streams]. Otherwise there is one, which has the stream's name.
    """

    streams: Mapping[str, Settings]
    has_tables: bool

    @classmethod
    def of(cls, settings: Settings) -> Configuration:
        """Return the configuration of a process with one stream."""
        return cls({settings.kinesis.stream_name: settings}, has_tables=False)

    @property
    def first(self) -> Settings:
        """The settings of the first stream. What belongs to the process is the same in all of them."""
        return next(iter(self.streams.values()))

    @property
    def service(self) -> ServiceSettings:
        """The settings of the process."""
        return self.first.service

    @property
    def secret_files(self) -> frozenset[Path]:
        """The files that secrets were read from."""
        return frozenset(path for settings in self.streams.values() for path in settings.secret_files)

    @property
    def worker_id(self) -> str | None:
        """The worker id, which is that of the process."""
        return self.first.leases.worker_id

    def one(self, name: str | None = None) -> Settings:
        """Return the settings of the stream `name`; None: of the only one. Raises ConfigurationError."""
        if name is not None and name in self.streams:
            return self.streams[name]
        names = ", ".join(self.streams)
        if name is not None:
            raise ConfigurationError(f"--stream {name}: the configuration has no such stream: choose one of {names}")
        if len(self.streams) > 1:
            raise ConfigurationError(
                f"the configuration has {len(self.streams)} streams: choose one with --stream: {names}"
            )
        return self.first

    def in_process(self, service: ServiceSettings, worker_id: str | None) -> Configuration:
        """Return the same streams in a process with these settings and this worker id."""
        return Configuration(
            {
                name: settings.model_copy(
                    update={
                        "service": service,
                        "leases": settings.leases.model_copy(update={"worker_id": worker_id}),
                    }
                )
                for name, settings in self.streams.items()
            },
            self.has_tables,
        )


def merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of `low` with those of `high` over them, key by key."""
    tables = dict(low)
    for name, value in high.items():
        below = tables.get(name)
        tables[name] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return tables


def variable_part(name: str) -> str:
    """Return how a stream is named in an environment variable: a shell allows no hyphen there."""
    return name.upper().replace("-", "_")


def table_problems(tables: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong with the names in [streams], before the settings are looked at: where, and what to do."""
    if not isinstance(tables, dict):
        yield (TABLE,), f"{TABLE} is a table of tables: write [{TABLE}.NAME] for each stream"
        return
    if not tables:
        yield (TABLE,), f"names no stream: write [{TABLE}.NAME] for each stream, or remove it"
    parts: dict[str, str] = {}
    for name, table in tables.items():
        if not (re.fullmatch(NAME_PATTERN, name) and len(name) <= MAX_LENGTH):
            yield (TABLE, name), "not a name of a stream: use letters, digits, and single '_' or '-' between them"
        if (other := parts.setdefault(variable_part(name), name)) != name:
            yield (TABLE, name), f"differs from {other!r} only in case or hyphens: choose another name"
        yield from _section_problems(name, table)


def _section_problems(name: str, table: object) -> Iterator[tuple[tuple[str, ...], str]]:
    if not isinstance(table, dict):
        yield (TABLE, name), f"{name} is a table: write [{TABLE}.{name}.kinesis] and its keys below"
        return
    for section, values in table.items():
        if section == "service":
            yield (TABLE, name, section), "these settings are the process's: move them to [service]"
        elif section in SECTIONS and not isinstance(values, dict):
            yield (TABLE, name, section), f"{section} is a table: write [{TABLE}.{name}.{section}] and its keys below"
        elif section == "leases" and "worker_id" in values:
            yield (TABLE, name, section, "worker_id"), "the worker id is the process's: move it to [leases]"


def clashes(streams: Mapping[str, Settings]) -> Iterator[str]:
    """Yield what is wrong with the streams of one process together: which streams, what they share, what to do."""
    for (name, one), (other_name, other) in combinations(streams.items(), 2):
        for problem in clashes_of(one, other):
            yield f"[streams.{name}] and [streams.{other_name}]: {problem}"


def clashes_of(one: Settings, other: Settings) -> Iterator[str]:
    """Yield why two streams cannot be read by one process at the same time."""
    application, stream = one.consumer.application, one.kinesis.stream_name
    if (application, stream) == (other.consumer.application, other.kinesis.stream_name):
        yield (
            f"both are the application {application!r} on the stream {stream!r}, so that their leases and metrics are "
            "the same: choose another [consumer] application for one of them"
        )
    elif (name := one.consumer.fan_out_consumer) == other.consumer.fan_out_consumer and _may_be_same(
        one.kinesis, other.kinesis
    ):
        yield (
            f"both read the stream {stream!r} as the fan-out consumer {name!r}, and would take "
            "its subscriptions from each other: choose another [consumer] consumer_name for one of them"
        )
    if _share_lease_table(one, other):
        yield (
            f"both keep their leases in the DynamoDB table {_table_name(one)!r}, where all shards look alike: "
            "choose another [leases.dynamodb] table for one of them, or set stream_id for both, as multi-stream "
            "applications of KCL do"
        )
    if (namespace := _namespace(one)) is not None and namespace == _namespace(other):
        yield (
            f"both publish to the CloudWatch namespace {namespace[0]!r}, where shards of the same id are one metric: "
            "choose another [cloudwatch] namespace for one of them"
        )
    yield from _shared_outputs(one, other)


def _namespace(settings: Settings) -> tuple[str | None, ...] | None:
    """Return where the metrics of KCL go, None if they are not published."""
    kinesis, chosen = settings.kinesis, settings.cloudwatch
    if chosen.level == "none":
        return None
    region = chosen.region or kinesis.region or parse_stream(kinesis.stream)[1]
    return (
        chosen.namespace or settings.consumer.application,
        region,
        chosen.endpoint_url,
        chosen.profile or kinesis.profile,
    )


def _may_be_same(one: KinesisSettings, other: KinesisSettings) -> bool:
    """Return whether two streams may be one: nothing that is known tells them apart."""
    (name, region), (other_name, other_region) = parse_stream(one.stream), parse_stream(other.stream)
    regions, accounts = {one.region or region, other.region or other_region}, {_account(one), _account(other)}
    return (
        name == other_name
        and one.endpoint_url == other.endpoint_url
        and (None in regions or len(regions) == 1)
        and (None in accounts or len(accounts) == 1)
    )


def _account(kinesis: KinesisSettings) -> str | None:
    if parse_stream(kinesis.stream)[1] is not None:
        return kinesis.stream.split(":")[4]
    return None if kinesis.role_arn is None else kinesis.role_arn.split(":")[4]


def _table_name(settings: Settings) -> str:
    return settings.leases.dynamodb.table or settings.consumer.application


def _share_lease_table(one: Settings, other: Settings) -> bool:
    """Return whether the leases of both would be the same rows of DynamoDB. Other stores keep streams apart."""
    ids = {one.leases.dynamodb.stream_id, other.leases.dynamodb.stream_id}
    return (
        one.leases.store == other.leases.store == "dynamodb"
        and _lease_table(one) == _lease_table(other)
        and (None in ids or len(ids) == 1)
    )


def _lease_table(settings: Settings) -> tuple[str | None, ...]:
    kinesis, chosen = settings.kinesis, settings.leases.dynamodb
    region = chosen.region or kinesis.region or parse_stream(kinesis.stream)[1]
    return _table_name(settings), region, chosen.endpoint_url, chosen.profile or kinesis.profile


def _shared_outputs(one: Settings, other: Settings) -> Iterator[str]:
    written, dead_letters = _outputs(one)
    other_written, other_dead_letters = _outputs(other)
    # Kafka's topic of dead letters may be shared: each names its stream. A topic of the log has one stream.
    shared = (written & other_written) | (written & other_dead_letters) | (dead_letters & other_written)
    shared |= {output for output in dead_letters & other_dead_letters if output[0] == "log"}
    for output in sorted(shared, key=str):
        yield _REPORTED[output[0]].format(*output)


_REPORTED: Final = {
    "log": "both write the topic {2!r} of the log {1}, which belongs to one stream: choose another [relay] topic,"
    " dead_letters or directory for one of them",
    "jsonl": "both write the JSON lines to {1}: choose another [relay] jsonl_file for one of them",
    "kafka": "both write the topic {2!r} of the Kafka cluster {1}: choose another [relay.kafka] topic for one of them,"
    " such as one with {{stream}}",
    "plugin": "both write the topic {2!r} of the sink {1!r} with the same options: choose another [relay] topic for one"
    " of them",
}


def _outputs(settings: Settings) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
    """Return where records go, and where dead letters go."""
    relay = settings.relay
    root = relay.log_root
    log = ("log", str(root) if isinstance(root, StoreUrl) else _normal(root))
    brokers = ("kafka", relay.kafka.bootstrap_servers)
    written: tuple[str, ...]
    dead_letters = log
    match relay.sink:
        case "log":
            written = (*log, settings.topic)
        case "jsonl":
            written = ("jsonl", "stdout" if str(relay.jsonl_file) == "-" else _normal(relay.jsonl_file))
        case "kafka":
            written, dead_letters = (*brokers, settings.topic), brokers
        case other:
            written = ("plugin", other, settings.topic, *(f"{k}={v}" for k, v in sorted(relay.options.items())))
    return {written}, set() if relay.dead_letters is None else {(*dead_letters, relay.dead_letters)}


def _normal(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - unlike Path.resolve, it looks at no file
