from __future__ import annotations

import msgspec
import pytest

from efo.testing.state.encryption import KMS_ERRORS

FIRST = "shardId-000000000000"
ALL = pytest.mark.parametrize("code", sorted(KMS_ERRORS))


async def end_of(call):
    """Return the name of the exception that ends the call, with nothing after it."""
    message = await call.next_message()
    while message.headers[":message-type"] == "event":
        message = await call.next_message()
    assert msgspec.json.decode(message.payload)["message"]
    assert await call.next_message() is None
    return message.headers[":exception-type"]


@ALL
async def test_a_key_that_fails_ends_a_live_subscription(fake, client, consumer_arn, code, autojump_clock):
    fake.encrypt("s")
    fake.put("s", "k", b"x", "0")
    call = await client.subscribed(consumer_arn, FIRST)
    assert (await call.next_event())["Records"][0]["EncryptionType"] == "KMS"
    fake.fail_key("s", code)
    assert await end_of(call) == code


@ALL
async def test_a_key_that_fails_already_ends_a_new_subscription(fake, client, consumer_arn, code, autojump_clock):
    fake.encrypt("s")
    fake.fail_key("s", code)
    assert await end_of(await client.subscribed(consumer_arn, FIRST)) == code


async def test_a_key_that_works_again(fake, client, consumer_arn, autojump_clock):
    fake.encrypt("s")
    fake.fail_key("s", "KMSThrottlingException")
    await end_of(await client.subscribed(consumer_arn, FIRST))
    fake.fail_key("s", None)
    fake.put("s", "k", b"x", "0")
    call = await client.subscribed(fake.register("s", "d").arn, FIRST)
    assert len((await call.next_event())["Records"]) == 1


async def test_a_stream_without_encryption_needs_no_key(fake, client, consumer_arn, autojump_clock):
    fake.fail_key("s", "KMSDisabledException")
    fake.put("s", "k", b"x", "0")
    call = await client.subscribed(consumer_arn, FIRST)
    assert (await call.next_event())["Records"][0]["EncryptionType"] == "NONE"


@ALL
def test_a_key_that_fails_refuses_what_needs_it(api, code):
    where = api("GetShardIterator", StreamName="s", ShardId=FIRST, ShardIteratorType="TRIM_HORIZON")
    key = {"StreamName": "s", "EncryptionType": "KMS", "KeyId": "alias/k"}
    api.core.stream("s").encryption.failing = code
    assert api.refused("StartStreamEncryption", **key) == code
    api.core.stream("s").encryption.failing = None
    api("StartStreamEncryption", **key)
    api.core.stream("s").encryption.failing = code
    entry = {"PartitionKey": "k", "Data": ""}
    assert api.refused("PutRecord", StreamName="s", **entry) == code
    assert api.refused("PutRecords", StreamName="s", Records=[entry]) == code
    assert api.refused("GetRecords", **where) == code


async def test_another_name_is_no_error_of_kms(fake):
    with pytest.raises(ValueError, match="KMSDisabledException"):
        fake.fail_key("s", "KMSIsAsleep")
