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
from efo_service.streams.keeper import StreamKeeper
from efo_service.streams.page import StreamsPage
from efo_service.streams.parts import PARTS, Parts
from efo_service.streams.reload import watch_reloads
from efo_service.streams.report import StreamsReport
from efo_service.streams.run import StreamRun
from efo_service.telemetry.sdk import Telemetry
from efo_service.version import VERSION
from efo_service.web.app import create_app
from efo_service.web.page_routes import Page
from efo_service.web.readiness import measure_readiness
from efo_service.web.security.access import Access
from efo_service.web.security.guard import Guard
from efo_service.web.server import serve


async def run(
    configuration: Configuration,
    telemetry: Telemetry,
    *,
    parts: Parts = PARTS,
    reload: Callable[[], Configuration] | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the service until SIGTERM or SIGINT. `task_status` gets the URL of health and metrics.

    `reload`: reads the configuration again at SIGHUP; None: that signal keeps its meaning. Raises EfoError if something
    that the service needs is unavailable, DrainDeadlineError if the drain was cut short.
    """
    log = structlog.get_logger()
    service = configuration.service
    keeper = StreamKeeper(configuration, partial(StreamRun, telemetry=telemetry, parts=parts))
    report = StreamsReport(keeper)
    measure_readiness(report.readiness, telemetry.meter_provider)
    drain = Drain(service.drain_seconds)
    with collapse_groups():
        async with trio.open_nursery() as outer:
            await outer.start(drain.watch, keeper.start_draining)
            if reload is not None:
                await outer.start(watch_reloads, keeper, reload)
            page = StreamsPage(keeper)
            app = create_app(
                report, telemetry.registry, report.status, Page(page.snapshot, page.perform), guard_of(service)
            )
            url = await outer.start(partial(serve, app, service.host, service.port, tls=service.tls))
            log.info("started", version=VERSION, url=url, **_names(configuration))
            task_status.started(url)
            with drain.scope:
                drain.finish_with(keeper.drain)
                await keeper.run()
            outer.cancel_scope.cancel()
    drain.check()
    log.info("stopped")


def guard_of(settings: ServiceSettings) -> Guard:
    """Return who may read the status and act."""
    return Guard(Access(settings.token.get_secret_value() if settings.token else None))


def _names(configuration: Configuration) -> dict[str, object]:
    if configuration.has_tables:
        return {"streams": list(configuration.streams)}
    return {"stream": configuration.first.kinesis.stream, "topic": configuration.first.topic}
