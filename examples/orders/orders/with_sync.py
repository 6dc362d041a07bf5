"""Bill orders in plain code, batch by batch: `python -m orders.with_sync`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import efo.sync
from orders.ledger import Ledger

if __name__ == "__main__":
    ledger = Ledger(Path("bills.sqlite"))
    with suppress(KeyboardInterrupt), efo.sync.open_consumer("orders", application="billing") as consumer:
        for batch in consumer:
            ledger.bill(batch)
            consumer.ack(batch)
