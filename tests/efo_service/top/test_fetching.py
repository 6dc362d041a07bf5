"""Samples of a service that is served, and of one that does not answer."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from prometheus_client import CollectorRegistry, Counter
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from efo.events import ConsumerOpened, ConsumerReady, ShardsListed
from efo_service.errors import UnavailableError
from efo_service.top.fetching import Samples, fetch, refreshes
from efo_service.web.app import create_app
from efo_service.web.health import Health
from efo_service.web.probe import ServiceAddress
from efo_service.web.server import serve
from efo_service.web.status import Status
from tests.efo_service.top.samples import sample
from tests.readings import FakeReadings


async def fetched(nursery, app):
    url = await nursery.start(serve, app, "127.0.0.1", 0)
    port = int(url.rpartition(":")[2])
    return await trio.to_thread.run_sync(partial(fetch, ServiceAddress("127.0.0.1", port), clock=lambda: 12.5))


async def test_a_sample_has_what_the_endpoints_tell(nursery):
    health, registry = Health(clock=lambda: 0.0), CollectorRegistry()
    records = Counter(
        "messaging_client_consumed_messages", ".", ["messaging_destination_partition_id"], registry=registry
    )
    records.labels("s-0").inc(3)
    app = create_app(health, registry, Status({"application": "billing", "worker_id": "w-1"}, health))
    first = await fetched(nursery, app)
    assert (first.at, first.ready, first.counters.records) == (12.5, False, {(None, "s-0"): 3})
    assert (first.status.application, first.status.worker_id) == ("billing", "w-1")
    health(ConsumerReady("fan", "arn", registered=True))
    health(ConsumerOpened(FakeReadings()))
    health(ShardsListed(1))
    assert (await fetched(nursery, app)).ready


async def test_an_endpoint_of_another_program_is_refused(nursery):
    async def up(_request):
        return JSONResponse({"status": "UP"})

    for path in ("/status", "/other"):
        with pytest.raises(UnavailableError, match=r"the program at http://127.0.0.1:\d+ is not efo"):
            await fetched(nursery, Starlette(routes=[Route(path, up)]))


FIRST, SECOND, THIRD = (sample(at) for at in (1.0, 2.0, 3.0))
GONE = UnavailableError("no response")


def asked(*answers):
    rest = list(answers)

    def ask():
        answer = rest.pop(0)
        if isinstance(answer, UnavailableError):
            raise answer
        return answer

    return ask, lambda: not rest


def test_each_sample_comes_with_the_one_before_it():
    found = list(refreshes(*asked(FIRST, SECOND, THIRD), keep_trying=False))
    assert found == [Samples(FIRST, None), Samples(SECOND, FIRST), Samples(THIRD, SECOND)]


def test_a_sample_after_an_outage_has_none_before_it():
    found = list(refreshes(*asked(GONE, FIRST, GONE, SECOND, THIRD), keep_trying=True))
    assert found == [GONE, Samples(FIRST, None), GONE, Samples(SECOND, None), Samples(THIRD, SECOND)]


def test_an_outage_is_an_error_unless_it_keeps_trying():
    found = refreshes(*asked(FIRST, GONE), keep_trying=False)
    assert next(found) == Samples(FIRST, None)
    with pytest.raises(UnavailableError, match="no response"):
        next(found)
