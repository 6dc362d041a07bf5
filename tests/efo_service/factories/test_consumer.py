"""KCL's metrics of the service, from its settings."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from efo.events import EventReceived, ignore_events
from efo.telemetry.cloudwatch import publisher
from efo_service.config.cloudwatch import CloudWatchSettings
from efo_service.config.settings import Settings
from efo_service.factories.consumer import open_metrics
from tests.fake_cloudwatch import serving

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")


async def test_by_default_nothing_is_published():
    async with open_metrics(Settings(kinesis={"stream": "orders"})) as observer:
        assert observer is ignore_events


@pytest.mark.parametrize(
    ("chosen", "namespace", "region"),
    [
        ({}, "billing", "eu-west-1"),
        ({"namespace": "shop/orders", "region": "eu-central-1"}, "shop/orders", "eu-central-1"),
    ],
)
async def test_namespace_and_region_are_those_of_the_application_and_the_stream_by_default(chosen, namespace, region):

    with serving() as cloudwatch:
        settings = Settings(
            kinesis={"stream": ARN},
            consumer={"application": "billing"},
            cloudwatch={"level": "summary", "endpoint_url": cloudwatch.url, **chosen},
        )
        async with open_metrics(settings) as observer:
            assert isinstance(observer, publisher.CloudWatchPublisher)
            observer(EventReceived("s-0", 1, 900, 7, None))
    assert [request["Namespace"] for request in cloudwatch.requests] == [namespace]
    assert f"/{region}/monitoring/" in cloudwatch.headers[0]["authorization"]


@pytest.mark.parametrize("namespace", ["AWS/Kinesis", ":app", "", "a\nb"])
def test_a_namespace_that_cloudwatch_refuses_is_refused(namespace):
    with pytest.raises(ValidationError, match="is not a namespace"):
        CloudWatchSettings(namespace=namespace)
