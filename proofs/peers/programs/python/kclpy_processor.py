"""amazon_kclpy's record processor: one process for each shard. The arguments: where to print, the configuration."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor
from meter import Meter, configuration


class Processor(processor.RecordProcessorBase):  # type: ignore[misc] # the package has no types
    def __init__(self, config: dict[str, Any]) -> None:
        self._meter = Meter(config, output=sys.argv[1], source=str(os.getpid()))
        self._interval = config["checkpoint_seconds"]
        self._checkpoint_at = time.monotonic() + self._interval
        threading.Thread(target=self._meter.every_second, daemon=True).start()

    def initialize(self, initialize_input: Any) -> None:
        pass

    def process_records(self, process_records_input: Any) -> None:
        records = process_records_input.records
        size = 0
        for record in records:
            _key, _number = record.partition_key, record.sequence_number
            size += len(record.binary_data)
        if self._meter.report != "counts":
            self._meter.details([(record.partition_key, record.binary_data) for record in records])
        self._meter.add(len(records), size)
        if time.monotonic() >= self._checkpoint_at:
            process_records_input.checkpointer.checkpoint()
            self._checkpoint_at = time.monotonic() + self._interval

    def lease_lost(self, lease_lost_input: Any) -> None:
        pass

    def shard_ended(self, shard_ended_input: Any) -> None:
        shard_ended_input.checkpointer.checkpoint()

    def shutdown_requested(self, shutdown_requested_input: Any) -> None:
        shutdown_requested_input.checkpointer.checkpoint()
        self._meter.print_counts()


if __name__ == "__main__":
    kcl.KCLProcess(Processor(configuration())).run()
