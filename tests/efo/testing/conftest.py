"""Fixtures: an HTTP/2 client for the fake, and the API without HTTP."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from efo.testing import FakeKinesis, FakeSettings
from efo.testing.server.dispatch import Request, Service
from efo.testing.state.core import Core
from efo.testing.state.subscriptions import Subscriptions
from tests.http2_client import Http2Client

START = 1_767_225_600.0


@pytest.fixture
def http2_client() -> Callable[..., Http2Client]:
    return Http2Client


@pytest.fixture
def settings() -> FakeSettings:
    return FakeSettings(consumer_creating=0)


@pytest.fixture
async def fake(settings: FakeSettings):
    """A fake under virtual time, with a stream `s` of two shards and an ACTIVE consumer `c`."""
    async with FakeKinesis(settings=settings) as fake:
        fake.create_stream("s", 2)
        yield fake


@pytest.fixture
async def client(fake: FakeKinesis) -> Http2Client:
    return Http2Client(await fake.kinesis("s").connect())


@pytest.fixture
def consumer_arn(fake: FakeKinesis) -> str:
    return fake.register("s", "c").arn


class Api:
    """The API without HTTP. `now`: its clock, in seconds since the epoch."""

    def __init__(self, **settings):
        self.now = START
        defaults = {"stream_creating": 0, "stream_updating": 0, "stream_deleting": 0, "throttle": False}
        self.core = Core(FakeSettings(**defaults | settings), lambda: self.now)
        self.service = Service(self.core, Subscriptions(self.core))

    def raw(self, target, body, method="POST", path="/", content_type="application/x-amz-json-1.1"):
        headers = {"x-amz-target": target, "content-type": content_type}
        response = self.service.respond(Request(method, path, headers, body))
        assert ("content-length", str(len(response.body))) in response.headers
        return response.status, msgspec.json.decode(response.body) if response.body else None

    def __call__(self, operation, **members):
        """Call an operation successfully. Return the members of the response."""
        status, response = self.raw(f"Kinesis_20131202.{operation}", msgspec.json.encode(members))
        assert status == 200, response
        return response

    def error_of(self, operation, **members):
        """Call an operation that fails. Return the type of the error."""
        status, response = self.raw(f"Kinesis_20131202.{operation}", msgspec.json.encode(members))
        assert status == 400
        assert set(response) == {"__type", "message"}
        return response["__type"]


@pytest.fixture(scope="session")
def make_api() -> type[Api]:
    return Api


@pytest.fixture
def api() -> Api:
    """The API with a stream `s` of two shards. Stream operations take no time, and calls are not throttled."""
    api = Api()
    api("CreateStream", StreamName="s", ShardCount=2)
    return api
