"""The service: consumers that relay streams into sinks, with health and metrics over HTTP.

    web, signals            outermost: they run until the last record is committed
      streams               each in a task of its own (`efo_service.streams`)
        shards              each relayed into the sink; the first signal asks them to finish

SIGTERM or SIGINT: not ready -> shards finish the records they hold -> last commit, last checkpoint -> leases
released -> connections closed -> web closed -> telemetry flushed (by the caller) -> return.
SIGHUP: the configuration is read again; streams that differ are added, changed and removed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog
import trio

from efo.exception_groups import collapse_groups
from efo_service.config.settings import ServiceSettings
from efo_service.config.streams import Configuration
from efo_service.drain import Drain
from efo_service.streams.parts import PARTS, Parts
from efo_service.streams.reload import Reloading, watch_reloads, watch_secrets
from efo_service.streams.report import StreamsPage, StreamsReport
from efo_service.streams.run import StreamRun
from efo_service.streams.supervisor import StreamSupervisor
from efo_service.telemetry.logs import LevelName, set_level
from efo_service.telemetry.sdk import Telemetry
from efo_service.version import VERSION, commit
from efo_service.web.app import create_app
from efo_service.web.health import log_readiness, measure_readiness
from efo_service.web.page_routes import Page
from efo_service.web.process_problems import ProcessProblems
from efo_service.web.security.access import Access
from efo_service.web.security.guard import Guard
from efo_service.web.server import serve


async def run(
    configuration: Configuration,
    telemetry: Telemetry,
    *,
    parts: Parts = PARTS,
    reload: Callable[[], Configuration] | None = None,
    on_hangup: bool = True,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the service until SIGTERM or SIGINT. `task_status` gets the URL of health and metrics.

    `reload`: reads the configuration again, when a file of a secret changes and, if `on_hangup`, at SIGHUP. Raises
    EfoError if something that the service needs is unavailable, DrainDeadlineError if the drain was cut short.
    """
    log = structlog.get_logger()
    service = configuration.service
    supervisor = StreamSupervisor(configuration, partial(StreamRun, telemetry=telemetry, parts=parts))
    problems = ProcessProblems()
    problems.measure(telemetry.meter_provider)
    report = StreamsReport(supervisor, problems)
    measure_readiness(report.readiness, telemetry.meter_provider)
    guard = guard_of(service)
    drain = Drain(service.drain_seconds)
    with collapse_groups():
        async with trio.open_nursery() as outer:
            await outer.start(drain.watch, supervisor.start_draining)
            if reload is not None:
                reloading = Reloading(supervisor, reload, problems, partial(take_tokens, guard))
                outer.start_soon(watch_secrets, reloading, lambda: supervisor.configuration.secret_files)
                if on_hangup:
                    await outer.start(watch_reloads, reloading)
            page = StreamsPage(supervisor, problems)
            app = create_app(
                report, telemetry.registry, report.status, Page(page.snapshot, page.perform, _set_level), guard
            )
            serving = partial(serve, app, service.host, service.port, tls=service.tls, problems=problems)
            url = await outer.start(serving)
            log.info("started", version=VERSION, commit=commit(), url=url, **_names(configuration))
            task_status.started(url)
            outer.start_soon(log_readiness, report.obstacles, lambda: supervisor.is_draining)
            with drain.scope:
                drain.finish_with(supervisor.drain)
                await supervisor.run()
            outer.cancel_scope.cancel()
    drain.check()
    log.info("stopped")


def guard_of(settings: ServiceSettings) -> Guard:
    """Return who may read the status and act."""
    return Guard(Access(*settings.tokens))


def take_tokens(guard: Guard, settings: ServiceSettings) -> None:
    """Let the tokens of other settings in from now on, and those before no more."""
    guard.access = Access(*settings.tokens)


async def _set_level(level: LevelName) -> None:
    set_level(level)


def _names(configuration: Configuration) -> dict[str, object]:
    if configuration.has_tables:
        return {"streams": list(configuration.streams)}
    return {"stream": configuration.first.kinesis.stream, "topic": configuration.first.topic}
