from __future__ import annotations

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"


def register(api, name):
    return api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName=name)["Consumer"]["ConsumerARN"]


def test_five_consumers_are_created_at_once_and_no_more(api):
    for number in range(5):
        register(api, f"c{number}")
    another = {"StreamARN": ARN, "ConsumerName": "one-more"}
    assert api.refused("RegisterStreamConsumer", **another) == "LimitExceededException"
    api.now += 1
    register(api, "one-more")


def test_twenty_consumers_a_stream(make_api):
    api = make_api(consumer_creating=0)
    api("CreateStream", StreamName="s", ShardCount=1)
    arns = [register(api, f"c{number}") for number in range(20)]
    another = {"StreamARN": ARN, "ConsumerName": "one-more"}
    assert api.refused("RegisterStreamConsumer", **another) == "LimitExceededException"
    api("DeregisterStreamConsumer", ConsumerARN=arns[0])
    assert api.refused("RegisterStreamConsumer", **another) == "LimitExceededException"  # it is DELETING still
    api.now += 1
    register(api, "one-more")


def test_fifty_where_the_account_has_them(make_api):
    api = make_api(consumer_creating=0, consumers_per_stream=50)
    api("CreateStream", StreamName="s", ShardCount=1)
    for number in range(50):
        register(api, f"c{number}")
    another = {"StreamARN": ARN, "ConsumerName": "one-more"}
    assert api.refused("RegisterStreamConsumer", **another) == "LimitExceededException"


def test_two_ways_to_name_a_consumer_must_agree(api):
    arn = register(api, "c")
    api("DescribeStreamConsumer", ConsumerARN=arn, StreamARN=ARN, ConsumerName="c")
    for operation in ("DescribeStreamConsumer", "DeregisterStreamConsumer"):
        assert api.refused(operation, ConsumerARN=arn, ConsumerName="other") == "InvalidArgumentException"
        assert api.refused(operation, ConsumerName="c") == "InvalidArgumentException"
        assert api.refused(operation) == "InvalidArgumentException"


def test_a_page_of_consumers_comes_by_its_token_alone(api):
    for name in "abc":
        register(api, name)
    token = api("ListStreamConsumers", StreamARN=ARN, MaxResults=1)["NextToken"]
    both = {"StreamARN": ARN, "NextToken": token, "StreamCreationTimestamp": api.now}
    assert api.refused("ListStreamConsumers", **both) == "InvalidArgumentException"
    api.now += 301
    assert api.refused("ListStreamConsumers", StreamARN=ARN, NextToken=token) == "ExpiredNextTokenException"
