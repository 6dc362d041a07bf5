"""What a change of the configuration means for the streams that run, and what it needs a restart of efo for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from efo_service.config.settings import ServiceSettings, Settings
from efo_service.config.streams import Configuration

_CHANGEABLE: Final = frozenset({"log_level", "token", "read_token"})
"""The settings of [service] that change while the process runs."""
_NOT_RUNNING: Final = frozenset({"service", "pipeline"})
"""The sections whose change restarts no stream: [service] is the process's, and `efo pipeline` reads the other."""
_RUNNING: Final = tuple(name for name in Settings.model_fields if name not in _NOT_RUNNING)


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be done. The names of streams, each in one of the first four.

    `process`: settings of the process that differ, and change only when it is started again. `refused`: why nothing may
    be done, None if it may. `wanted`: what to run from now on, with the settings of the running process.
    `service`: those of the process that were found.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    process: tuple[str, ...]
    refused: str | None
    wanted: Configuration
    service: ServiceSettings


def find_changes(running: Configuration, found: Configuration) -> Changes:
    """Return what leads from the running configuration to the one that was found."""
    wanted = found.in_process(running.service, running.worker_id)
    kept = [name for name in wanted.streams if name in running.streams]
    same = {name for name in kept if _is_same(running.streams[name], wanted.streams[name])}
    return Changes(
        added=tuple(name for name in wanted.streams if name not in running.streams),
        removed=tuple(name for name in running.streams if name not in wanted.streams),
        changed=tuple(name for name in kept if name not in same),
        unchanged=tuple(name for name in kept if name in same),
        process=_process_settings(running, found),
        refused=_refusal(running, found),
        wanted=wanted,
        service=found.service,
    )


def _is_same(one: Settings, other: Settings) -> bool:
    return all(getattr(one, section) == getattr(other, section) for section in _RUNNING)


def _process_settings(running: Configuration, found: Configuration) -> tuple[str, ...]:
    """Return the settings of the process that differ."""
    differing = [
        f"[service] {key}"
        for key in ServiceSettings.model_fields
        if key not in _CHANGEABLE and getattr(running.service, key) != getattr(found.service, key)
    ]
    if found.worker_id not in {None, running.worker_id}:
        differing.append("[leases] worker_id")
    return tuple(differing)


def _refusal(running: Configuration, found: Configuration) -> str | None:
    if running.has_tables != found.has_tables:
        change = "has no [streams] any more" if running.has_tables else "has [streams] now"
        return f"the configuration {change}: start efo again"
    if any(map(_is_stdout, found.streams.values())) and not any(map(_is_stdout, running.streams.values())):
        return "records would be written to stdout, where efo's log is: start efo again, or choose another jsonl_file"
    return None


def _is_stdout(settings: Settings) -> bool:
    return settings.relay.writes_to_stdout
