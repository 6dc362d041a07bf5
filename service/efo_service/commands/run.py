"""`efo run`: runs the service."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import structlog
import trio
from cyclopts import Parameter

from efo.consumer.processes import usable_cores
from efo.errors import ConfigurationError, EfoError, error_type_of
from efo_service import app
from efo_service.commands.options import ConfigFile
from efo_service.config.loading import load
from efo_service.config.settings import Settings
from efo_service.exit_codes import Exit, code_of
from efo_service.factories.sinks import writes_to_stdout
from efo_service.memory import settle_memory
from efo_service.telemetry import logs
from efo_service.telemetry.sdk import telemetry
from efo_service.workers.identity import with_worker_id
from efo_service.workers.process import efo_command
from efo_service.workers.supervisor import SUPERVISED, Supervisor, drain_when_orphaned


def _check_workers(_type: object, workers: object) -> None:
    if isinstance(workers, int) and workers < 1:
        raise ValueError('Must be 1 or more, or "auto".')  # cyclopts reports it with the option


def run(
    *,
    config: ConfigFile = None,
    workers: Annotated[
        int | Literal["auto"],
        Parameter(
            validator=_check_workers,
            help="Number of processes that share the shards (docs/leases.md); auto: one for each core.",
        ),
    ] = 1,
) -> Exit:
    """Relay a Kinesis stream into the sink of [relay], until SIGTERM or Ctrl-C."""
    count = usable_cores() if workers == "auto" else workers
    settings = load(config)
    os.umask(settings.service.umask)
    logs.name_worker(settings.leases.worker_id)
    logs.configure(settings.service.log_level, sys.stderr if writes_to_stdout(settings.relay) else sys.stdout)
    with _failure_logged(), with_worker_id(settings) as settings:
        logs.name_worker(settings.leases.worker_id)
        if count > 1:
            return _supervise(settings, config, count)
        settle_memory()
        if os.environ.get(SUPERVISED):
            threading.Thread(target=drain_when_orphaned, daemon=True).start()
        with telemetry(settings.leases.worker_id or "") as sdk:
            trio.run(partial(app.run, settings, sdk))
    return Exit.OK


def _supervise(settings: Settings, config: Path | None, workers: int) -> Exit:
    if settings.relay.sink == "jsonl":
        raise ConfigurationError(
            f'--workers {workers}: [relay] sink = "jsonl" writes one file from one process: run one worker, or use '
            "another sink"
        )
    arguments = [] if config is None else ["--config", str(config)]
    return trio.run(Supervisor(settings, efo_command("run", *arguments), workers).run)


@contextmanager
def _failure_logged() -> Iterator[None]:
    """Log why the service failed. The message of an EfoError is enough; other errors are logged with a traceback."""
    try:
        yield
    except Exception as error:
        structlog.get_logger().error(
            "failed",
            error_type=error_type_of(error),
            message=str(error),
            exit_code=int(code_of(error)),
            exc_info=not isinstance(error, EfoError),
        )
        raise
