"""The bills, in a file of SQLite. An order that is delivered twice is billed once.

efo delivers at least once: after a crash, the records since the last checkpoint come again. So the ledger's key is the
record's place in the stream, and a second insert of the same record does nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import efo
from orders.order import decode

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS billed (
        shard TEXT, sequence_number TEXT, sub_sequence_number INTEGER, customer TEXT NOT NULL, cents INTEGER NOT NULL,
        PRIMARY KEY (shard, sequence_number, sub_sequence_number)
    )
"""


class Ledger:
    """The bills in `path`. Its methods may be called in any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._transaction() as connection:
            connection.execute(_SCHEMA)

    def bill(self, batch: efo.Batch) -> None:
        """Bill the orders of a batch, all or none. Raises msgspec.DecodeError for a record that is no order."""
        orders = [(record, decode(record.data)) for record in batch]
        rows = [
            (batch.shard_id, record.sequence_number, record.sub_sequence_number, order.customer, order.cents)
            for record, order in orders
        ]
        with self._transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO billed VALUES (?, ?, ?, ?, ?)", rows)
        print(f"billed {len(rows)} orders of {batch.shard_id}", flush=True)

    def bills(self) -> dict[str, int]:
        """Return what each customer owes, in cents."""
        with self._transaction() as connection:
            return dict(connection.execute("SELECT customer, sum(cents) FROM billed GROUP BY customer"))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=10)
        try:
            with connection:
                yield connection
        finally:
            connection.close()
