"""A lease store in Redis: for workers on many machines, where there is a Redis that keeps what it is told.

All leases of one application on one stream are one hash: a field per lease, its value the lease as JSON. So one
command reads them all, and in a cluster they stay together. Every write is a script that compares the value that was
read before: whoever was quicker wins.

How much Redis loses in a crash or a fail-over is its own setting, see docs/leases.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import msgspec
import trio

from efo.errors import ConfigurationError, LeaseError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases.lease_row import LeaseRow
from efo.leases.row_store import Change, RowStore
from efo.leases.scope import LeaseScope
from efo.model import Lease

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AuthenticationError,
        MovedError,
        NoPermissionError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisError,
    )
    from redis.retry import Retry
except ImportError as error:
    raise ImportError(f"leases in Redis need its driver: pip install 'efo[redis]' ({error})") from error

_T = TypeVar("_T")

VERSION: Final = 1
"""The version of what is kept. It stands in a field of the hash, so that every look at the leases sees it."""
_VERSION_FIELD: Final = b"#version"  # no shard has such a name

_CREATE: Final = """
    redis.call('HSETNX', KEYS[1], '#version', ARGV[3])
    return redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
"""
_WRITE: Final = """
    if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
    return 1
"""

_MEANINGS: Final[tuple[tuple[type[Exception], type[LeaseError], str], ...]] = (
    (AuthenticationError, LeaseStoreUnavailableError, "Check user and password"),
    (NoPermissionError, LeaseStoreUnavailableError, "The user's rights: see docs/leases.md"),
    (OutOfMemoryError, LeaseStoreUnavailableError, "Give it more memory"),
    (MovedError, LeaseStoreUnavailableError, "This server is one of a cluster: name the one that has the key"),
    (RedisError, LeaseStoreUnavailableError, "Check that it runs, and its address"),
)


class RedisLeaseStore(RowStore):
    """A LeaseStore in a Redis database: `async with RedisLeaseStore(...) as store:`.

    `url`: `redis://[USER]:PASSWORD@HOST:PORT/DATABASE`; `rediss:` for TLS. The leases are the hash
    `efo:leases:{APPLICATION/STREAM}`.
    `timeout`: seconds that a call may take. `connections`: as many calls are made at once.

    Opening raises ConfigurationError (no URL), LeaseStoreUnavailableError (unreachable, refused, a replica, one that
    evicts what has no expiry) and LeaseStoreCorruptError (leases of a newer efo, or a key of another program).

    A call that is cancelled returns at once while its command runs to its end behind it, within `timeout`: whether it
    took place is then unknown, as with any store at a distance, but it is never left half done.
    """

    def __init__(self, url: str, application: str, stream: str, *, timeout: float = 5.0, connections: int = 4) -> None:
        self._lease_scope = LeaseScope(application, stream)
        self._key = f"efo:leases:{{{application}/{stream}}}"
        self._client, self._place = _client(url, timeout, connections)
        self._create_script = self._client.register_script(_CREATE)
        self._write_script = self._client.register_script(_WRITE)
        self._timeout = timeout
        self._is_open = False
        self._threads = trio.CapacityLimiter(connections)

    async def __aenter__(self) -> Self:
        self._is_open = True
        try:
            await self._run(self._check)
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
        """Add a lease if there is none of its key; return whether it was added."""
        added = await self._run(lambda: self._create_script([self._key], [lease.key, _value(lease), VERSION]))
        return bool(added)

    async def delete(self, key: str) -> None:
        """Remove a lease, if it is there."""
        await self._run(lambda: self._client.hdel(self._key, key))

    async def _write(self, key: str, change: Change) -> Lease:
        def write() -> Lease:
            while True:  # until nobody else was quicker, who then did get on
                old = self._read(key)
                new = change(None if old is None else self._lease_of(key, old))
                if self._write_script([self._key], [key, old or b"", _value(new)]) == 1:
                    return new

        return await self._run(write)

    def _read_all(self) -> Sequence[Lease]:
        fields = cast("dict[bytes, bytes]", self._client.hgetall(self._key))
        version = fields.pop(_VERSION_FIELD, None)
        if version != b"%d" % VERSION and (fields or version is not None):
            raise LeaseStoreCorruptError(
                f"lease store {self._place}, key {self._key}: its version is {(version or b'missing').decode()} and "
                f"this efo knows {VERSION}. Use the efo that wrote it, or a newer one"
            )
        return [self._lease_of(key.decode(), value) for key, value in fields.items()]

    def _read(self, key: str) -> bytes | None:
        return cast("bytes | None", self._client.hget(self._key, key))

    def _check(self) -> None:
        """Refuse a server that is a replica, or that would drop leases when its memory is full."""
        try:
            facts = self._client.info()
        except NoPermissionError:
            return  # it need not tell us
        if facts.get("role") == "slave":
            raise LeaseStoreUnavailableError(
                f"lease store {self._place}: this server is a read-only replica. Name the primary"
            )
        policy = str(facts.get("maxmemory_policy", ""))
        if facts.get("maxmemory") and policy.startswith("allkeys"):
            raise LeaseStoreUnavailableError(
                f"lease store {self._place}: its maxmemory-policy {policy} drops leases when its memory is full. "
                "Set noeviction, or one of volatile-*: leases do not expire"
            )

    async def _run(self, work: Callable[[], _T]) -> _T:
        """Run `work` in a thread, within the time that a call may take."""
        if not self._is_open:
            raise LeaseStoreUnavailableError(f"lease store {self._place}: it is not open, use `async with`")
        with self._translated(), trio.move_on_after(self._timeout):
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
        raise LeaseStoreUnavailableError(
            f"lease store {self._place}: no answer within {self._timeout:g} s. Check that it runs, and the network"
        )

    def _close(self) -> None:
        self._is_open = False
        self._client.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn redis-py's errors into ours: the seam between the two."""
        try:
            yield
        except RedisError as error:
            if _is_replica(error):
                # It was the primary, and keeps its connections: only new ones go where the name now leads.
                self._client.connection_pool.disconnect(inuse_connections=False)
            kind, advice = _meaning(error)
            raise kind(f"lease store {self._place}, key {self._key}: {error}. {advice}") from error

    def _lease_of(self, key: str, value: bytes) -> Lease:
        try:
            return msgspec.json.decode(value, type=LeaseRow).lease()
        except (ConfigurationError, msgspec.DecodeError) as error:
            raise LeaseStoreCorruptError(
                f"lease store {self._place}, key {self._key}, lease {key!r}: {error}. Correct the field or delete it"
            ) from error


