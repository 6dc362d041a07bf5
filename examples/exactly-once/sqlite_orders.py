"""Orders from Kinesis into SQLite, each exactly once: `python sqlite_orders.py STREAM orders.sqlite`."""

import sqlite3
import sys

import efo
import efo.sync

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, data BLOB);
CREATE TABLE IF NOT EXISTS positions (stream TEXT, shard TEXT, position TEXT NOT NULL, PRIMARY KEY (stream, shard));
"""
FIRST = "INSERT INTO positions VALUES (:stream, :shard, :after) ON CONFLICT DO NOTHING"
NEXT = "UPDATE positions SET position = :after WHERE stream = :stream AND shard = :shard AND position = :before"


def main(stream: str, path: str) -> None:
    """Read a stream until Ctrl-C."""
    database = sqlite3.connect(path, timeout=30)
    database.executescript(TABLES)

    def load(stream: str, shard: str) -> str | None:
        found = database.execute("SELECT position FROM positions WHERE stream = ? AND shard = ?", (stream, shard))
        return next((position for (position,) in found), None)

    def store(batch: efo.Batch, move: efo.PositionMove) -> None:
        rows = [(record.partition_key, record.data) for record in batch]
        names = {"stream": move.stream, "shard": move.shard_id, "before": move.before, "after": move.after}
        with database:  # one transaction
            moved = database.execute(FIRST if move.before is None else NEXT, names)
            move.check(moved.rowcount)
            database.executemany("INSERT INTO orders (customer, data) VALUES (?, ?)", rows)

    with efo.sync.open_consumer(stream, application="orders-into-sqlite") as consumer:
        consumer.run(efo.sync.ExactlyOnceHandler(efo.batched(store, records=500, seconds=1), load))


if __name__ == "__main__":
    main(*sys.argv[1:])
