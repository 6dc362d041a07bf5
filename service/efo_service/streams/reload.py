"""SIGHUP: reads the configuration again, and changes the streams that differ. The others notice nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import structlog
import trio

from efo.errors import EfoError, error_type_of
from efo.third_party_errors import reason_of
from efo_service.config.settings import ServiceSettings
from efo_service.config.streams import Configuration
from efo_service.streams.changes import Changes, find_changes
from efo_service.streams.supervisor import StreamSupervisor
from efo_service.telemetry.logs import set_level
from efo_service.web.process_problems import ProcessProblems
from efo_service.web.renewal import version_of

SECRETS_EVERY: Final = 5.0
"""Seconds between two looks at the files of secrets."""


class Reloading:
    """Reads the configuration again. `load`: returns it. `problems`: gets what was refused, and what needs a restart.

    `take`: gets the settings of the process that may change while it runs.
    """

    def __init__(
        self,
        supervisor: StreamSupervisor,
        load: Callable[[], Configuration],
        problems: ProcessProblems | None = None,
        take: Callable[[ServiceSettings], object] = lambda _: None,
    ) -> None:
        self._supervisor = supervisor
        self._load = load
        self._problems = problems or ProcessProblems()
        self._take = take
        self._level = supervisor.configuration.service.log_level
        self._log = structlog.get_logger()

    async def reload(self) -> None:
        """Read the configuration, and change the streams. A wrong configuration changes nothing, and is a problem."""
        try:
            found = await trio.to_thread.run_sync(self._load)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the file, the streams go on
            self._refuse(error_type_of(error), reason_of(error), exc_info=not isinstance(error, EfoError))
            return
        changes = find_changes(self._supervisor.configuration, found)
        if self._supervisor.is_draining:
            self._log.info("reload_ignored", message="the service is draining")
        elif changes.refused is not None:
            self._refuse("configuration", changes.refused)
        else:
            self._apply(changes)

    def _refuse(self, error_type: str, message: str, *, exc_info: bool = False) -> None:
        self._log.error("reload_failed", error_type=error_type, message=message, exc_info=exc_info)
        self._problems.began(
            "reload_refused",
            f"the configuration was read again and refused, so the one before is still in use: {message}",
        )

    def _apply(self, changes: Changes) -> None:
        self._problems.ended("reload_refused")
        self._take(changes.service)
        if changes.service.log_level != self._level:  # else that of `efo log-level` stays
            self._level = changes.service.log_level
            set_level(self._level)
        if changes.process:
            message = "these settings change when efo is started again"
            self._log.warning("restart_needed", settings=list(changes.process), message=message)
            self._problems.began("restart_needed", f"{', '.join(changes.process)}: {message}")
        else:
            self._problems.ended("restart_needed")
        self._supervisor.apply(changes)
        self._log.info(
            "reloaded",
            added=list(changes.added),
            removed=list(changes.removed),
            changed=list(changes.changed),
            unchanged=list(changes.unchanged),
        )


async def watch_secrets(reloading: Reloading, files: Callable[[], Collection[Path]]) -> None:
    """Reload when a file that has a secret changes. Runs until cancelled. `files`: returns those that are read now."""
    known = {path: version_of(path) for path in files()}
    while True:
        await trio.sleep(SECRETS_EVERY)
        found = {path: version_of(path) for path in files()}
        if changed := [str(path) for path, version in found.items() if known.get(path, version) != version]:
            structlog.get_logger().info("secret_changed", files=changed)
            await reloading.reload()
        known = found


async def watch_reloads(reloading: Reloading, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Reload with each SIGHUP. Runs until cancelled."""
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            await reloading.reload()
