from __future__ import annotations

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"


def register(api, name):
    return api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName=name)["Consumer"]["ConsumerARN"]


def test_at_most_five_consumers_are_creating_at_the_same_time(api):
    for number in range(5):
        register(api, f"c{number}")
    another = {"StreamARN": ARN, "ConsumerName": "one-more"}
    assert api.error_of("RegisterStreamConsumer", **another) == "LimitExceededException"
    api.now += 1
    register(api, "one-more")


def test_a_stream_has_at_most_twenty_consumers(make_api):
    api = make_api(consumer_creating=0)
    api("CreateStream", StreamName="s", ShardCount=1)
    arns = [register(api, f"c{number}") for number in range(20)]
    another = {"StreamARN": ARN, "ConsumerName": "one-more"}
    assert api.error_of("RegisterStreamConsumer", **another) == "LimitExceededException"
    api("DeregisterStreamConsumer", ConsumerARN=arns[0])
    assert api.error_of("RegisterStreamConsumer", **another) == "LimitExceededException"  # still DELETING
    api.now += 1
    register(api, "one-more")


def test_the_consumer_limit_can_be_raised_to_fifty(make_api):
    api = make_api(consumer_creating=0, consumers_per_stream=50)
    api("CreateStream", StreamName="s", ShardCount=1)
    for number in range(50):
        register(api, f"c{number}")
    another = {"StreamARN": ARN, "ConsumerName": "one-more"}
    assert api.error_of("RegisterStreamConsumer", **another) == "LimitExceededException"


def test_the_arn_and_the_name_of_a_consumer_must_match(api):
    arn = register(api, "c")
    api("DescribeStreamConsumer", ConsumerARN=arn, StreamARN=ARN, ConsumerName="c")
    for operation in ("DescribeStreamConsumer", "DeregisterStreamConsumer"):
        assert api.error_of(operation, ConsumerARN=arn, ConsumerName="other") == "InvalidArgumentException"
        assert api.error_of(operation, ConsumerName="c") == "InvalidArgumentException"
        assert api.error_of(operation) == "InvalidArgumentException"


def test_a_next_token_for_consumers_is_exclusive_and_expires(api):
    for name in "abc":
        register(api, name)
    token = api("ListStreamConsumers", StreamARN=ARN, MaxResults=1)["NextToken"]
    both = {"StreamARN": ARN, "NextToken": token, "StreamCreationTimestamp": api.now}
    assert api.error_of("ListStreamConsumers", **both) == "InvalidArgumentException"
    api.now += 301
    assert api.error_of("ListStreamConsumers", StreamARN=ARN, NextToken=token) == "ExpiredNextTokenException"
