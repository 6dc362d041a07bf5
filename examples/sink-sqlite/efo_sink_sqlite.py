"""A sink of efo that writes records into a table of SQLite, exactly once: records and position are one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import trio

from efo.errors import ConfigurationError
from efo.model import Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import SinkClosedError, SinkFencedError, SinkUnavailableError
from efo_service.relay.mapping import RecordMapping
from efo_service.relay.plugins import Options, SinkContext
from efo_service.relay.sink import Part, ShardSink, Sink

_TABLES = """
    CREATE TABLE IF NOT EXISTS record (
        topic TEXT, stream TEXT, shard TEXT, sequence_number TEXT, sub_sequence_number INTEGER,
        key TEXT, value BLOB, timestamp INTEGER, headers TEXT,
        PRIMARY KEY (topic, stream, shard, sequence_number, sub_sequence_number)
    );
    CREATE TABLE IF NOT EXISTS position (
        topic TEXT, stream TEXT, shard TEXT, epoch INTEGER, sequence_number TEXT, sub_sequence_number INTEGER,
        PRIMARY KEY (topic, stream, shard)
    );
"""
Shard = tuple[str, str, str]
"""Topic, stream and shard."""


def open_sqlite(options: Options, context: SinkContext) -> AbstractAsyncContextManager[Sink]:
    """Return the sink: the entry point. Raises ConfigurationError for wrong options."""
    if set(options) != {"file"} or not isinstance(options["file"], str):
        raise ConfigurationError('sink = "sqlite" needs [relay.options] file = "PATH", and nothing else')
    return _open(Path(options["file"]), context)


open_sqlite.owns_positions = True  # type: ignore[attr-defined]


@asynccontextmanager
async def _open(path: Path, context: SinkContext) -> AsyncIterator[Sink]:
    database = await trio.to_thread.run_sync(Database, path)
    try:
        yield SqliteSink(database, context)
    finally:
        database.close()


class Database:
    """The file. Its methods block, and run in threads one at a time."""

    def __init__(self, path: Path) -> None:
        with _errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_TABLES)

    def begin_epoch(self, shard: Shard) -> tuple[int, Checkpoint | None]:
        """Fence earlier writers of a shard. Return the epoch of this one, and the position."""
        with _errors(), self._transaction() as execute:
            execute(
                "INSERT INTO position (topic, stream, shard, epoch) VALUES (?, ?, ?, 1)"
                " ON CONFLICT DO UPDATE SET epoch = epoch + 1",
                shard,
            )
            epoch, sequence, sub_sequence = execute(
                "SELECT epoch, sequence_number, sub_sequence_number FROM position"
                " WHERE (topic, stream, shard) = (?, ?, ?)",
                shard,
            ).fetchone()
        return epoch, None if sequence is None else Checkpoint(sequence, sub_sequence)

    def commit(self, shard: Shard, epoch: int, rows: Sequence[tuple[object, ...]], last: Checkpoint) -> None:
        """Write rows and position, or nothing. Raises SinkFencedError if another writer has begun an epoch."""
        with _errors(), self._transaction() as execute:
            moved = execute(
                "UPDATE position SET sequence_number = ?, sub_sequence_number = ?"
                " WHERE (topic, stream, shard, epoch) = (?, ?, ?, ?)",
                (last.sequence_number, last.sub_sequence_number, *shard, epoch),
            )
            if moved.rowcount != 1:
                raise SinkFencedError(f"{shard[2]}: another worker writes this shard now")
            self._connection.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[object]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection.execute
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


class SqliteSink:
    """Opens the sinks of shards."""

    def __init__(self, database: Database, context: SinkContext) -> None:
        self._database = database
        self._context = context
        self._lock = trio.Lock()  # one connection, one transaction at a time

    def open(
        self,
        stream: str,
        shard_id: str,
        checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,  # noqa: ARG002 - unused here
    ) -> AbstractAsyncContextManager[ShardSink]:
        """Open the sink for a shard. Entering raises SinkError."""
        return self._open(stream, shard_id)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str) -> AsyncIterator[ShardSink]:
        shard = (self._context.topic, stream, shard_id)
        async with self._lock:
            epoch, position = await trio.to_thread.run_sync(self._database.begin_epoch, shard)
        mapping = RecordMapping(stream, shard_id, self._context.extract)
        sink = SqliteShardSink(self._database, self._lock, shard, epoch, mapping, position)
        try:
            yield sink
        finally:
            sink.close()


class SqliteShardSink:
    """A sink opened for one shard: see `efo_service.relay.sink.ShardSink`."""

    def __init__(
        self,
        database: Database,
        lock: trio.Lock,
        shard: Shard,
        epoch: int,
        mapping: RecordMapping,
        position: Checkpoint | None,
    ) -> None:
        self.position = position
        self._database, self._lock, self._shard, self._epoch, self._mapping = database, lock, shard, epoch, mapping
        self._is_closed = False

    refusal = None  # a table takes what Kinesis takes

    def prepare(self, records: Sequence[Record]) -> Part:
        rows = [self._row(record) for record in records]
        return Part(
            (rows, checkpoint_of(records[-1])), sum(len(v) for row in rows for v in row if isinstance(v, str | bytes))
        )

    async def commit(self, parts: Sequence[Part]) -> None:
        if self._is_closed:
            raise SinkClosedError(f"{self._shard[2]}: its sink is closed")
        rows, last = [row for part in parts for row in part.content[0]], parts[-1].content[1]
        async with self._lock:
            # It runs to its end once it has begun, also if this task is cancelled.
            await trio.to_thread.run_sync(self._database.commit, self._shard, self._epoch, rows, last)
        self.position = last

    def close(self) -> None:
        """Refuse more commits."""
        self._is_closed = True

    def _row(self, record: Record) -> tuple[object, ...]:
        message = self._mapping.message(record)
        headers = [[name, None if value is None else value.decode()] for name, value in message.headers]
        at = (record.sequence_number, record.sub_sequence_number)
        key = None if message.key is None else message.key.decode()
        return (*self._shard, *at, key, message.value, message.timestamp, json.dumps(headers))


@contextmanager
def _errors() -> Iterator[None]:
    """Translate SQLite's errors: the relay repeats what is retryable for [relay] retry_seconds."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise SinkUnavailableError(f"SQLite: {error}") from error
