"""Answers of the control plane that are not AWS's: an error that may pass, and no listing without an end."""

from __future__ import annotations

import pytest
import trio

from efo.errors import InternalFailureError, ProtocolError
from efo.kinesis.aws import control_plane
from efo.kinesis.aws.control_plane import AwsControlPlane
from efo.model import Position

SHARD = {
    "ShardId": "s-0",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
    "SequenceNumberRange": {"StartingSequenceNumber": "0"},
}
ODD = [
    {},
    {"message": "Service Unavailable"},
    {"Shards": None, "StreamDescriptionSummary": None, "Consumers": 5, "ConsumerDescription": [], "Consumer": "x"},
    {"Shards": [{}], "StreamDescriptionSummary": {}, "Consumers": [[]], "Consumer": {}, "Records": [{}]},
    {"Shards": [SHARD | {"HashKeyRange": {}}], "StreamDescriptionSummary": "x", "Records": {"a": 1}},
]


class Both:
    """The two ways of calls, which return what they are asked to."""

    region = "eu-west-1"

    def __init__(self, answer):
        self.answer = answer
        self.calls = 0

    async def read(self, _operation, _arguments):
        await trio.lowlevel.checkpoint()
        self.calls += 1
        return self.answer, {}

    async def call(self, _operation, **_arguments):
        await trio.lowlevel.checkpoint()
        return self.answer | {"ResponseMetadata": {"HTTPHeaders": {}}}


def plane(answer):
    both = Both(answer)
    return AwsControlPlane(both, both, "orders", None), both


@pytest.mark.parametrize("answer", ODD, ids=range(len(ODD)))
async def test_an_answer_that_is_not_awss_is_a_protocol_error(answer):
    kinesis, _ = plane(answer)
    for name, call in (
        ("DescribeStreamSummary", kinesis.describe_stream),
        ("DescribeStreamConsumer", lambda: kinesis.describe_consumer("arn", "x")),
        ("RegisterStreamConsumer", lambda: kinesis.register_consumer("arn", "x")),
        ("GetRecords", lambda: kinesis.get_records("i", 1)),
    ):
        with pytest.raises(ProtocolError, match=f"the response to {name} is not AWS's") as caught:
            await call()
        assert caught.value.retryable
    with pytest.raises(InternalFailureError, match="has no ShardIterator"):
        await kinesis.get_shard_iterator("s", Position.trim_horizon())


@pytest.mark.parametrize("answer", ODD, ids=range(len(ODD)))
async def test_a_listing_that_is_not_awss_is_a_protocol_error_unless_it_has_nothing(answer):
    kinesis, _ = plane(answer)
    for name, member, call in (
        ("ListShards", "Shards", kinesis.list_shards),
        ("ListShards", "Shards", lambda: kinesis.shards_open_at(0.0)),
        ("ListStreamConsumers", "Consumers", lambda: kinesis.list_consumers("arn")),
    ):
        if not answer.get(member):  # AWS's model does not promise one
            assert not await call()
            continue
        with pytest.raises(ProtocolError, match=f"the response to {name} is not AWS's") as caught:
            await call()
        assert caught.value.retryable


async def test_a_listing_whose_pages_never_end_is_left(monkeypatch):
    monkeypatch.setattr(control_plane, "MAX_PAGES", 20)
    kinesis, both = plane({"Shards": [SHARD], "Consumers": [], "NextToken": "again"})
    with pytest.raises(ProtocolError, match="ListShards has more than 20 pages"):
        await kinesis.list_shards()
    assert both.calls == 21
    with pytest.raises(ProtocolError, match="ListStreamConsumers has more than 20 pages"):
        await kinesis.list_consumers("arn")
