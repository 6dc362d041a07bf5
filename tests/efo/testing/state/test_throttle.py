from __future__ import annotations

import pytest

from efo.testing.operations.table import OPERATIONS
from efo.testing.state.throttle import LIMITS

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/"


@pytest.fixture
def throttled(make_api):
    api = make_api(throttle=True)
    for name in ("a", "b"):
        api("CreateStream", StreamName=name, ShardCount=1)
    api.now += 1
    return api


def test_all_limits_are_for_supported_operations():
    assert set(LIMITS) <= set(OPERATIONS)


@pytest.mark.parametrize(
    ("operation", "calls", "members", "other_stream"),
    [
        ("ListStreams", 5, {}, None),
        ("DescribeStream", 10, {"StreamName": "a"}, {"StreamName": "b"}),
        ("DescribeStreamSummary", 20, {"StreamName": "a"}, {"StreamARN": ARN + "b"}),
        ("DescribeLimits", 1, {}, None),
    ],
)
def test_calls_above_the_account_limit_are_rejected(throttled, operation, calls, members, other_stream):
    for _ in range(calls):
        throttled(operation, **members)
    assert throttled.error_of(operation, **members) == "LimitExceededException"
    if other_stream is not None:
        assert throttled.error_of(operation, **other_stream) == "LimitExceededException"
    throttled.now += 1
    throttled(operation, **members)


@pytest.mark.parametrize(
    ("operation", "calls", "member"), [("ListShards", 1000, "StreamName"), ("ListStreamConsumers", 5, "StreamARN")]
)
def test_calls_above_the_stream_limit_are_rejected(throttled, operation, calls, member):
    prefix = ARN if member == "StreamARN" else ""
    for _ in range(calls):
        throttled(operation, **{member: prefix + "a"})
    assert throttled.error_of(operation, **{member: prefix + "a"}) == "LimitExceededException"
    throttled(operation, **{member: prefix + "b"})


def test_a_limit_applies_to_a_sliding_window(throttled):
    for _ in range(5):
        throttled("ListStreams")
        throttled.now += 0.15
    assert throttled.error_of("ListStreams") == "LimitExceededException"
    throttled.now += 0.3  # the first of the five calls was one second ago
    throttled("ListStreams")
    assert throttled.error_of("ListStreams") == "LimitExceededException"


def test_consumer_calls_are_counted_by_stream_for_arns_and_names(throttled):
    arn = throttled("RegisterStreamConsumer", StreamARN=ARN + "a", ConsumerName="c")["Consumer"]["ConsumerARN"]
    for _ in range(10):
        throttled("DescribeStreamConsumer", ConsumerARN=arn)
        throttled("DescribeStreamConsumer", StreamARN=ARN + "a", ConsumerName="c")
    assert throttled.error_of("DescribeStreamConsumer", ConsumerARN=arn) == "LimitExceededException"


def test_throttling_can_be_disabled(api):
    for _ in range(30):
        api("DescribeStreamSummary", StreamName="s")
