"""`efo run`: the service."""

from __future__ import annotations

import sys
from functools import partial

import structlog
import trio

from efo.errors import EfoError
from service import app, logs
from service.commands.options import ConfigFile
from service.config_file import load
from service.exits import code_of
from service.observability import telemetry
from service.sinks import writes_to_stdout


def run(*, config: ConfigFile = None) -> None:
    """Relay a Kinesis stream into the log, until SIGTERM or Ctrl-C."""
    settings = load(config)
    logs.configure(settings.service.log_level, sys.stderr if writes_to_stdout(settings.relay) else sys.stdout)
    with telemetry(settings.leases.worker_id) as measured:
        try:
            trio.run(partial(app.run, settings, measured))
        except Exception as error:
            # An error that efo raises on purpose explains itself; any other is a defect, and needs its traceback.
            structlog.get_logger().error(
                "failed",
                error_type=getattr(error, "error_type", type(error).__name__),
                message=str(error),
                exit_code=int(code_of(error)),
                exc_info=not isinstance(error, EfoError),
            )
            raise
