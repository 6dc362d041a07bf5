"""The databases of the examples, and what is in them at the end."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiobotocore.session
import psycopg

from proofs.local_servers.dynamodb import CREDENTIALS, credentials, serve_dynamodb_local
from proofs.local_servers.postgres import serve_postgres

Orders = list[tuple[str, int]]
"""The customer and number of each order in the database, in the order in which they were stored."""
_QUERY: Final = "SELECT customer, data FROM orders ORDER BY id"
_TABLE: Final = "orders"
REGION: Final = CREDENTIALS["AWS_REGION"]


@dataclass(frozen=True, slots=True)
class Database:
    """`argument`: of the example, after the stream's name. `environment`: what its process needs besides.

    `orders`: reads what is stored. `counts`: the same where only the orders of each customer are counted.
    """

    argument: str
    environment: dict[str, str]
    orders: Callable[[], Orders] | None = None
    counts: Callable[[], Counter[str]] | None = None


@contextmanager
def sqlite(path: Path) -> Iterator[Database]:
    """SQLite, by the module of the standard library."""
    file = path / "orders.sqlite"

    def orders() -> Orders:
        if not file.exists():
            return []
        connection = sqlite3.connect(file, timeout=30)
        try:
            return [(customer, int(data)) for customer, data in connection.execute(_QUERY)]
        except sqlite3.OperationalError:  # no table yet
            return []
        finally:
            connection.close()

    yield Database(str(file), {}, orders)


@contextmanager
def postgres(_path: Path) -> Iterator[Database]:
    """PostgreSQL, by psycopg."""
    with serve_postgres() as url:

        def orders() -> Orders:
            with psycopg.connect(url) as connection:
                try:
                    return [(customer, int(data)) for customer, data in connection.execute(_QUERY)]
                except psycopg.errors.UndefinedTable:
                    return []

        yield Database(url, {}, orders)


@contextmanager
def sqlalchemy(path: Path) -> Iterator[Database]:
    """PostgreSQL, by SQLAlchemy."""
    with postgres(path) as database:
        url = database.argument.replace("postgresql://", "postgresql+psycopg://")
        yield Database(url, {}, database.orders)


@contextmanager
def dynamodb(_path: Path) -> Iterator[Database]:
    """DynamoDB Local."""
    with serve_dynamodb_local() as url, credentials():

        async def call(method: str, **arguments: Any) -> Any:
            async with aiobotocore.session.get_session().create_client("dynamodb", REGION, endpoint_url=url) as client:
                return await getattr(client, method)(**arguments)

        def counts() -> Counter[str]:
            items = asyncio.run(call("scan", TableName=_TABLE, ConsistentRead=True))["Items"]
            found = {item["id"]["S"]: int(item["orders"]["N"]) for item in items if "orders" in item}
            return Counter({name.removeprefix("orders of "): count for name, count in found.items()})

        asyncio.run(
            call(
                "create_table",
                TableName=_TABLE,
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        )
        yield Database(
            _TABLE, {**CREDENTIALS, "AWS_ENDPOINT_URL_DYNAMODB": url, "AWS_DEFAULT_REGION": REGION}, counts=counts
        )


DATABASES: Final = {"sqlite": sqlite, "postgres": postgres, "sqlalchemy": sqlalchemy, "dynamodb": dynamodb}