def _value(lease: Lease) -> bytes:
    return msgspec.json.encode(LeaseRow.of(lease))


def _is_replica(error: Exception) -> bool:
    """Tell whether it refused a write because it is a replica; before Redis 7 a script's error quotes that only."""
    return isinstance(error, ReadOnlyError) or "READONLY" in str(error)


def _meaning(error: Exception) -> tuple[type[LeaseError], str]:
    """Return which error of ours one of redis-py's is, and what to do about it."""
    if str(error).startswith("WRONGTYPE"):
        return LeaseStoreCorruptError, "The key belongs to another program"
    if _is_replica(error):
        return LeaseStoreUnavailableError, "This server is a read-only replica: name the primary"
    return next((kind, advice) for foreign, kind, advice in _MEANINGS if isinstance(error, foreign))


def _client(url: str, timeout: float, connections: int) -> tuple[redis.Redis, str]:
    """Return a client and what may be shown of its URL: never the password."""
    try:
        client = redis.Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            max_connections=2 * connections,  # a call that was given up keeps its own until it ends
            retry=Retry(NoBackoff(), 0),  # a write that is repeated unseen would find its own first try in its way
        )
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # options are looked at only when there is to be a connection
    except (ValueError, TypeError, AttributeError, RedisError):
        # Their messages may repeat parts of the URL, and with them the password.
        raise ConfigurationError(
            "the URL of the lease store is not one of Redis: expected redis://:PASSWORD@HOST:PORT/DATABASE, and after a"
            " ? only options of redis-py; those that begin with ssl_ need rediss://"
        ) from None
    at = pool.connection_kwargs
    at["decode_responses"] = False  # whatever the URL says: leases are read as bytes
    return client, at.get("path") or f"redis://{at.get('host', 'localhost')}:{at.get('port', 6379)}/{at.get('db', 0)}"
