from __future__ import annotations

import httpx2
import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from efo.events import ConsumerOpened, ConsumerReady, ShardsListed
from efo_service.web.app import create_app
from efo_service.web.health import Health
from tests.readings import FakeReadings


@pytest.fixture
def health():
    return Health(clock=lambda: 0.0)


@pytest.fixture
async def client(health):
    registry = CollectorRegistry()
    Gauge("shards", "Shards.", registry=registry).set(4)
    app = create_app(health, registry, lambda: {"worker_id": "w-1"})
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
        yield client


async def test_livez_is_200_while_the_service_is_not_ready(client):
    assert (await client.get("/livez")).status_code == 200


async def test_readyz_is_503_and_lists_the_problems_of_a_service_that_is_not_ready(client, health):
    response = await client.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {"status": "not ready", "problems": list(health.obstacles())}


async def test_readyz_follows_health(client, health):
    health(ConsumerReady("fan", "arn", registered=True))
    health(ConsumerOpened(FakeReadings()))
    health(ShardsListed(1))
    response = await client.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"status": "ready", "problems": []})
    health.start_draining()
    assert (await client.get("/readyz")).json()["problems"] == ["draining"]


async def test_metrics_have_the_format_that_the_scraper_requests(client):
    plain = await client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    assert [family.name for family in text_string_to_metric_families(plain.text)] == ["shards"]
    openmetrics = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


async def test_status_is_the_json_of_the_status_source(client):
    assert (await client.get("/status")).json() == {"worker_id": "w-1"}


async def test_other_paths_are_404_and_other_methods_405(client):
    assert (await client.get("/")).status_code == 404
    assert (await client.post("/status")).status_code == 405
