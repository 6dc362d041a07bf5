"""SIGHUP: reads the configuration again, and changes the streams that differ. The others notice nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable

import structlog
import trio

from efo.errors import EfoError, error_type_of
from efo_service.config.streams import Configuration
from efo_service.streams.changes import find_changes
from efo_service.streams.keeper import StreamKeeper


async def watch_reloads(
    keeper: StreamKeeper,
    load: Callable[[], Configuration],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Reload with each SIGHUP. Runs until cancelled."""
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            await reload(keeper, load)


async def reload(keeper: StreamKeeper, load: Callable[[], Configuration]) -> None:
    """Read the configuration again, and change the streams. A wrong configuration changes nothing, and is logged."""
    log = structlog.get_logger()
    try:
        found = await trio.to_thread.run_sync(load)
    except Exception as error:  # whatever is wrong with the file, the streams go on
        log.error(  # noqa: TRY400 - the message of an EfoError is enough
            "reload_failed",
            error_type=error_type_of(error),
            message=str(error),
            exc_info=not isinstance(error, EfoError),
        )
        return
    changes = find_changes(keeper.configuration, found)
    if keeper.is_draining:
        log.info("reload_ignored", message="the service is draining")
        return
    if changes.refused is not None:
        log.error("reload_failed", error_type="configuration", message=changes.refused)
        return
    if changes.process:
        log.warning(
            "restart_needed", settings=list(changes.process), message="these settings change when efo is started again"
        )
    keeper.apply(changes)
    log.info(
        "reloaded",
        added=list(changes.added),
        removed=list(changes.removed),
        changed=list(changes.changed),
        unchanged=list(changes.unchanged),
    )
