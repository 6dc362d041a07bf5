"""FakeKinesis over TLS, and the configuration of a service that reads it."""

from __future__ import annotations

import time

import pytest

from efo.testing import FakeKinesis
from tests.e2e.running import Files


@pytest.fixture
async def fake():
    async with FakeKinesis(clock=time.time) as fake:
        fake.create_stream("orders", shards=2)
        yield fake


@pytest.fixture
async def files(fake, tmp_path):
    async with fake.serve() as address:
        yield Files(tmp_path, address.url, address.ca_file)
