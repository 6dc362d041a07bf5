"""Sinks of other packages: entry points of the group `efo.sinks`. docs/sinks.md has the recipe.

An entry point names an `OpenSink`. `[relay] sink` chooses it by its name, `[relay.options]` are its options.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final, Protocol

from efo.errors import ConfigurationError, class_name_of
from efo_service.relay.failures import defects
from efo_service.relay.mapping import Extractor
from efo_service.relay.plugin_sink import open_checked
from efo_service.relay.sink import Sink

GROUP: Final = "efo.sinks"
BUILT_IN: Final = ("log", "jsonl", "kafka")
"""The sinks that come with efo. An entry point cannot take their names."""

Options = Mapping[str, str | int | float | bool]
"""The content of [relay.options]."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What efo tells a sink. `stream`, `application`: what is relayed. `topic`: where to write it, of [relay] topic.

    `worker_id`: of this process, unique within the application. `extract`: the function of [relay] trace_extractor, for
    `RecordMapping`.
    """

    stream: str
    application: str
    topic: str
    worker_id: str
    extract: Extractor | None = None


class OpenSink(Protocol):
    """A function of an entry point. It may have an attribute `owns_positions`, see `owns_positions`."""

    def __call__(self, options: Options, context: SinkContext) -> AbstractAsyncContextManager[Sink]:
        """Return the sink, to be entered once for each run of a stream.

        Raises ConfigurationError, in the call, for wrong options. Entering raises SinkError or another EfoError.
        """
        ...


def installed_sinks() -> tuple[str, ...]:
    """Return the names of all sinks: those of efo, then those of other packages."""
    return (*BUILT_IN, *sorted({point.name for point in entry_points(group=GROUP)} - set(BUILT_IN)))


def check_sink(name: str) -> None:
    """Raise ConfigurationError, with the names of the installed sinks, if there is none of this name, or several."""
    if name not in BUILT_IN:
        _find(name)


def load_sink(name: str) -> OpenSink:
    """Return the function of a sink of another package. Raises ConfigurationError."""
    point = _find(name)
    try:
        found = point.load()
    except Exception as error:
        # Without the text of any other exception: the package may have read credentials.
        why = str(error) if isinstance(error, ImportError | AttributeError) else class_name_of(error)
        raise ConfigurationError(f"the sink {name!r} of {_package(point)} cannot be loaded: {why}") from error
    if not callable(found):
        raise ConfigurationError(f"the sink {name!r} of {_package(point)} is no function: see docs/sinks.md")
    sink: OpenSink = found
    return sink


def open_plugin(name: str, options: Options, context: SinkContext) -> AbstractAsyncContextManager[Sink]:
    """Return a sink of another package, not entered. Raises EfoError."""
    open_sink = load_sink(name)
    with defects(f"the stream {context.stream}"):
        opening: object = open_sink(options, context)
    if isinstance(opening, AbstractAsyncContextManager):
        return open_checked(opening, name, context.stream)
    if isinstance(opening, Coroutine):
        opening.close()  # it is never awaited
    raise ConfigurationError(
        f"the sink {name!r} of {_package(_find(name))} returned no async context manager but a"
        f" {type(opening).__name__}: is @asynccontextmanager missing? See docs/sinks.md"
    )


def owns_positions(name: str) -> bool:
    """Return whether a sink of another package keeps the positions of shards itself, which then win (rule R12)."""
    return bool(getattr(load_sink(name), "owns_positions", False))


def _find(name: str) -> EntryPoint:
    found = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not found:
        raise ConfigurationError(
            f"{name!r} is not an installed sink: install its package, or choose one of {', '.join(installed_sinks())}"
        )
    if len(found) > 1:
        raise ConfigurationError(f"{name!r} is a sink of several packages: {', '.join(map(_package, found.values()))}")
    return next(iter(found.values()))


def _package(point: EntryPoint) -> str:
    return f"the package {point.dist.name}" if point.dist is not None else point.value
