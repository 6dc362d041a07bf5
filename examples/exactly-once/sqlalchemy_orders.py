"""Orders from Kinesis into a database of SQLAlchemy, each exactly once: `python sqlalchemy_orders.py STREAM URL`."""

import sys

import sqlalchemy as sql

import efo
import efo.sync

METADATA = sql.MetaData()
ORDERS = sql.Table(
    "orders",
    METADATA,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("customer", sql.String(256)),
    sql.Column("data", sql.LargeBinary),
)
POSITIONS = sql.Table(
    "positions",
    METADATA,
    sql.Column("stream", sql.String(128), primary_key=True),
    sql.Column("shard", sql.String(128), primary_key=True),
    sql.Column("position", sql.String(128), nullable=False),
)


def main(stream: str, url: str) -> None:
    """Read a stream until Ctrl-C."""
    engine = sql.create_engine(url)
    METADATA.create_all(engine)

    def load(stream: str, shard: str) -> str | None:
        query = sql.select(POSITIONS.c.position).where(POSITIONS.c.stream == stream, POSITIONS.c.shard == shard)
        with engine.connect() as connection:
            return connection.execute(query).scalar_one_or_none()

    def store(batch: efo.Batch, move: efo.PositionMove) -> None:
        key = {"stream": move.stream, "shard": move.shard_id}
        with engine.begin() as connection:  # one transaction
            if move.before is None:
                try:
                    connection.execute(POSITIONS.insert().values(position=move.after, **key))
                except sql.exc.IntegrityError:
                    move.check(0)
            else:
                at = POSITIONS.update().filter_by(position=move.before, **key)
                move.check(connection.execute(at.values(position=move.after)).rowcount)
            rows = [{"customer": record.partition_key, "data": record.data} for record in batch]
            connection.execute(ORDERS.insert(), rows)

    with efo.sync.open_consumer(stream, application="orders-into-sql") as consumer:
        consumer.run(efo.sync.ExactlyOnceHandler(efo.batched(store, records=500, seconds=1), load))


if __name__ == "__main__":
    main(*sys.argv[1:])
