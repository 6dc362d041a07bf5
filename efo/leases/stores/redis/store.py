"""A lease store in Redis: for workers on many machines that share a persistent Redis.

All leases of one application on one stream are one hash: a field per lease, with the lease as JSON. So one command
reads all of them, and in a Redis cluster they are on one node. Every write is a script that writes only if the value is
still the one that was read: the first of two competing writes succeeds.

How much a crash or fail-over of Redis loses depends on its settings, see docs/leases.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import msgspec

from efo.arn import parse_stream
from efo.errors import ConfigurationError, LeaseError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases.known_rows import KnownRows
from efo.leases.lease_row import LeaseRow
from efo.leases.row_store import Change, RowStore
from efo.leases.store import Inspection, LeaseScope, streams_of
from efo.leases.stores import driver_of
from efo.leases.writes import LeaseWrite, row_after
from efo.model import Lease
from efo.third_party_errors import reason_of

_T = TypeVar("_T")

VERSION: Final = 2
"""The version of the format. It is a field of the hash, so that every lease scan reads it.

Since 2, the JSON of a lease has fields that an efo which knows only 1 refuses. Both are read; the first write to a hash
of version 1 makes it 2.
"""
_VERSION_FIELD: Final = b"#version"  # not a valid shard id
_OLDER: Final = frozenset(b"%d" % version for version in range(1, VERSION))

_CREATE: Final = """
    redis.call('HSETNX', KEYS[1], '#version', ARGV[3])
    return redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
"""
_WRITE: Final = """
    if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
    return 1
"""
_READ_MANY: Final = """
    local values = {}
    for i = 1, #ARGV do values[i] = redis.call('HGET', KEYS[1], ARGV[i]) end
    return values
