"""A worker of kcl-rs: notes its records as the tap does, until SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import kcl_rs


class Processor(kcl_rs.RecordProcessorBase):  # type: ignore[misc] # not in the environment of the checks
    """Notes each record, and checkpoints once in 300."""

    def initialize(self, _given: Any) -> None:
        """Begin."""
        name = f"{os.environ['KCL_WORKER']}.{os.getpid()}"
        self._file = Path(os.environ["KCL_RECORDS"], name).open("ab", buffering=0)  # noqa: SIM115 - for its life
        self._count = 0

    def process_records(self, given: Any) -> None:
        """Note the records."""
        at = time.time_ns() // 1000
        self._file.write(b"".join(b"%d %s\n" % (at, record.sequence_number.encode()) for record in given.records))
        self._count += len(given.records)
        if self._count >= 300:  # noqa: PLR2004 - as the docstring says
            self._count = 0
            given.checkpointer.checkpoint()

    def lease_lost(self, _given: Any) -> None:
        """End."""

    def shard_ended(self, given: Any) -> None:
        """Let the children start."""
        given.checkpointer.checkpoint()

    def shutdown_requested(self, given: Any) -> None:
        """Save what is done."""
        given.checkpointer.checkpoint()


def main() -> None:
    """Read the stream of the arguments: its name, the application, and the worker's id."""
    stream, application, worker = sys.argv[1:]
    scheduler = kcl_rs.Scheduler(
        stream_name=stream,
        application_name=application,
        record_processor_factory=Processor,
        worker_identifier=worker,
        region="us-east-1",
        initial_position="TRIM_HORIZON",
    )
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    scheduler.start()
    while not stopped.wait(0.2):
        pass
    scheduler.shutdown()


if __name__ == "__main__":
    main()
