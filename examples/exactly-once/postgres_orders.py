"""Orders from Kinesis into PostgreSQL, each exactly once: `python postgres_orders.py STREAM postgresql://...`."""

import asyncio
import sys

import psycopg

import efo
import efo.aio

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id BIGSERIAL PRIMARY KEY, customer TEXT, data BYTEA);
CREATE TABLE IF NOT EXISTS positions (stream TEXT, shard TEXT, position TEXT NOT NULL, PRIMARY KEY (stream, shard));
"""
FIRST = "INSERT INTO positions VALUES (%(stream)s, %(shard)s, %(after)s) ON CONFLICT DO NOTHING"
NEXT = """
UPDATE positions SET position = %(after)s WHERE stream = %(stream)s AND shard = %(shard)s AND position = %(before)s
"""


async def main(stream: str, url: str) -> None:
    """Read a stream until Ctrl-C."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(1)")  # two workers must not create tables at once
        await connection.execute(TABLES)

    async def load(stream: str, shard: str) -> str | None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            query = "SELECT position FROM positions WHERE stream = %s AND shard = %s"
            row = await (await connection.execute(query, (stream, shard))).fetchone()
            return None if row is None else str(row[0])

    async def store(batch: efo.Batch, move: efo.PositionMove) -> None:
        rows = [(record.partition_key, record.data) for record in batch]
        names = {"stream": move.stream, "shard": move.shard_id, "before": move.before, "after": move.after}
        async with await psycopg.AsyncConnection.connect(url) as connection, connection.cursor() as cursor:
            await cursor.execute(FIRST if move.before is None else NEXT, names)
            move.check(cursor.rowcount)
            await cursor.executemany("INSERT INTO orders (customer, data) VALUES (%s, %s)", rows)

    # What passes by itself is retried. A connection of each call is simple; use a pool.
    policy = efo.FailurePolicy(attempts=None, retry_for=300, then="isolate")
    async with efo.aio.open_consumer(stream, application="orders-into-postgres") as consumer:
        handler = efo.batched(store, records=500, seconds=1)
        await consumer.run(efo.aio.ExactlyOnceHandler(handler, load, on_error=policy))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
