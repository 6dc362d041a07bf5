"""Rows in Redis: a key and a string each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from efo.errors import ConfigurationError, MissingExtraError
from efo.third_party_errors import reason_of
from efo_service.errors import UnavailableError
from efo_service.operations.migration.formats import Store
from efo_service.operations.migration.layout import Row
from efo_service.operations.migration.stores.rows import RowChangedError, RowTable

if TYPE_CHECKING:
    import redis

_T = TypeVar("_T")
_TIMEOUT = 10.0
_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\*?[]"})


class RedisRows:
    """The strings whose keys begin with the selection."""

    kind: Store = "redis"

    def __init__(self, client: redis.Redis) -> None:
        options = client.connection_pool.connection_kwargs
        place = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        self.name = f"Redis {place}, database {options.get('db', 0)}"
        self._client = client

    async def rows(self, selection: str) -> Sequence[Row]:
        """Return the strings whose keys begin with the selection, sorted by key."""
        return await self._run(partial(self._read, selection))

    async def replace_rows(self, rows: Sequence[tuple[Row, Row | None]]) -> None:
        """Set all keys in one transaction, if each has the value that was read."""
        await self._run(partial(self._write, rows))

    def _read(self, selection: str) -> list[Row]:
        # SCAN may return a key more than once.
        keys = sorted(
            set(self._client.scan_iter(match=f"{selection.translate(_SPECIAL)}*", count=1000, _type="string"))
        )
        values = self._client.mget(keys) if keys else []
        return [{"key": key, "value": value} for key, value in zip(keys, values, strict=True) if value is not None]

    def _write(self, rows: Sequence[tuple[Row, Row | None]]) -> None:
        from redis.exceptions import WatchError  # noqa: PLC0415 - an extra

        if not rows:
            return  # Redis refuses to watch no keys
        with self._client.pipeline(transaction=True) as transaction:
            transaction.watch(*(row["key"] for row, _ in rows))  # type: ignore[no-untyped-call]
            for row, old in rows:
                if transaction.get(row["key"]) != (old["value"] if old else None):
                    raise RowChangedError(f"{self.name}, {row['key']}")
            transaction.multi()
            for row, _ in rows:
                transaction.set(row["key"], row["value"])
            try:
                transaction.execute()
            except WatchError:
                raise RowChangedError(f"{self.name}: a key") from None

    async def _run(self, work: Callable[[], _T]) -> _T:
        from redis.exceptions import RedisError  # noqa: PLC0415 - an extra

        try:
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
        except RedisError as error:
            raise UnavailableError(
                f"{self.name}: {reason_of(error)}: check the server, the user and the password"
            ) from None


@asynccontextmanager
async def open_redis_rows(url: str) -> AsyncIterator[RowTable]:
    """Open a client of redis-py. Raises ConfigurationError for an invalid URL; MissingExtraError."""
    try:
        import redis  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError(f"checkpoints in Redis need redis: pip install 'efo[redis]' ({error})") from None
    try:
        client = redis.Redis.from_url(
            url,
            decode_responses=True,
            encoding_errors="replace",  # so that a layout refuses a foreign value
            socket_timeout=_TIMEOUT,
            socket_connect_timeout=_TIMEOUT,
        )
    except (ValueError, TypeError):
        raise ConfigurationError(  # their messages may have the password
            "the URL of the checkpoints is not a Redis URL: expected redis://:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    try:
        yield RedisRows(client)
    finally:
        client.close()