"""
_WRITE_MANY: Final = """
    local done = {}
    for i = 1, #ARGV, 3 do
        local same = redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1]
        if same then redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2]) end
        done[#done + 1] = same and 1 or 0
    end
    return done
"""


class RedisLeaseStore(RowStore):
    """A LeaseStore in a Redis database: `async with RedisLeaseStore(...) as store:`.

    `url`: `redis://[USER]:PASSWORD@HOST:PORT/DATABASE`; `rediss:` for TLS. The leases are the hash
    `efo:leases:{APPLICATION/STREAM}`.
    `timeout`: maximum seconds per call.
    `connections`: maximum number of concurrent calls.

    Raises MissingExtraError without redis-py, and ConfigurationError for an invalid URL. Opening raises
    LeaseStoreUnavailableError (server unreachable, access refused, a replica, or a policy that evicts keys without
    expiry) and LeaseStoreCorruptError (leases of a newer efo, or a key of another program).

    A cancelled call returns at once, and its command completes in the background within `timeout`. Its effect is
    then unknown, but never partial.
    """

    def __init__(self, url: str, application: str, stream: str, *, timeout: float = 5.0, connections: int = 4) -> None:
        self._lease_scope = LeaseScope(application, stream)
        self._key = f"efo:leases:{{{application}/{parse_stream(stream)[0]}}}"
        with driver_of("Redis", "redis-py", extra="redis"):
            from efo.leases.stores.redis.client import RedisClient  # noqa: PLC0415 - redis-py may not be installed
        self._client = RedisClient(url, self._key, timeout, connections)
        self._create_script = self._client.redis.register_script(_CREATE)
        self._write_script = self._client.redis.register_script(_WRITE)
        self._read_many_script = self._client.redis.register_script(_READ_MANY)
        self._write_many_script = self._client.redis.register_script(_WRITE_MANY)
        self._rows = KnownRows[bytes]()
        self._is_older = False  # whether the hash has an older version
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._is_open = True
        try:
            await self._run(self._client.check_server)
            await self.list()
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    async def inspect(self) -> Inspection:
        """Look at the key; the store is not open. Redis does not say what it permits. Raises as opening it does."""
        async with self:
            leases = await self.list()
        version = (VERSION - self._is_older) if leases else None
        return Inspection(
            exists=bool(leases), leases=len(leases), version=version, denied=None, created_at=streams_of(leases)
        )

    def ensure_scope(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store keeps the leases of another application or stream."""
        self._lease_scope.ensure(application, stream)

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._is_open

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order."""
        return await self._run(self._read_all)

    async def get(self, key: str) -> Lease | None:
        """Return one lease, or None."""
        value = await self._run(lambda: self._read(key))
        return None if value is None else self._lease_of(key, value)

    async def create(self, lease: Lease) -> bool:
        """Add a lease unless its key exists; return whether it was added."""
        return bool(await self._run(lambda: self._create(lease)))

    async def delete(self, key: str) -> None:
        """Delete a lease, if it exists."""
        await self._run(lambda: self._client.redis.hdel(self._key, key))

    async def _write(self, key: str, change: Change) -> Lease:
        return await self._run(lambda: self._change(key, change))

    async def _write_rows(self, writes: Sequence[LeaseWrite]) -> Sequence[Lease | LeaseError]:
        return await self._run(lambda: self._change_many(writes))

    def _create(self, lease: Lease) -> object:
        self._upgrade()
        return self._create_script([self._key], [lease.key, _value(lease), VERSION])

    def _upgrade(self) -> None:
        """Raise the version before the first value that an earlier efo cannot read: its next scan then says so."""
        if self._is_older:
            self._client.redis.hset(self._key, _VERSION_FIELD, str(VERSION))
            self._is_older = False

    def _change(self, key: str, change: Change) -> Lease:
        self._upgrade()
        while True:  # repeated only if another write succeeded in between
            old = self._read(key)
            new = change(None if old is None else self._lease_of(key, old))
            if self._write_script([self._key], [key, old or b"", _value(new)]) == 1:
                return new

    def _change_many(self, writes: Sequence[LeaseWrite]) -> Sequence[Lease | LeaseError]:
        """Change rows by one script that reads and one that writes. A row that has changed in between is read again."""
        self._upgrade()
        keys = [write.lease.key for write in writes]
        values = cast("Sequence[bytes | None]", self._read_many_script([self._key], keys))
        results: dict[str, Lease | LeaseError] = {}
        arguments: list[str | bytes] = []
        for write, old in zip(writes, values, strict=True):
            key = write.lease.key
            try:
                new = results[key] = row_after(write, None if old is None else self._lease_of(key, old))
                arguments += (key, old or b"", _value(new))
            except LeaseError as error:
                results[key] = error
        done = self._write_many_script([self._key], arguments) if arguments else ()
        outdated = {str(key) for key, is_done in zip(arguments[::3], done, strict=True) if not is_done}
        for write in writes:
            if write.lease.key in outdated:
                try:
                    results[write.lease.key] = self._change(write.lease.key, partial(row_after, write))
                except LeaseError as error:
                    results[write.lease.key] = error
        return [results[key] for key in keys]

    def _read_all(self) -> Sequence[Lease]:
        fields = cast("dict[bytes, bytes]", self._client.redis.hgetall(self._key))
        version = fields.pop(_VERSION_FIELD, None)
        self._is_older = version in _OLDER
        if version != b"%d" % VERSION and not self._is_older and (fields or version is not None):
            raise LeaseStoreCorruptError(
                f"lease store {self._client.location}: its version is {(version or b'missing').decode()}, "
                f"this efo supports 1 to {VERSION}: use the efo release that wrote the leases, or a newer one"
            )
        return self._rows.replace({key.decode(): value for key, value in fields.items()}, self._lease_of)

    def _read(self, key: str) -> bytes | None:
        return cast("bytes | None", self._client.redis.hget(self._key, key))

    async def _run(self, work: Callable[[], _T]) -> _T:
        if not self._is_open:
            raise LeaseStoreUnavailableError(f"lease store {self._client.location} is not open: use `async with`")
        return await self._client.run(work)

    def _close(self) -> None:
        self._is_open = False
        self._client.close()

    def _lease_of(self, key: str, value: bytes) -> Lease:
        try:
            return msgspec.json.decode(value, type=LeaseRow).lease()
        except (ConfigurationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LeaseStoreCorruptError(
                f"lease store {self._client.location}, lease {key!r}: {reason_of(error)}; correct or delete it"
            ) from error


def _value(lease: Lease) -> bytes:
    return msgspec.json.encode(LeaseRow.of(lease))
