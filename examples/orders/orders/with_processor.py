"""Bill orders by a class in KCL's manner: `python -m orders.with_processor`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import efo
import efo.sync
from orders.ledger import Ledger

LEDGER = Path("bills.sqlite")


class BillingProcessor(efo.sync.RecordProcessor):
    """Bills the orders of one shard."""

    def initialize(self, shard_id: str, checkpoint: efo.Checkpoint) -> None:
        """Begin with a shard."""
        self._ledger = Ledger(LEDGER)

    def process_records(self, batch: efo.Batch, checkpointer: efo.Checkpointer) -> None:
        """Bill a batch, and checkpoint."""
        self._ledger.bill(batch)
        checkpointer.checkpoint()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt), efo.sync.open_consumer("orders", application="billing") as consumer:
        consumer.run(efo.sync.ProcessorReader(BillingProcessor))
