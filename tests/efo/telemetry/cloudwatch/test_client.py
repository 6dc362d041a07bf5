"""PutMetricData as CloudWatch sees it on the wire, and what its refusals become."""

from __future__ import annotations

import pytest

import efo
from efo import events
from efo.telemetry.cloudwatch import client as module
from efo.telemetry.cloudwatch.client import PutError, open_client
from efo.telemetry.cloudwatch.kcl_metrics import Datum
from tests.fake_cloudwatch import serving
from tests.loopback import refused_port

WHERE = {"region": "eu-west-1", "endpoint_url": None, "ca_file": None, "profile": None}
TIME = Datum("Time", "Milliseconds", (("Operation", "ProcessTask"), ("ShardId", "s-0")), 1.7e9, 3, 60.0, 10.0, 30.0)


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.fixture
def cloudwatch():
    with serving() as fake:
        yield fake


async def test_a_metric_is_a_signed_statistic_set_on_the_wire(cloudwatch):
    async with open_client("billing", **WHERE | {"endpoint_url": cloudwatch.url}) as client:
        await client.put([TIME])
    (headers,) = cloudwatch.headers
    assert headers["x-amz-target"] == "GraniteServiceVersion20100801.PutMetricData"
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDTEST/")
    assert "/eu-west-1/monitoring/aws4_request" in headers["authorization"]
    assert "hunter2" not in str(headers)
    assert cloudwatch.requests == [
        {
            "Namespace": "billing",
            "MetricData": [
                {
                    "MetricName": "Time",
                    "Unit": "Milliseconds",
                    "Dimensions": [
                        {"Name": "Operation", "Value": "ProcessTask"},
                        {"Name": "ShardId", "Value": "s-0"},
                    ],
                    "Timestamp": 1_700_000_000,
                    "StatisticValues": {"SampleCount": 3.0, "Sum": 60.0, "Minimum": 10.0, "Maximum": 30.0},
                }
            ],
        }
    ]


async def test_a_thousand_metrics_are_one_compressed_request(cloudwatch):
    async with open_client("billing", **WHERE | {"endpoint_url": cloudwatch.url}) as client:
        await client.put([TIME] * 1000)
    assert [len(request["MetricData"]) for request in cloudwatch.requests] == [1000]
    assert cloudwatch.headers[0]["content-encoding"] == "gzip"


@pytest.mark.parametrize(
    ("status", "code", "is_final"),
    [
        (400, "InvalidParameterValueException", True),
        (400, "MissingRequiredParameterException", True),
        (403, "AccessDeniedException", False),
    ],
)
async def test_a_refusal_says_whether_a_retry_is_of_use(cloudwatch, status, code, is_final):
    cloudwatch.refusal = status, code
    async with open_client("billing", **WHERE | {"endpoint_url": cloudwatch.url}) as client:
        with pytest.raises(PutError, match="it is refused") as error:
            await client.put([TIME])
    assert error.value.is_final is is_final
    assert code.startswith(error.value.error_type)


async def test_a_server_that_is_gone_may_be_back_later(monkeypatch):
    with refused_port() as gone:
        async with open_client("billing", **WHERE | {"endpoint_url": f"http://127.0.0.1:{gone}"}) as client:
            with pytest.raises(PutError) as error:
                await client.put([TIME])
    assert not error.value.is_final


@pytest.mark.parametrize("body", [b'"not allowed"', b"null", b'{"__type": 3}'])
async def test_an_error_response_of_another_server_is_a_failure_like_others(cloudwatch, body):
    cloudwatch.refusal, cloudwatch.body = (403, ""), body
    async with open_client("billing", **WHERE | {"endpoint_url": cloudwatch.url}) as client:
        with pytest.raises(PutError) as error:
            await client.put([TIME])
    assert not error.value.is_final


async def test_metrics_that_botocore_rejects_are_refused_for_good(cloudwatch):
    async with open_client("", **WHERE | {"endpoint_url": cloudwatch.url}) as client:
        with pytest.raises(PutError) as error:
            await client.put([TIME])
    assert error.value.is_final


async def test_without_a_region_it_is_not_opened(monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(efo.errors.ConfigurationError, match="no AWS region for CloudWatch"):
        async with open_client("billing", **WHERE | {"region": None}):
            pass


async def test_an_application_publishes_what_its_observer_has_seen(cloudwatch):
    async with efo.telemetry.open_cloudwatch("billing", region="eu-west-1", endpoint_url=cloudwatch.url) as observer:
        observer(events.EventReceived("s-0", 4, 900, 1500, None))
    (behind,) = cloudwatch.metrics().items()
    assert behind[0] == ("ProcessTask", "s-0", "MillisBehindLatest")
    assert behind[1]["StatisticValues"]["Maximum"] == 1500.0


def test_the_time_out_leaves_room_for_the_next_publication():
    assert module.TIMEOUT < 10
