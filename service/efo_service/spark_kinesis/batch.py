"""Reads a stream once, between two times: through a log and a fan-out consumer that only this read has.

The position of a log only moves forward, so a read of the past cannot share the log of a query.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import SparkFiles
from pyspark.sql.datasource import InputPartition

from efo.errors import ConfigurationError
from efo_service.config.settings import Settings
from efo_service.object_store.url import StoreUrl, log_root
from efo_service.spark.errors import one_line_errors
from efo_service.spark.source.log_reader import LogReader
from efo_service.spark.source.planner import GrowingPlanner
from efo_service.spark_kinesis.relay_thread import RelayThread

if TYPE_CHECKING:
    from efo_service.spark_kinesis.options import KinesisOptions

_POLL: Final = 0.5


class KinesisReader(LogReader):
    """Reads a stream from startingTimestamp (default: its oldest record) to endingTimestamp (default: now)."""

    def __init__(self, options: KinesisOptions) -> None:
        name = f"batch-{secrets.token_hex(4)}"
        directory = _parent(options.log) / f"efo-{name}"
        settings, reading, until = options.for_batch(directory, name, time.time())
        super().__init__(reading, GrowingPlanner)
        self._settings: Settings | None = settings
        self._until = until if reading.ending is not None else None

    def __getstate__(self) -> dict[str, object]:
        """Leave out what executors do not need: they read the log."""
        return {**self.__dict__, "_settings": None}

    @one_line_errors()
    def partitions(self) -> Sequence[InputPartition]:
        """Relay the records into the log, and plan the tasks. Raises EfoError."""
        if self._settings is None:
            raise RuntimeError("tasks are planned in the process that has the settings")
        _relay(self._settings, self._until)
        return super().partitions()


def _parent(log: str | None) -> Path:
    """Return where the temporary log is made: below `log`, otherwise where Spark deletes it with the session."""
    if log is None:
        # None in a process that Spark has not set up.
        return Path(SparkFiles._root_directory or tempfile.gettempdir())  # noqa: SLF001 - the function starts a session
    root = log_root(log, {})
    if isinstance(root, StoreUrl):
        raise ConfigurationError(f"log={log}: the temporary log of a read needs a directory that executors can read")
    return root


def _relay(settings: Settings, until: float | None) -> None:
    """Relay what was in the stream at a time. Its consumer is ephemeral: it ends with the relay (rule R13)."""
    relay = RelayThread(settings, settings.leases.path.parent)
    try:
        relay.start()
        catching_up = relay.catch_up(until)
        while not catching_up.done.wait(_POLL):
            relay.check()
    finally:
        relay.stop()
