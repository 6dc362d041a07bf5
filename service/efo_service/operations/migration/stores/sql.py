"""Rows in a table of PostgreSQL or MySQL with the columns namespace, shard_id and sequence_number."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import trio

from efo.errors import ConfigurationError, MissingExtraError
from efo.third_party_errors import reason_of
from efo_service.errors import UnavailableError
from efo_service.operations.migration.formats import Store
from efo_service.operations.migration.layout import Row
from efo_service.operations.migration.stores.rows import RowChangedError, RowTable

_T = TypeVar("_T")
_TIMEOUT: Final = 10
"""Seconds for a connection, and for a statement: the server ends one that takes longer, such as for a lock."""
_ROW_TIME: Final = 0.1
"""Seconds for each row that is written, beside that, until the server counts as hung."""
_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")
_COLUMNS: Final = ("namespace", "shard_id", "sequence_number")
_ENCODE: Final = (
    "the URL of the checkpoints is not valid: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE or mysql://..., "
    "with %25, %2F and %40 for %, / and @ in the password"
)
Connect = Callable[[], Any]
"""Opens a connection of the DB-API, without autocommit, whose statements end in time."""


class SqlRows:
    """The rows of one namespace. `driver`: the module of the DB-API, with its exceptions.

    `ran_out_of_time`: whether one of them says that a statement took too long.
    """

    kind: Store = "sql"

    def __init__(
        self, name: str, table: str, driver: Any, connect: Connect, ran_out_of_time: Callable[[Exception], bool]
    ) -> None:
        self.name = f"{name}, table {table}"
        self._ran_out_of_time = ran_out_of_time
        self._table = table
        self._driver = driver
        self._connect = connect

    async def rows(self, selection: str) -> Sequence[Row]:
        """Return the rows of a namespace."""
        return await self._run(partial(self._read, selection))

    async def replace_rows(self, rows: Sequence[tuple[Row, Row | None]]) -> None:
        """Write all rows in one transaction, if each is as it was read."""
        await self._run(partial(self._write, rows), rows=len(rows))

    def _read(self, namespace: str, connection: Any) -> list[Row]:
        query = f"SELECT {', '.join(_COLUMNS)} FROM {self._table} WHERE namespace = %s ORDER BY shard_id"  # noqa: S608 - checked
        with closing(connection.cursor()) as cursor:
            cursor.execute(query, (namespace,))
            return [dict(zip(_COLUMNS, values, strict=True)) for values in cursor.fetchall()]

    def _write(self, rows: Sequence[tuple[Row, Row | None]], connection: Any) -> None:
        update = (
            f"UPDATE {self._table} SET sequence_number = %s "  # noqa: S608 - checked
            "WHERE namespace = %s AND shard_id = %s AND sequence_number = %s"
        )
        insert = f"INSERT INTO {self._table} (sequence_number, namespace, shard_id) VALUES (%s, %s, %s)"  # noqa: S608 - checked
        with closing(connection.cursor()) as cursor:
            for row, old in rows:
                values = (row["sequence_number"], row["namespace"], row["shard_id"])
                try:
                    cursor.execute(*((update, (*values, old["sequence_number"])) if old else (insert, values)))
                except self._driver.IntegrityError:
                    raise RowChangedError(f"{self.name}, {row['shard_id']}") from None
                if cursor.rowcount != 1:
                    raise RowChangedError(f"{self.name}, {row['shard_id']}")
        connection.commit()

    async def _run(self, work: Callable[[Any], _T], rows: int = 0) -> _T:
        def connected() -> _T:
            with self._translate_errors(), closing(self._connect()) as connection:
                return work(connection)

        # The server limits its statements. It may not respond at all, and psycopg waits for it without a limit.
        limit = 3 * _TIMEOUT + _ROW_TIME * rows
        with trio.move_on_after(limit):
            return await trio.to_thread.run_sync(connected, abandon_on_cancel=True)
        raise UnavailableError(f"{self.name}: no response within {limit:g} s: check the server and the network")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as error:
            advice = "check the server, the user and the table"
            if self._ran_out_of_time(error):
                advice = f"no result within {_TIMEOUT:g} s: end what locks the table, or wait until the server has time"
            raise UnavailableError(f"{self.name}: {reason_of(error)}: {advice}") from None


@asynccontextmanager
async def open_sql_rows(url: str, table: str) -> AsyncIterator[RowTable]:
    """Use a table by its URL, `postgresql://...` or `mysql://...`. Raises ConfigurationError, MissingExtraError."""
    await trio.lowlevel.checkpoint()
    if not _TABLE.fullmatch(table):
        raise ConfigurationError(f"--table {table[:100]!r}: expected the name of a table, such as kinesis_consumer")
    parts = urlsplit(url)
    yield _mysql(parts, table) if parts.scheme == "mysql" else _postgres(url, parts, table)


def _place(parts: SplitResult) -> str:
    """Return server and database without user and password. Raises ConfigurationError."""
    if "@" in parts.path:  # a password with a slash, which would be shown
        raise ConfigurationError(_ENCODE)
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise ConfigurationError("the URL of the checkpoints has no valid port") from None
    return f"{parts.hostname or 'localhost'}{port}{parts.path}"


def _postgres(url: str, parts: SplitResult, table: str) -> SqlRows:
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError(
            f"checkpoints in PostgreSQL need psycopg: pip install 'efo[postgres]' ({error})"
        ) from None
    name = f"PostgreSQL {_place(parts)}"
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:  # its message may have the password
        raise ConfigurationError(_ENCODE) from None

    def connect() -> Any:
        connection = psycopg.connect(url, connect_timeout=_TIMEOUT)
        try:
            # Until the end of the transaction, so that a connection pooler can be used.
            connection.execute("SELECT set_config('statement_timeout', %s, true)", (f"{_TIMEOUT}s",))
        except BaseException:
            connection.close()
            raise
        return connection

    return SqlRows(name, table, psycopg, connect, lambda error: isinstance(error, psycopg.errors.QueryCanceled))


def _mysql(parts: SplitResult, table: str) -> SqlRows:
    try:
        import pymysql  # noqa: PLC0415 - an extra
        from pymysql.constants import CLIENT  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError(f"checkpoints in MySQL need PyMySQL: pip install 'efo[mysql]' ({error})") from None
    if parts.query:
        raise ConfigurationError("the URL of the checkpoints: expected mysql://USER:PASSWORD@HOST:PORT/DATABASE")
    name = f"MySQL {_place(parts)}"
    # A lock of a row, and one of the table (LOCK TABLES, ALTER TABLE). The server ends the statement before the client
    # gives up, and says why.
    lock_timeouts = f"SET SESSION innodb_lock_wait_timeout = {_TIMEOUT}, lock_wait_timeout = {_TIMEOUT}"
    connect = partial(
        pymysql.connect,
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=unquote(parts.path.lstrip("/")) or None,
        connect_timeout=_TIMEOUT,
        read_timeout=2 * _TIMEOUT,
        write_timeout=2 * _TIMEOUT,
        init_command=lock_timeouts,
        client_flag=CLIENT.FOUND_ROWS,  # an update that changes nothing has found its row, too
    )
    return SqlRows(name, table, pymysql, connect, _is_lock_timeout)


def _is_lock_timeout(error: Exception) -> bool:
    from pymysql.constants import ER  # noqa: PLC0415 - an extra

    return bool(error.args) and error.args[0] == ER.LOCK_WAIT_TIMEOUT
