"""A trial goes on to its end, and tells what failed on the way."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from efo.errors import AccessDeniedError, TransportError
from efo.events import EventReceived
from proofs.interop.servers import exercises, trial
from proofs.interop.servers.findings import OK, Finding, Subject
from proofs.interop.servers.reader import Reader
from proofs.interop.servers.running import ServerError


class Endpoint:
    gone = False

    def check(self):
        if self.gone:
            raise ServerError("it exited with 1")


class Stream:
    items = ()

    async def put(self, _count):
        return []


@pytest.fixture
def subject(monkeypatch):
    """Return what a trial is about, without a server: whoever reads gets an event now and then."""

    async def ok(*_arguments, **_settings):
        return OK

    async def told(_reader):
        pass

    @asynccontextmanager
    async def reading(_endpoint, _application, reader, **_settings):
        reader.observe(EventReceived("shard", 0, 0, 0, None))
        yield

    monkeypatch.setattr(exercises, "renewal", ok)
    monkeypatch.setattr(trial, "reading", reading)
    monkeypatch.setattr(Reader, "one_more_event", told)
    return Subject(Endpoint(), Stream())


async def passes(_subject):
    return OK


async def breaks(_subject):
    raise TransportError("it broke")


async def test_an_exercise_that_raises_has_failed_and_the_others_go_on(subject):
    said = []
    findings = await trial._read_all(subject, {"first": breaks, "second": passes}, 1, said.append)
    assert findings == {"renewal": OK, "first": Finding("failed", "it broke"), "second": OK}
    assert said == ["renewal: ok", "first: FAILED: it broke", "second: ok"]


async def test_a_server_that_is_gone_ends_it(subject):
    subject.endpoint.gone = True
    with pytest.raises(ServerError, match="exited"):
        await trial._read_all(subject, {"first": breaks}, 1, print)


async def test_a_main_application_that_stops_reading_has_failed(subject, monkeypatch):
    @asynccontextmanager
    async def reading(*_arguments, **_settings):
        yield
        raise AccessDeniedError("AccessDeniedException", "no")

    monkeypatch.setattr(trial, "reading", reading)
    findings = await trial._read_all(subject, {"first": passes}, 1, print)
    assert findings["main"] == Finding("failed", "it stopped reading: AccessDeniedException: no")
