"""`efo run`: runs the service."""

from __future__ import annotations

import os
import signal
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
from efo.third_party_errors import reason_of
from efo_service import app
from efo_service.commands.options import ConfigFile
from efo_service.config.loading import load_all
from efo_service.config.streams import Configuration
from efo_service.exit_codes import Exit, code_of
from efo_service.memory import settle_memory
from efo_service.telemetry import logs
from efo_service.telemetry.sdk import telemetry
from efo_service.workers.process import efo_command
from efo_service.workers.supervisor import SUPERVISED, Supervisor, drain_when_orphaned, with_worker_id


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
    """Relay Kinesis streams into the sink of [relay], until SIGTERM or Ctrl-C."""
    count = usable_cores() if workers == "auto" else workers
    configuration = load_all(config)
    service = configuration.service
    os.umask(service.umask)
    logs.name_worker(configuration.worker_id)
    to_stdout = any(settings.relay.writes_to_stdout for settings in configuration.streams.values())
    logs.configure(service.log_level, sys.stderr if to_stdout else sys.stdout)
    with failure_logged(), with_worker_id(configuration) as configuration, _reloadable(config):
        logs.name_worker(configuration.worker_id)
        if count > 1:
            return _supervise(configuration, config, count)
        settle_memory()
        is_supervised = bool(os.environ.get(SUPERVISED))
        if is_supervised:
            threading.Thread(target=drain_when_orphaned, daemon=True).start()
        reload = partial(_load_again, config, is_one_of_several=is_supervised)
        with telemetry(configuration.worker_id or "") as sdk:
            trio.run(partial(app.run, configuration, sdk, reload=reload, on_hangup=config is not None))
    return Exit.OK


def _supervise(configuration: Configuration, config: Path | None, workers: int) -> Exit:
    _refuse_files_of_one_process(configuration, f"--workers {workers}")
    arguments = [] if config is None else ["--config", str(config)]
    command = efo_command("run", *arguments)
    load = partial(load_all, config)
    supervisor = Supervisor(configuration, command, workers, forwards_reloads=config is not None, load=load)
    return trio.run(supervisor.run)


def _load_again(config: Path | None, *, is_one_of_several: bool) -> Configuration:
    configuration = load_all(config)
    if is_one_of_several:
        _refuse_files_of_one_process(configuration, "--workers")
    return configuration


def _refuse_files_of_one_process(configuration: Configuration, option: str) -> None:
    if any(settings.relay.sink == "jsonl" for settings in configuration.streams.values()):
        raise ConfigurationError(
            f'{option}: [relay] sink = "jsonl" writes one file from one process: run one worker, or use another sink'
        )


@contextmanager
def _reloadable(config: Path | None) -> Iterator[None]:
    """Keep SIGHUP from ending a process that is still starting. Without a file there is nothing to read again."""
    if config is None:
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@contextmanager
def failure_logged() -> Iterator[None]:
    """Log why the service failed. The message of an EfoError is enough; other errors are logged with a traceback."""
    try:
        yield
    except Exception as error:
        structlog.get_logger().error(
            "failed",
            error_type=error_type_of(error),
            message=reason_of(error),
            exit_code=int(code_of(error)),
            exc_info=not isinstance(error, EfoError),
        )
        raise
