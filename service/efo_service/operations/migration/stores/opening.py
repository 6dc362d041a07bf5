"""A store of another library's checkpoints, from its URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from efo.errors import ConfigurationError
from efo.leases.stores.dynamodb.client import TableLocation
from efo_service.operations.migration.stores.rows import OpenRows

_OPTIONS: Final = ("region", "endpoint_url", "ca_file", "profile", "proxy_url")
_EXPECTED: Final = (
    "expected dynamodb:TABLE, redis://:PASSWORD@HOST:PORT/DATABASE, postgresql://USER:PASSWORD@HOST/DATABASE or "
    "mysql://USER:PASSWORD@HOST/DATABASE"
)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a URL leaves out. `table`: of a database. `region`, `profile`, `proxy_url`: of DynamoDB."""

    table: str
    region: str | None = None
    profile: str | None = None
    proxy_url: str | None = None


def dynamodb_table(url: str) -> str | None:
    """Return the name of the table of a URL `dynamodb:TABLE`, None for other URLs."""
    parts = urlsplit(url)
    return unquote(parts.netloc or parts.path).strip("/") if parts.scheme == "dynamodb" else None


def open_rows(url: str, defaults: Defaults) -> OpenRows:
    """Open the store of a URL, which may have a password: it is not in any message. Raises ConfigurationError.

    The drivers are imported when they are used.
    """
    match url.partition(":")[0].lower():
        case "dynamodb":
            from efo_service.operations.migration.stores.dynamodb import open_dynamodb_rows  # noqa: PLC0415

            return open_dynamodb_rows(*_dynamodb(url, defaults))
        case "redis" | "rediss" | "unix":
            from efo_service.operations.migration.stores.redis import open_redis_rows  # noqa: PLC0415

            return open_redis_rows(url)
        case "postgresql" | "postgres" | "mysql":
            from efo_service.operations.migration.stores.sql import open_sql_rows  # noqa: PLC0415

            return open_sql_rows(url, defaults.table)
        case _:
            raise ConfigurationError(f"the URL of the checkpoints: {_EXPECTED}")


def _dynamodb(url: str, defaults: Defaults) -> tuple[str, TableLocation]:
    options = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise ConfigurationError(f"dynamodb:TABLE has no option {unknown[0]!r}: expected {', '.join(_OPTIONS)}")
    table = dynamodb_table(url)
    if not table:
        raise ConfigurationError("dynamodb: names no table: write dynamodb:TABLE?region=REGION")
    location = TableLocation(
        region=options.get("region", defaults.region),
        endpoint_url=options.get("endpoint_url"),
        ca_file=options.get("ca_file"),
        profile=options.get("profile", defaults.profile),
        timeout=10.0,
        proxy_url=options.get("proxy_url", defaults.proxy_url),
    )
    return table, location
