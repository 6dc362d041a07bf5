"""The lease stores of several streams: a store of each, or one multi-stream table of DynamoDB for all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, runtime_checkable

import trio

from efo.checks import shown
from efo.consumer.streams.config import StreamConfig
from efo.errors import ConfigurationError
from efo.kinesis.client import KinesisClient
from efo.leases.opening import make_lease_store
from efo.leases.store import LeaseStore


@runtime_checkable
class MultiStreamTable(Protocol):
    """A lease table for many streams, such as a DynamoDbLeaseStore. It must be open before `for_stream`."""

    @property
    def is_open(self) -> bool:
        """Whether it is open."""
        ...

    async def __aenter__(self) -> Self:
        """Open it. Raises EfoError."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        ...

    def for_stream(self, stream_id: str) -> LeaseStore:
        """Return the lease store of one stream. `stream_id`: "account:stream:epoch"."""
        ...


StreamLeases = str | Path | Callable[[str], str | Path | LeaseStore] | MultiStreamTable
"""Where the leases of several streams are kept: the path of an SQLite file or a URL, which serve all streams; a table
of DynamoDB, which has KCL's multi-stream keys then; or a function that returns the `leases` of a stream by its name."""

LeasesOf = Callable[[StreamConfig, KinesisClient], Awaitable[str | Path | LeaseStore]]
"""Returns what `open_consumer` takes as `leases`, for one stream. Raises EfoError."""
_EXPECTED: Final = (
    "expected a path, a URL, a DynamoDbLeaseStore, or a function that returns the lease store of a stream by its name"
)


@asynccontextmanager
async def open_lease_stores(
    leases: StreamLeases, application: str, region: str | None, proxy_url: str | None = None
) -> AsyncIterator[LeasesOf]:
    """Open what the lease stores of all streams share, and yield a function that finds those of one. Raises EfoError.

    `region`, `proxy_url`: of DynamoDB, if a URL names none.
    """
    is_known = isinstance(leases, str | Path | MultiStreamTable) or callable(leases)
    if isinstance(leases, type) or not is_known:
        raise ConfigurationError(f"leases={shown(leases)}: {_EXPECTED}")
    table: object = leases
    if isinstance(leases, str) and leases.lower().startswith("dynamodb:"):
        table = make_lease_store(leases, application, "", region, proxy_url)
    if isinstance(table, MultiStreamTable):
        async with AsyncExitStack() as stack:
            if not table.is_open:
                await stack.enter_async_context(table)
            yield partial(_find_in_table, table)
    elif not isinstance(leases, MultiStreamTable):
        yield partial(_find, leases)


async def _find_in_table(table: MultiStreamTable, config: StreamConfig, kinesis: KinesisClient) -> LeaseStore:
    return table.for_stream(config.stream_id or await _described_id(kinesis))


async def _find(
    leases: str | Path | Callable[[str], str | Path | LeaseStore], config: StreamConfig, _kinesis: KinesisClient
) -> str | Path | LeaseStore:
    await trio.lowlevel.checkpoint()
    return leases if isinstance(leases, str | Path) else leases(config.name)


async def _described_id(kinesis: KinesisClient) -> str:
    """Return KCL's identifier of a stream: its account, its name and when it was created, in seconds."""
    description = await kinesis.control_plane.describe_stream()
    if description.created_at is None:
        raise ConfigurationError(
            f"the service does not say when the stream {kinesis.stream!r} was created: set stream_id of its"
            " StreamConfig to account:stream:epoch"
        )
    account = description.arn.split(":")[4]
    return f"{account}:{description.name}:{int(description.created_at)}"
