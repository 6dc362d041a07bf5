"""A lease store in Redis: for workers on many machines that share a persistent Redis.

All leases of one application on one stream are one hash: a field per lease, with the lease as JSON. So one command
reads all of them, and in a Redis cluster they are on one node. Every write is a script that writes only if the value is
still the one that was read: the first of two competing writes succeeds.

How much a crash or fail-over of Redis loses depends on its settings, see docs/leases.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import msgspec
import trio

from efo.arn import parse_stream
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
    raise ImportError(f"the Redis lease store needs redis-py: pip install 'efo[redis]' ({error})") from error

_T = TypeVar("_T")

VERSION: Final = 1
"""The version of the format. It is a field of the hash, so that every lease scan reads it."""
_VERSION_FIELD: Final = b"#version"  # not a valid shard id

_CREATE: Final = """
    redis.call('HSETNX', KEYS[1], '#version', ARGV[3])
    return redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
"""
_WRITE: Final = """
    if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
    return 1
"""

_ERRORS: Final[tuple[tuple[type[Exception], type[LeaseError], str], ...]] = (
    (AuthenticationError, LeaseStoreUnavailableError, "check user and password"),
    (NoPermissionError, LeaseStoreUnavailableError, "grant the user the permissions in docs/leases.md"),
    (OutOfMemoryError, LeaseStoreUnavailableError, "give the server more memory"),
    (MovedError, LeaseStoreUnavailableError, "this server is a cluster node: use the URL of the node that has the key"),
    (RedisError, LeaseStoreUnavailableError, "check the server and its address"),
)


class RedisLeaseStore(RowStore):
    """A LeaseStore in a Redis database: `async with RedisLeaseStore(...) as store:`.

    `url`: `redis://[USER]:PASSWORD@HOST:PORT/DATABASE`; `rediss:` for TLS. The leases are the hash
    `efo:leases:{APPLICATION/STREAM}`.
    `timeout`: maximum seconds per call.
    `connections`: maximum number of concurrent calls.

    Opening raises ConfigurationError (invalid URL), LeaseStoreUnavailableError (server unreachable, access refused, a
    replica, or a policy that evicts keys without expiry) and LeaseStoreCorruptError (leases of a newer efo, or a key of
    another program).

    A cancelled call returns at once, and its command completes in the background within `timeout`. Its effect is
    then unknown, but never partial.
    """

    def __init__(self, url: str, application: str, stream: str, *, timeout: float = 5.0, connections: int = 4) -> None:
        self._lease_scope = LeaseScope(application, stream)
        self._key = f"efo:leases:{{{application}/{parse_stream(stream)[0]}}}"
        self._client, self._location = _client(url, timeout, connections)
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
        """Add a lease unless its key exists; return whether it was added."""
        added = await self._run(lambda: self._create_script([self._key], [lease.key, _value(lease), VERSION]))
        return bool(added)

    async def delete(self, key: str) -> None:
        """Delete a lease, if it exists."""
        await self._run(lambda: self._client.hdel(self._key, key))

    async def _write(self, key: str, change: Change) -> Lease:
        def write() -> Lease:
            while True:  # repeated only if another write succeeded in between
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
                f"lease store {self._location}, key {self._key}: its version is {(version or b'missing').decode()}, "
                f"this efo supports {VERSION}: use the efo release that wrote the leases, or a newer one"
            )
        return [self._lease_of(key.decode(), value) for key, value in fields.items()]

    def _read(self, key: str) -> bytes | None:
        return cast("bytes | None", self._client.hget(self._key, key))

    def _check(self) -> None:
        """Refuse a server that is a replica, or that evicts leases when its memory is full."""
        try:
            info = self._client.info()
        except NoPermissionError:
            return  # the permission is optional
        if info.get("role") == "slave":
            raise LeaseStoreUnavailableError(
                f"lease store {self._location}: this server is a read-only replica: use the URL of the primary"
            )
        policy = str(info.get("maxmemory_policy", ""))
        if info.get("maxmemory") and policy.startswith("allkeys"):
            raise LeaseStoreUnavailableError(
                f"lease store {self._location}: maxmemory-policy {policy} evicts leases when the memory is full: "
                "set noeviction, or one of volatile-*, because leases have no expiry"
            )

    async def _run(self, work: Callable[[], _T]) -> _T:
        """Run `work` in a thread, within the timeout of a call."""
        if not self._is_open:
            raise LeaseStoreUnavailableError(f"lease store {self._location} is not open: use `async with`")
        with self._translate_errors(), trio.move_on_after(self._timeout):
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
        raise LeaseStoreUnavailableError(
            f"lease store {self._location}: no response within {self._timeout:g} s: check the server and the network"
        )

    def _close(self) -> None:
        self._is_open = False
        self._client.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise the errors of redis-py as errors of efo."""
        try:
            yield
        except RedisError as error:
            if _is_replica(error):
                # A former primary keeps its connections open: only a new one resolves the host name again.
                self._client.connection_pool.disconnect(inuse_connections=False)
            kind, advice = _classify(error)
            raise kind(f"lease store {self._location}, key {self._key}: {error}; {advice}") from error

    def _lease_of(self, key: str, value: bytes) -> Lease:
        try:
            return msgspec.json.decode(value, type=LeaseRow).lease()
        except (ConfigurationError, msgspec.DecodeError) as error:
            raise LeaseStoreCorruptError(
                f"lease store {self._location}, key {self._key}, lease {key!r}: {error}; correct the field or delete it"
            ) from error


def _value(lease: Lease) -> bytes:
    return msgspec.json.encode(LeaseRow.of(lease))


def _is_replica(error: Exception) -> bool:
    """Return whether the server is a replica that refused a write. Before Redis 7, a script's error only quotes it."""
    return isinstance(error, ReadOnlyError) or "READONLY" in str(error)


def _classify(error: Exception) -> tuple[type[LeaseError], str]:
    """Return the type of efo's error for an error of redis-py, and what to do about it."""
    if str(error).startswith("WRONGTYPE"):
        return LeaseStoreCorruptError, "the key belongs to another program"
    if _is_replica(error):
        return LeaseStoreUnavailableError, "this server is a read-only replica: use the URL of the primary"
    return next((kind, advice) for redis_error, kind, advice in _ERRORS if isinstance(error, redis_error))


def _client(url: str, timeout: float, connections: int) -> tuple[redis.Redis, str]:
    """Return a client, and its URL without the password."""
    try:
        client = redis.Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            max_connections=2 * connections,  # an abandoned call keeps its connection until it ends
            retry=Retry(NoBackoff(), 0),  # a repeated write would meet the effect of its first try
        )
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # only this checks the options
    except (ValueError, TypeError, AttributeError, RedisError):
        # Their messages may contain parts of the URL, and so the password.
        raise ConfigurationError(
            "the URL of the lease store is not a valid Redis URL: expected redis://:PASSWORD@HOST:PORT/DATABASE, "
            "optionally with options of redis-py after a ?; options that begin with ssl_ need rediss://"
        ) from None
    options = pool.connection_kwargs
    options["decode_responses"] = False  # overrides the URL: leases are read as bytes
    return (
        client,
        options.get("path")
        or f"redis://{options.get('host', 'localhost')}:{options.get('port', 6379)}/{options.get('db', 0)}",
    )
