"""Bill orders, on asyncio: `python -m orders.with_asyncio`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import efo
import efo.aio
from orders.ledger import Ledger


async def main() -> None:
    """Read until Ctrl-C."""
    ledger = Ledger(Path("bills.sqlite"))

    async def bill(batch: efo.Batch) -> None:
        await asyncio.to_thread(ledger.bill, batch)

    await efo.aio.consume("orders", bill, application="billing")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
