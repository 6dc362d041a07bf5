"""The two sides of the comparison: an endpoint by its URL, and the fake in this process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import trio
from botocore.credentials import ReadOnlyCredentials

from efo.aws.clock import ServiceClock
from efo.aws.credentials import CredentialSource
from efo.kinesis.aws.client import Signer
from efo.kinesis.aws.connector import Connector
from efo.kinesis.aws.endpoint import find_endpoint
from efo.kinesis.connection_pool import ConnectionPool
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.server.background import background
from proofs.interop.comparison.caller import Caller

_AWS: Final = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_REGION: Final = "us-east-1"
SETTINGS: Final = FakeSettings(stream_creating=10, stream_updating=10, stream_deleting=10, consumer_creating=5)
"""The states last about as long as on AWS, so that calls in these states can be made."""


def is_aws(url: str) -> bool:
    """Return whether an endpoint is one of AWS: calls cost money, and need real credentials."""
    return (urlsplit(url).hostname or "").lower().endswith(_AWS)


@asynccontextmanager
async def endpoint_caller(url: str, *, region: str | None, ca_file: str | None) -> AsyncIterator[Caller]:
    """Open a caller of an endpoint. Only AWS gets the credentials of this environment, others get made-up ones.

    Raises ConfigurationError, and botocore's errors.
    """
    aws = is_aws(url)
    endpoint = find_endpoint(
        region=region or (None if aws else _REGION), endpoint_url=url, ca_file=ca_file, profile=None
    )
    connector = Connector(
        endpoint.host, endpoint.port, ca_file=endpoint.ca_file if endpoint.scheme == "https" else None
    )
    source: Any = CredentialSource(region=endpoint.region) if aws else _MadeUp()
    pool = ConnectionPool(connector.connect, address=connector.address)
    async with background() as nursery:
        await nursery.start(pool.run)
        sign = Signer(source, ServiceClock(), url, endpoint.region).sign
        yield Caller(pool, sign, authority=endpoint.authority, scheme=endpoint.scheme, clock=time.time)


@asynccontextmanager
async def fake_caller(
    fake: FakeKinesis | None = None, *, clock: Callable[[], float] | None = time.time
) -> AsyncIterator[Caller]:
    """Open a caller of a fake in this process; without `fake`, of one like AWS in its times."""
    fake = fake if fake is not None else FakeKinesis(settings=SETTINGS, clock=clock)
    async with fake, background() as nursery:
        pool = ConnectionPool(fake.kinesis("any").connect, address="the fake")
        await nursery.start(pool.run)
        yield Caller(pool, _sign_nothing, authority="fake", scheme="http", clock=fake.clock)


async def _sign_nothing(_target: str, _body: bytes) -> Sequence[tuple[str, str]]:
    await trio.lowlevel.checkpoint()
    return ()


class _MadeUp:
    """Credentials for servers that accept any."""

    async def get(self) -> ReadOnlyCredentials:
        await trio.lowlevel.checkpoint()
        return ReadOnlyCredentials("AKIAIOSFODNN7EXAMPLE", "made-up", None)
