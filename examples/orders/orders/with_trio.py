"""Bill orders, on trio: `python -m orders.with_trio`. The ledger blocks, so it is called in a thread."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import trio

import efo
from orders.ledger import Ledger

if __name__ == "__main__":
    ledger = Ledger(Path("bills.sqlite"))
    with suppress(KeyboardInterrupt):
        trio.run(lambda: efo.consume("orders", efo.in_thread(ledger.bill), application="billing"))
