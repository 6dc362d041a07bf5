"""The settings of all streams of a process: the tables [streams.NAME], merged over the top-level sections. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from efo.errors import ConfigurationError
from efo_service.config.settings import ServiceSettings, Settings

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
