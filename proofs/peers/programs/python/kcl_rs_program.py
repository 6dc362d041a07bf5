"""kcl-rs: KCL 3 in Rust, whose processors are Python in the same process. The first argument: where its package is."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

from meter import Meter, configuration

CONFIG = configuration()
METER = Meter(CONFIG)


class Processor:
    """Counts the records of a shard, and checkpoints as often as all peers."""

    def initialize(self, _given: Any) -> None:
        self.saved_at = time.monotonic()

    def process_records(self, given: Any) -> None:
        size = 0
        for record in given.records:
            _key, _number = record.partition_key, record.sequence_number
            size += len(record.data)
        if METER.report != "counts":
            METER.details([(record.partition_key, record.data) for record in given.records])
        METER.add(len(given.records), size)
        if given.records and time.monotonic() - self.saved_at >= CONFIG["checkpoint_seconds"]:
            self.saved_at = time.monotonic()
            given.checkpointer.checkpoint()

    def lease_lost(self, _given: Any) -> None:
        pass

    def shard_ended(self, given: Any) -> None:
        given.checkpointer.checkpoint()

    def shutdown_requested(self, given: Any) -> None:
        given.checkpointer.checkpoint()


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    os.environ |= {"AWS_ENDPOINT_URL_KINESIS": CONFIG["endpoint"], "AWS_ENDPOINT_URL_DYNAMODB": CONFIG["dynamodb"]}
    import kcl_rs  # noqa: PLC0415 - it reads the environment

    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    scheduler = kcl_rs.Scheduler(
        stream_name=CONFIG["stream"],
        application_name=CONFIG["application"],
        record_processor_factory=Processor,
        worker_identifier=CONFIG["worker"],
        region=CONFIG["region"],
        initial_position="TRIM_HORIZON",
    )
    scheduler.start()
    while not stopped.wait(1):
        METER.print_counts()
    scheduler.shutdown()
    METER.stopped()


if __name__ == "__main__":
    main()
