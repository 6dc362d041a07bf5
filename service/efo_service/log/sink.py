"""The embedded log as a sink: each commit of a shard is there as a whole, with the position, or not (rule R12)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import trio

from efo.model import Checkpoint
from efo.retrying import retry
from efo_service.log.files import LogFiles, never
from efo_service.log.partition_writer import LogShardSink, RunBlocking, open_partition
from efo_service.relay.errors import SinkLockedError
from efo_service.relay.mapping import Extractor

LOCK_TIMEOUT: Final = 30.0
"""Minimum seconds to wait for another writer to release a partition. It needs at most the fail-over time."""
_LOCK_INTERVAL: Final = 0.1


class LogSink:
    """Writes records to one topic of the embedded log, with a partition for each shard.

    `files`: the log; it is created if missing. `clock`: wall clock, seconds since the epoch. `lock_timeout`: how long
    to wait for another writer of a partition, in seconds. `extract`: returns trace contexts (RecordMapping).
    `run_blocking`: runs what blocks; None: in threads. A call is never abandoned: a cancellation takes effect when it
    ends.
    """

    def __init__(
        self,
        files: LogFiles,
        topic: str,
        *,
        clock: Callable[[], float] = time.time,
        lock_timeout: float = LOCK_TIMEOUT,
        extract: Extractor | None = None,
        run_blocking: RunBlocking[Any] | None = None,
    ) -> None:
        self._created_at: float | None = None
        self._files = files
        self._topic = topic
        self._clock = clock
        self.lock_timeout = lock_timeout
        self._extract = extract
        # A thread of trio can ask whether its task was cancelled.
        self._check_cancelled = trio.from_thread.check_cancelled if run_blocking is None else never
        self._run_blocking = run_blocking or partial(
            trio.to_thread.run_sync, limiter=trio.CapacityLimiter(files.limits.parallel_commits)
        )

    def identify(self, created_at: float | None) -> None:
        """Note when the stream was created, see `Identified`."""
        self._created_at = created_at

    @asynccontextmanager
    async def open(
        self, stream: str, shard_id: str, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AsyncIterator[LogShardSink]:
        """Open a shard's partition, fence its earlier writers, and recover its position.

        It waits for a writer that has lost the shard and has not noticed yet: that one notices at its next renewal of
        the lease, and releases the partition. Entering raises SinkLockedError if another writer still has it open after
        `lock_timeout`, StreamRecreatedError if the topic belongs to a former stream of this name, LogIncompleteError if
        a part of the log is gone, or if the checkpoint of the lease is a record's and the shard has no partition,
        SegmentCorruptError, LogOwnerError, LogVersionError, SinkFullError, StoreUnavailableError, StoreDeniedError and
        SinkError.
        """
        opening = partial(
            open_partition,
            self._files,
            self._topic,
            stream,
            shard_id,
            self._clock,
            self._extract,
            checkpoint=checkpoint,
            created_at=self._created_at,
            check_cancelled=self._check_cancelled,
        )
        writer = await retry(
            partial(self._run_blocking, opening),
            lambda: _LOCK_INTERVAL,
            seconds=self.lock_timeout,
            repeats=lambda error: isinstance(error, SinkLockedError),
        )
        shard_sink = LogShardSink(writer, self._run_blocking, self._files.limits.bytes_in_loop)
        try:
            yield shard_sink
        finally:
            shard_sink.close()
