"""Calls to a Redis server: the timeout of a call, and the errors of redis-py as those of efo.

Only this module imports redis-py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import redis
import trio
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

from efo.errors import (
    ConfigurationError,
    LeaseError,
    LeaseStoreCorruptError,
    LeaseStoreFullError,
    LeaseStoreUnavailableError,
)
from efo.proxy import host_and_port
from efo.third_party_errors import reason_of

_T = TypeVar("_T")

_ERRORS: Final[tuple[tuple[type[Exception], type[LeaseError], str], ...]] = (
    (AuthenticationError, LeaseStoreUnavailableError, "check user and password"),
    (NoPermissionError, LeaseStoreUnavailableError, "grant the user the permissions in docs/leases.md"),
    (OutOfMemoryError, LeaseStoreFullError, "give the server more memory"),
    (MovedError, LeaseStoreUnavailableError, "this server is a cluster node: use the URL of the node that has the key"),
    (RedisError, LeaseStoreUnavailableError, "check the server and its address"),
)


class RedisClient:
    """Runs calls of redis-py in threads, up to `connections` at a time, about one key.

    `url`: a URL of redis-py. `timeout`: maximum seconds per call. Raises ConfigurationError for an invalid URL.

    `redis`: the client of redis-py, for use in `run` only. `location`: the database without the password, and the key.
    """

    def __init__(self, url: str, key: str, timeout: float, connections: int) -> None:
        self.redis, self._server = _client(url, timeout, connections)
        self.location = f"{self._server}, key {key}"
        self._timeout = timeout
        self._threads = trio.CapacityLimiter(connections)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Run `work` in a thread, within the timeout of a call. Raises LeaseError."""
        with self._translate_errors(), trio.move_on_after(self._timeout):
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
        raise LeaseStoreUnavailableError(
            f"lease store {self._server}: no response within {self._timeout:g} s: check the server and the network"
        )

    def check_server(self) -> None:
        """Refuse a server that is a replica, or that evicts leases when its memory is full."""
        try:
            info = self.redis.info()
        except NoPermissionError:
            return  # the permission is optional
        if info.get("role") == "slave":
            raise LeaseStoreUnavailableError(
                f"lease store {self._server}: this server is a read-only replica: use the URL of the primary"
            )
        policy = str(info.get("maxmemory_policy", ""))
        if info.get("maxmemory") and policy.startswith("allkeys"):
            raise LeaseStoreUnavailableError(
                f"lease store {self._server}: maxmemory-policy {policy} evicts leases when the memory is full: "
                "set noeviction, or one of volatile-*, because leases have no expiry"
            )

    def close(self) -> None:
        """Close all connections."""
        self.redis.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise the errors of redis-py as errors of efo."""
        try:
            yield
        except RedisError as error:
            if _is_replica(error):
                # A former primary keeps its connections open: only a new one resolves the host name again.
                self.redis.connection_pool.disconnect(inuse_connections=False)
            kind, advice = _classify(error)
            raise kind(f"lease store {self.location}: {reason_of(error)}; {advice}") from None


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
    server = host_and_port(options.get("host", "localhost"), options.get("port", 6379))
    return client, options.get("path") or f"redis://{server}/{options.get('db', 0)}"
