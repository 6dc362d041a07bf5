"""What a start needs of aiobotocore: nothing, if the environment has credentials and the service responds."""

import json
import subprocess
import sys
import time

import botocore.exceptions
import pytest

from efo.kinesis.aws.lazy import open_aiobotocore
from efo.kinesis.aws.signer import Signer
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


def opened(profile=None):
    return open_aiobotocore(profile=profile, region="us-east-1", endpoint_url="https://localhost:1", ca_file=None)


async def signed_by(lazy):
    """Return the credential scope with which a request is signed."""
    headers = dict(await Signer(lazy, "https://localhost/", "us-east-1").sign("T", b""))
    return headers["Authorization"].partition("Credential=")[2].partition("/")[0]


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


async def test_the_credentials_of_the_environment_are_used(environment):
    environment.setenv("AWS_ACCESS_KEY_ID", "AKENVIRONMENT")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with opened() as lazy:
        assert await signed_by(lazy) == "AKENVIRONMENT"


async def test_credentials_of_the_environment_that_expire_are_read_again(environment):
    environment.setenv("AWS_ACCESS_KEY_ID", "AKOLD")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    in_seconds = {name: f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + s))}"
                  for name, s in (("soon", 30), ("late", 9999))}  # fmt: skip
    environment.setenv("AWS_CREDENTIAL_EXPIRATION", in_seconds["late"])
    async with opened() as lazy:
        assert await signed_by(lazy) == "AKOLD"
    environment.setenv("AWS_CREDENTIAL_EXPIRATION", in_seconds["soon"])
    async with opened() as lazy:
        credentials = await lazy.get_credentials()
        environment.setenv("AWS_ACCESS_KEY_ID", "AKNEW")
        environment.setenv("AWS_CREDENTIAL_EXPIRATION", in_seconds["late"])
        assert (await credentials.get_frozen_credentials()).access_key == "AKNEW"


async def test_a_key_without_its_secret_is_an_error(environment):
    environment.setenv("AWS_ACCESS_KEY_ID", "AKENVIRONMENT")
    async with opened() as lazy:
        with pytest.raises(botocore.exceptions.PartialCredentialsError):
            await lazy.get_credentials()


async def test_a_profile_that_is_given_wins_over_the_environment(environment, tmp_path):
    (tmp_path / "credentials").write_text("[mine]\naws_access_key_id = AKPROFILE\naws_secret_access_key = secret\n")
    environment.setenv("AWS_ACCESS_KEY_ID", "AKENVIRONMENT")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with opened(profile="mine") as lazy:
        assert await signed_by(lazy) == "AKPROFILE"


async def test_without_credentials_in_the_environment_aiobotocore_looks_for_them(environment, tmp_path):
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = AKFILE\naws_secret_access_key = secret\n")
    async with opened() as lazy:
        assert await signed_by(lazy) == "AKFILE"
