"""What a start needs of aiobotocore: nothing, if the environment has credentials and the service responds."""

import json
import subprocess
import sys

import pytest

from efo.testing import FakeKinesisThread, FakeSettings

READER = """
import collections, json, sys
import trio
import efo
from efo.kinesis.service_call import ServiceCaller

calls = collections.Counter()
original = ServiceCaller.call

async def counted(self, operation, body):
    calls[operation] += 1
    return await original(self, operation, body)

ServiceCaller.call = counted
done = trio.Event()

async def handle(batch):
    done.set()

async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: efo.consume("orders", handle, application="app", leases="memory:"))
        await done.wait()
        nursery.cancel_scope.cancel()

trio.run(main)
heavy = [name for name in ("aiobotocore", "aiohttp", "httpx2", "asyncio") if name in sys.modules]
print(json.dumps([heavy, calls]))
"""


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Return a monkeypatch of an environment without AWS settings."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return monkeypatch


def test_the_first_record_takes_three_calls_of_the_control_plane_and_no_aiobotocore(environment):
    with FakeKinesisThread(settings=FakeSettings(consumer_creating=0.0)) as fake:
        fake.create_stream("orders")
        fake.register("orders", "app")
        fake.put("orders", "key", b"1")
        for name, value in fake.environment.items():
            environment.setenv(name, value)
        done = subprocess.run([sys.executable, "-c", READER], check=True, capture_output=True, text=True, timeout=60)
    heavy, calls = json.loads(done.stdout)
    assert heavy == []
    assert calls == {"DescribeStreamSummary": 1, "DescribeStreamConsumer": 1, "ListShards": 1, "SubscribeToShard": 1}
