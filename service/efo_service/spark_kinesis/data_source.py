# ruff: noqa: N802 - the names are those of the Python Data Source API
"""The PySpark data source that reads Kinesis without a service: format("kinesis").

    spark.readStream.format("kinesis").option("stream", "orders").option("log", "/path/of/the/log").load()

The process that plans a query relays the stream into the log, in a thread, with the code of `efo run`. Executors read
the log as format("efo") does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from efo.errors import ConfigurationError, EfoError
from efo_service.spark.errors import one_line_errors
from efo_service.spark.source.api import ReadLimit, check_version
from efo_service.spark.source.bounds import LATEST, AtTime
from efo_service.spark.source.data_source import LogStreamReader
from efo_service.spark.source.log_data_source import LogDataSource
from efo_service.spark.source.offsets import TopicPartition, lag, to_json
from efo_service.spark.source.options import Options
from efo_service.spark.source.planner import GrowingPlanner, Planner

if TYPE_CHECKING:
    from efo_service.config.settings import Settings
    from efo_service.spark_kinesis.options import KinesisOptions
    from efo_service.spark_kinesis.relay_thread import CatchingUp, RelayThread
    from efo_service.spark_kinesis.writing import KinesisWriter

_POLL: Final = 0.5
"""Seconds between two looks at the log while an AvailableNow run waits for the relay."""


class KinesisDataSource(LogDataSource):
    """`format("kinesis")`. Its options: see efo_service.spark_kinesis.options."""

    @cached_property
    def _options(self) -> KinesisOptions:
        from efo_service.spark_kinesis.options import parse  # noqa: PLC0415 - executors unpickle readers, not options

        return parse(self.options, os.environ)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kinesis"

    @one_line_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader."""
        from efo_service.spark_kinesis.batch import KinesisReader  # noqa: PLC0415 - only if it is used

        self._check_batch(schema)
        if "pushDownFilters" in self._options.names:
            raise ConfigurationError("pushDownFilters has no effect: the log of a batch is read as a whole, remove it")
        return KinesisReader(self._options)

    def streamReader(self, schema: StructType) -> KinesisStreamReader:
        """Return a stream reader. Its first call raises what is wrong, see EfoDataSource."""
        try:
            self._check_schema(schema)
            check_version(self._options.names)
            return KinesisStreamReader(*self._options.for_stream())
        except EfoError as error:
            return KinesisStreamReader(None, error)

    @one_line_errors()
    def writer(self, schema: StructType, overwrite: bool) -> KinesisWriter:  # noqa: FBT001 - Spark's signature
        """Return a writer of a batch."""
        from efo_service.spark_kinesis.writing import make_writer  # noqa: PLC0415 - only if it is used

        return make_writer(schema, self.options, overwrite=overwrite)

    @one_line_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> KinesisWriter:  # noqa: FBT001 - the same
        """Return a writer of a stream's micro-batches, which is that of a batch."""
        return self.writer(schema, overwrite)


def _exit_at_sigterm() -> None:
    """Let the signal by which Spark ends this process raise SystemExit, after which Spark's code calls `stop`."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def _refuse_service(root: Path, topic: str) -> None:
    """Raise ConfigurationError if a service writes this log: its relay and that of the query would fence each other."""
    from efo_service.relay.storage import lock  # noqa: PLC0415 - not in executors
    from efo_service.spark_kinesis.options import LEASES  # noqa: PLC0415 - the same

    for path in () if (root / LEASES).exists() else (root / topic).glob("*/writer.lock"):
        try:
            lock(path, wait=False).close()
        except BlockingIOError:
            raise ConfigurationError(
                f'a running service writes the log {root}: read it with format("efo"), or name another log'
            ) from None


class KinesisStreamReader(LogStreamReader):
    """Reads the log while its own relay writes it. The relay starts with the first question for offsets.

    `options`: if they are wrong, the error that the first call raises.
    """

    def __init__(self, settings: Settings | None, options: Options | EfoError) -> None:
        super().__init__(options)
        self._settings = settings
        self._relay: RelayThread | None = None
        self._catching_up: CatchingUp | None = None

    @cached_property
    def _planner(self) -> Planner:
        if isinstance(self._options, EfoError):
            raise self._options
        return GrowingPlanner(self._options)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what executors do not need: they read the log."""
        return {**self.__dict__, "_settings": None, "_relay": None, "_catching_up": None}

    @one_line_errors()
    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets of the log at which a query without a checkpoint starts."""
        self._running()
        return super().initialOffset()

    @one_line_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run: what is in the stream now."""
        self._catching_up = self._running().catch_up()

    @one_line_errors()
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end of the next micro-batch. A run of AvailableNow waits here for the relay.

        Spark 4.0 and 4.1 do not tell which run is one of AvailableNow. So there every run waits: its first micro-batch
        holds all that was in the stream at its start.
        """
        relay = self._running()
        if start is None:
            return (
                to_json(self._end_of_run(relay, relay.catch_up(), None))
                if self._is_first_call()
                else super().latestOffset()
            )
        if self._catching_up is not None:
            self._available_now_end = self._end_of_run(relay, self._catching_up, self._from_checkpoint(start))
        return super().latestOffset(start, limit)

    @one_line_errors()
    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the log's end, for the query's progress."""
        self._running()
        return super().reportLatestOffset()

    def stop(self) -> None:
        """Stop the relay: its last commit, and its leases for others."""
        if self._relay is not None:
            if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _exit:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Spark closes the socket, and then sends it
            self._relay.stop()

    def _running(self) -> RelayThread:
        """Return the relay, which runs. Raises what is wrong with the options, or what has ended it."""
        if isinstance(self._options, EfoError):
            raise self._options
        if self._relay is None:
            from efo_service.spark_kinesis.relay_thread import RelayThread  # noqa: PLC0415 - not in executors

            if self._settings is None:
                raise RuntimeError("offsets are planned in the process that has the settings")
            path = self._settings.leases.path
            root = self._settings.relay.log_root
            if isinstance(root, Path):
                _refuse_service(root, self._settings.topic)
            self._relay = RelayThread(self._settings, path.parent if isinstance(root, Path) else None)
            _exit_at_sigterm()
            self._relay.start()
        self._relay.check()
        return self._relay

    def _end_of_run(
        self, relay: RelayThread, catching_up: CatchingUp, begin: Mapping[TopicPartition, int] | None
    ) -> dict[TopicPartition, int]:
        """Wait until the log holds all that the run is to read, or a part of it that is new; return its end.

        `begin`: None if it is not known; then all is waited for.
        """
        while True:
            is_done = catching_up.done.wait(_POLL)  # before the log's end is read, which then includes everything
            relay.check()
            if catching_up.bound is None:
                continue
            end = self._end_before(catching_up.bound, begin or {})
            if is_done:
                self._catching_up = None
                return end
            if begin is not None and lag(begin, end):
                return end

    def _end_before(self, bound: float, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the records end that arrived before a time; not before what the query has read."""
        latest = self._planner.latest()
        at = AtTime("AvailableNow", int(bound * 1000), or_latest=True)
        ends = self._planner.resolve(at, others=LATEST)
        return {tp: max(min(ends.get(tp, end), end), min(begin.get(tp, 0), end)) for tp, end in latest.items()}
