"""Record processors in the manner of KCL, with plain methods."""

from __future__ import annotations

from efo.adapters.processor import ProcessorReader as DoorProcessorReader
from efo.consumer.handlers.processor import Checkpointer
from efo.model import Batch, Checkpoint


class RecordProcessor:
    """Processes the records of one shard: `efo.RecordProcessor` with plain methods, which may block."""

    def initialize(self, shard_id: str, checkpoint: Checkpoint) -> None:
        """Begin with a shard, after this checkpoint."""

    def process_records(self, batch: Batch, checkpointer: Checkpointer) -> None:
        """Process a batch of at least one record. Checkpoint when the records are done, now or later."""
        raise NotImplementedError

    def lease_lost(self) -> None:
        """Clean up: another worker reads the shard now. Nothing can be checkpointed any more."""

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """Finish a shard that has no more records. It must checkpoint, or the shard's children would never start."""
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Finish before the shard is released: in a drain, or because another worker asked for the lease."""
        checkpointer.checkpoint()


class ProcessorReader(DoorProcessorReader):
    """Reads shards by record processors, for `efo.sync`: as `efo.ProcessorReader`, with plain methods."""

    processor_type = RecordProcessor
    are_async = False
    surface = "efo.sync"
