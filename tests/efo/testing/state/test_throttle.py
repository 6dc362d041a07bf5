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


def test_the_limits_are_of_operations_that_are_served():
    assert set(LIMITS) <= set(OPERATIONS)


@pytest.mark.parametrize(
    ("operation", "calls", "members", "elsewhere"),
    [
        ("ListStreams", 5, {}, None),
        ("DescribeStream", 10, {"StreamName": "a"}, {"StreamName": "b"}),
        ("DescribeStreamSummary", 20, {"StreamName": "a"}, {"StreamARN": ARN + "b"}),
        ("DescribeLimits", 1, {}, None),
    ],
)
def test_calls_that_the_account_has_so_many_of(throttled, operation, calls, members, elsewhere):
    for _ in range(calls):
        throttled(operation, **members)
    assert throttled.refused(operation, **members) == "LimitExceededException"
    if elsewhere is not None:
        assert throttled.refused(operation, **elsewhere) == "LimitExceededException"
    throttled.now += 1
    throttled(operation, **members)


@pytest.mark.parametrize(
    ("operation", "calls", "member"), [("ListShards", 1000, "StreamName"), ("ListStreamConsumers", 5, "StreamARN")]
)
def test_calls_that_each_stream_has_so_many_of(throttled, operation, calls, member):
    prefix = ARN if member == "StreamARN" else ""
    for _ in range(calls):
        throttled(operation, **{member: prefix + "a"})
    assert throttled.refused(operation, **{member: prefix + "a"}) == "LimitExceededException"
    throttled(operation, **{member: prefix + "b"})


def test_the_window_slides(throttled):
    for _ in range(5):
        throttled("ListStreams")
        throttled.now += 0.15
    assert throttled.refused("ListStreams") == "LimitExceededException"
    throttled.now += 0.3  # the first of the five is a second ago
    throttled("ListStreams")
    assert throttled.refused("ListStreams") == "LimitExceededException"


def test_consumers_are_counted_by_their_stream_whatever_names_them(throttled):
    arn = throttled("RegisterStreamConsumer", StreamARN=ARN + "a", ConsumerName="c")["Consumer"]["ConsumerARN"]
    for _ in range(10):
        throttled("DescribeStreamConsumer", ConsumerARN=arn)
        throttled("DescribeStreamConsumer", StreamARN=ARN + "a", ConsumerName="c")
    assert throttled.refused("DescribeStreamConsumer", ConsumerARN=arn) == "LimitExceededException"


def test_it_can_be_switched_off(api):
    for _ in range(30):
        api("DescribeStreamSummary", StreamName="s")
