"""The embedded log, from the configuration."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import structlog
import trio
from opentelemetry.metrics import MeterProvider

from efo.exception_groups import collapse_groups
from efo_service.config.relay import RelaySettings
from efo_service.config.settings import Settings
from efo_service.log.consistency import check_topic
from efo_service.log.disk import DiskFiles
from efo_service.log.files import LogFiles
from efo_service.log.maintenance import LogMaintenance, MaintenanceReport
from efo_service.log.retention import RetentionRules
from efo_service.log.sink import LOCK_TIMEOUT, LogSink
from efo_service.log.state import LogState, disk_of
from efo_service.relay.destination import Destination, SinkReports, SinkRetries
from efo_service.relay.errors import SinkError, SinkFullError, SinkUnavailableError
from efo_service.relay.mapping import Extractor

RETRIES: Final = SinkRetries(
    errors=(SinkFullError, SinkUnavailableError), initial=1.0, limit=30.0, jitter=0.0, isolates=False
)
"""A full disk, or one that does not work.

Each try writes all records of the commit again, and maintenance, which frees space, needs the disk.
"""


@asynccontextmanager
async def open_log(
    settings: Settings, topic: str, extract: Extractor | None, reports: SinkReports, meters: MeterProvider
) -> AsyncIterator[Destination]:
    """Open a topic of the log as a destination, and run its maintenance. `meters`: gets what the topic holds.

    Raises LogIncompleteError if its catalog and its directories prove that records are missing, and SinkError.
    """
    # A worker that lost its lease holds the lock on the shard's partition until it notices, within the fail-over time.
    lock_timeout = max(LOCK_TIMEOUT, settings.leases.failover_seconds)
    root = settings.relay.log_root
    if not isinstance(root, Path):
        raise TypeError(f"{root} is not a directory")
    files = DiskFiles(root)
    await trio.to_thread.run_sync(check_topic, files, topic)
    async with maintained(files, topic, settings.relay, meters, disk=root) as state:
        sink = LogSink(files, topic, lock_timeout=lock_timeout, extract=extract)
        retries = replace(RETRIES, seconds=settings.relay.longest_retry)
        yield Destination(sink, retries, reports, problems=state.problems)


_COUNTS: Final = ("parts", "compacted", "expired", "freed", "held_back", "size", "segments")


@asynccontextmanager
async def maintained(
    files: LogFiles, topic: str, relay: RelaySettings, meters: MeterProvider, *, disk: Path | None = None
) -> AsyncIterator[LogState]:
    """Run maintenance of a topic of the log for the duration of the context: compaction and retention.

    It yields what the passes find, which `meters` get too. `disk`: whose space is looked at.
    """
    hours = relay.retention_hours
    rules = RetentionRules(None if hours is None else hours * 3600, relay.retention_bytes)
    maintenance = LogMaintenance(files, topic, rules)
    state = LogState(f"{files.name}/{topic}", topic, rules)
    state.measure(meters)

    def run_pass(check_cancelled: Callable[[], object]) -> MaintenanceReport | None:
        if disk is not None:
            with suppress(OSError):  # the directory does not exist yet
                state.measured(disk_of(disk), time.time())
        return maintenance.run(time.time(), check_cancelled)

    with collapse_groups():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_maintain, run_pass, state, topic, relay.maintenance_interval)
            yield state
            nursery.cancel_scope.cancel()


async def _maintain(
    run_pass: Callable[[Callable[[], object]], MaintenanceReport | None], state: LogState, topic: str, seconds: float
) -> None:
    """Run a pass every `seconds`. Errors are logged and the next pass retries, since the relay works without."""
    log = structlog.get_logger().bind(topic=topic)
    held: set[str] = set()
    was_filling = False
    while True:
        await trio.sleep(seconds)
        try:
            report = await trio.to_thread.run_sync(run_pass, trio.from_thread.check_cancelled)
        except SinkError as error:
            log.warning("maintenance_failed", error_type=error.error_type, message=str(error))
        else:
            if state.is_filling != was_filling:
                was_filling = state.is_filling
                log.warning(
                    "log_disk_filling" if was_filling else "log_disk_has_space", problems=list(state.problems())
                )
            if report is None:
                continue
            state.found(report, time.time())
            if report.has_changed_log:
                counts = asdict(report)
                log.info("maintenance_done", **{name: counts[name] for name in _COUNTS})
            if report.held_by.keys() - held:  # one line for each reader, until it reads on
                log.warning("retention_waits_for_readers", bytes=report.held_back, readers=dict(report.held_by))
            held = set(report.held_by)
