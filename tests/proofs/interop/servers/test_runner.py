"""The runner runs all checks, and reports those that failed."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from efo.errors import AccessDeniedError, TransportError
from efo.events import EventReceived
from proofs.interop.servers import checks, runner
from proofs.interop.servers.launcher import ServerError
from proofs.interop.servers.reader import Reader
from proofs.interop.servers.results import OK, CheckContext, Result


class Endpoint:
    exited = False

    def check(self):
        if self.exited:
            raise ServerError("server exited with 1")


class Stream:
    items = ()

    async def put(self, _count):
        return []


@pytest.fixture
def context(monkeypatch):
    """Return a context without a server: every reader has an event."""

    async def ok(*_arguments, **_settings):
        return OK

    async def no_wait(_reader):
        pass

    @asynccontextmanager
    async def reading(_endpoint, _application, reader, **_settings):
        reader.observe(EventReceived("shard", 0, 0, 0, None))
        yield

    monkeypatch.setattr(checks, "renewal", ok)
    monkeypatch.setattr(runner, "reading", reading)
    monkeypatch.setattr(Reader, "one_more_event", no_wait)
    return CheckContext(Endpoint(), Stream())


async def passes(_context):
    return OK


async def fails(_context):
    raise TransportError("connection reset")


async def test_a_check_that_raises_fails_and_the_others_run(context):
    messages = []
    results = await runner._read_all(context, {"first": fails, "second": passes}, 1, messages.append)
    assert results == {"renewal": OK, "first": Result("failed", "connection reset"), "second": OK}
    assert messages == ["renewal: ok", "first: FAILED: connection reset", "second: ok"]


async def test_the_exit_of_the_server_ends_the_run(context):
    context.endpoint.exited = True
    with pytest.raises(ServerError, match="exited"):
        await runner._read_all(context, {"first": fails}, 1, print)


async def test_a_main_application_that_stops_reading_fails(context, monkeypatch):
    @asynccontextmanager
    async def reading(*_arguments, **_settings):
        yield
        raise AccessDeniedError("AccessDeniedException", "no")

    monkeypatch.setattr(runner, "reading", reading)
    results = await runner._read_all(context, {"first": passes}, 1, print)
    assert results["main"] == Result("failed", "stopped reading: AccessDeniedException: no")
