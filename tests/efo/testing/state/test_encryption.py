from __future__ import annotations

import msgspec
import pytest

from efo.testing.state.tags import KMS_ERRORS

FIRST = "shardId-000000000000"
EVERY_KMS_ERROR = pytest.mark.parametrize("code", sorted(KMS_ERRORS))


async def final_exception(call):
    """Return the type of the exception that ends the call. No message follows it."""
    message = await call.next_message()
    while message.headers[":message-type"] == "event":
        message = await call.next_message()
    assert msgspec.json.decode(message.payload)["message"]
    assert await call.next_message() is None
    return message.headers[":exception-type"]


@EVERY_KMS_ERROR
async def test_a_failing_key_ends_a_live_subscription(fake, client, consumer_arn, code, autojump_clock):
    fake.encrypt("s")
    fake.put("s", "k", b"x", "0")
    call = await client.subscribed(consumer_arn, FIRST)
    assert (await call.next_event())["Records"][0]["EncryptionType"] == "KMS"
    fake.fail_key("s", code)
    assert await final_exception(call) == code


@EVERY_KMS_ERROR
async def test_a_failing_key_ends_a_new_subscription(fake, client, consumer_arn, code, autojump_clock):
    fake.encrypt("s")
    fake.fail_key("s", code)
    assert await final_exception(await client.subscribed(consumer_arn, FIRST)) == code


async def test_a_subscription_succeeds_after_the_key_works_again(fake, client, consumer_arn, autojump_clock):
    fake.encrypt("s")
    fake.fail_key("s", "KMSThrottlingException")
    await final_exception(await client.subscribed(consumer_arn, FIRST))
    fake.fail_key("s", None)
    fake.put("s", "k", b"x", "0")
    call = await client.subscribed(fake.register("s", "d").arn, FIRST)
    assert len((await call.next_event())["Records"]) == 1


async def test_a_failing_key_does_not_affect_an_unencrypted_stream(fake, client, consumer_arn, autojump_clock):
    fake.fail_key("s", "KMSDisabledException")
    fake.put("s", "k", b"x", "0")
    call = await client.subscribed(consumer_arn, FIRST)
    assert "EncryptionType" not in (await call.next_event())["Records"][0]


@EVERY_KMS_ERROR
def test_operations_that_use_a_failing_key_fail(api, code):
    iterator = api("GetShardIterator", StreamName="s", ShardId=FIRST, ShardIteratorType="TRIM_HORIZON")
    key = {"StreamName": "s", "EncryptionType": "KMS", "KeyId": "alias/k"}
    api.core.stream("s").encryption.failing = code
    assert api.error_of("StartStreamEncryption", **key) == code
    api.core.stream("s").encryption.failing = None
    api("StartStreamEncryption", **key)
    api.core.stream("s").encryption.failing = code
    entry = {"PartitionKey": "k", "Data": ""}
    assert api.error_of("PutRecord", StreamName="s", **entry) == code
    assert api.error_of("PutRecords", StreamName="s", Records=[entry]) == code
    assert api.error_of("GetRecords", **iterator) == code


async def test_an_unknown_kms_error_is_rejected(fake):
    with pytest.raises(ValueError, match="KMSDisabledException"):
        fake.fail_key("s", "KMSUnknownException")
