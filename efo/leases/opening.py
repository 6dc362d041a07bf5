"""Makes a lease store from a path, a URL, or a store that the application made."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from efo.checks import shown
from efo.errors import ConfigurationError
from efo.leases.store import LeaseStore
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore

if TYPE_CHECKING:
    from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_SCHEMES: Final = "sqlite, postgresql, redis, rediss, unix, dynamodb, memory"
_NO_URL: Final = re.compile(r"\s.*|.*\s|(sqlite|postgres|postgresql|redis|rediss|dynamodb|memory)(//.*)?", re.DOTALL)
"""What is meant as a URL, but has no colon or has blanks around it. It would be the path of an SQLite file."""
_TABLE: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")
"""The name of a table (AWS: CreateTable, TableName)."""
_DYNAMODB_OPTIONS: Final = {"region", "endpoint_url", "ca_file", "profile", "proxy_url", "stream_id"}


@asynccontextmanager
async def open_lease_store(
    leases: str | Path | LeaseStore,
    application: str,
    stream: str,
    region: str | None = None,
    proxy_url: str | None = None,
) -> AsyncIterator[LeaseStore]:
    """Open the lease store of an application on a stream, and close it at the end.

    `leases`: the path of an SQLite file; a URL: `sqlite:PATH`, `postgresql://...`, `redis://...`, `rediss://...`,
    `unix://...` (Redis), `dynamodb:TABLE` or `memory:`; or a LeaseStore. A store that is not open yet is opened, and
    closed at the end. `region`, `proxy_url`: of the stream, for DynamoDB if the URL names none.

    Raises ConfigurationError for an unknown scheme, and for a store of another application or stream; and what opening
    the store raises.
    """
    async with AsyncExitStack() as stack:
        store = checked_lease_store(leases, application, stream, region, proxy_url)
        if isinstance(store, AbstractAsyncContextManager) and not getattr(store, "is_open", False):
            await stack.enter_async_context(store)
        yield store


def checked_lease_store(
    leases: str | Path | LeaseStore,
    application: str,
    stream: str,
    region: str | None = None,
    proxy_url: str | None = None,
) -> LeaseStore:
    """Return the lease store that `open_lease_store` opens, for the same arguments. Raises ConfigurationError."""
    store = (
        make_lease_store(leases, application, stream, region, proxy_url) if isinstance(leases, str | Path) else leases
    )
    if not hasattr(store, "ensure_scope") or isinstance(store, type):
        raise ConfigurationError(f"leases={shown(store)}: expected a path, a URL ({_SCHEMES}) or an efo lease store")
    store.ensure_scope(application, stream)
    return store


def relative_file(store: LeaseStore) -> Path | None:
    """Return the whole path of the file of a lease store that was named relative to the working directory, or None."""
    if isinstance(store, SqliteLeaseStore) and not store.path.is_absolute():
        return store.path.absolute()
    return None


def make_lease_store(
    leases: str | Path, application: str, stream: str, region: str | None = None, proxy_url: str | None = None
) -> LeaseStore:
    """Return a lease store, not yet opened, for a path or a URL. Raises ConfigurationError."""
    match = _SCHEME.match(leases) if isinstance(leases, str) else None
    if str(leases).strip() in ("", ".", ":memory:") or _NO_URL.fullmatch(str(leases)):
        raise ConfigurationError(f"leases={str(leases)!r}: expected a path or a URL ({_SCHEMES})")
    if match is None:
        return SqliteLeaseStore(Path(leases), application, stream)
    url = str(leases)
    match match[1].lower():
        case "sqlite":
            return SqliteLeaseStore(_sqlite_path(url), application, stream)
        case "postgresql" | "postgres":
            from efo.leases.stores.postgres.store import PostgresLeaseStore  # noqa: PLC0415 - only if it is used

            return PostgresLeaseStore(url, application, stream)
        case "redis" | "rediss" | "unix":
            from efo.leases.stores.redis.store import RedisLeaseStore  # noqa: PLC0415 - only if it is used

            return RedisLeaseStore(url, application, stream)
        case "dynamodb":
            return _dynamodb(urlsplit(url), application, region, proxy_url)
        case "memory":
            if url.partition(":")[2].strip("/"):
                raise ConfigurationError(f"leases={url!r}: expected memory:, which has no name")
            return MemoryLeaseStore()
        case scheme:
            raise ConfigurationError(
                f"leases: unknown scheme {scheme!r}: expected one of {_SCHEMES}, or the path of an SQLite file"
            )


def _sqlite_path(url: str) -> Path:
    """Return the path of `sqlite:PATH`, `sqlite:///RELATIVE` or `sqlite:////ABSOLUTE`, as SQLAlchemy writes them."""
    rest = url.partition(":")[2]
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host or not slash:
            raise ConfigurationError(f"leases={url!r}: expected sqlite:PATH, for example sqlite:var/leases.sqlite")
    if not rest or rest.startswith(":"):
        raise ConfigurationError(f"leases={url!r} names no file: write, for example, sqlite:var/leases.sqlite")
    return Path(unquote(rest))


def _dynamodb(url: SplitResult, application: str, region: str | None, proxy_url: str | None) -> DynamoDbLeaseStore:
    """Return the store of `dynamodb:TABLE?region=...`. Without a table it is the application's name, as in KCL."""
    from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore  # noqa: PLC0415 - only if it is used

    options = dict(parse_qsl(url.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - _DYNAMODB_OPTIONS):
        raise ConfigurationError(
            f"leases: dynamodb has no option {unknown[0]!r}: expected {', '.join(sorted(_DYNAMODB_OPTIONS))}"
        )
    table = unquote(url.netloc or url.path).strip("/")
    if table and not _TABLE.fullmatch(table):
        raise ConfigurationError(
            f"leases: {table!r} is not the name of a table: write dynamodb:TABLE?region=REGION, where TABLE has 3 to "
            "255 letters, digits, '_', '.' or '-'"
        )
    if not table and not _TABLE.fullmatch(application):
        raise ConfigurationError(
            f"application={shown(application)}: its lease table would have this name, which AWS refuses: a table has 3"
            " to 255 letters, digits, '_', '.' or '-': name it otherwise, or write leases=\"dynamodb:TABLE\""
        )
    return DynamoDbLeaseStore(
        table or application,
        region=options.get("region", region),
        endpoint_url=options.get("endpoint_url"),
        ca_file=options.get("ca_file"),
        profile=options.get("profile"),
        proxy_url=options.get("proxy_url", proxy_url),
        stream_id=options.get("stream_id"),
    )
