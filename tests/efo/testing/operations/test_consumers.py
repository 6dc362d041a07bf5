from __future__ import annotations

import json

import pytest

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
STATEMENT = {"Effect": "Allow", "Principal": {"AWS": "123456789012"}, "Action": "kinesis:PutRecord", "Resource": ARN}
POLICY = json.dumps({"Version": "2012-10-17", "Statement": [STATEMENT]})


@pytest.fixture(params=["stream", "consumer"])
def resource(request, api):
    """The ARN of an ACTIVE stream or consumer."""
    if request.param == "stream":
        return ARN
    arn = api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")["Consumer"]["ConsumerARN"]
    api.now += 1
    return arn


def test_the_policy_of_a_resource_is_put_returned_and_deleted(api, resource):
    assert api("GetResourcePolicy", ResourceARN=resource) == {"Policy": "{}"}
    assert api("PutResourcePolicy", ResourceARN=resource, Policy=POLICY) is None
    assert api("GetResourcePolicy", ResourceARN=resource) == {"Policy": POLICY}
    other = json.dumps({"Statement": STATEMENT})
    api("PutResourcePolicy", ResourceARN=resource, Policy=other)
    assert api("GetResourcePolicy", ResourceARN=resource) == {"Policy": other}
    assert api("DeleteResourcePolicy", ResourceARN=resource) is None
    assert api("GetResourcePolicy", ResourceARN=resource) == {"Policy": "{}"}
    assert api.error_of("DeleteResourcePolicy", ResourceARN=resource) == "ResourceNotFoundException"


def test_a_policy_belongs_to_one_resource(api):
    arn = api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")["Consumer"]["ConsumerARN"]
    api("PutResourcePolicy", ResourceARN=ARN, Policy=POLICY)
    assert api("GetResourcePolicy", ResourceARN=arn) == {"Policy": "{}"}
    unknown = ARN + "x"
    for operation in ("GetResourcePolicy", "DeleteResourcePolicy"):
        assert api.error_of(operation, ResourceARN=unknown) == "ResourceNotFoundException"
    assert api.error_of("PutResourcePolicy", ResourceARN=unknown, Policy=POLICY) == "ResourceNotFoundException"


def test_only_an_active_resource_takes_a_policy(make_api):
    api = make_api(stream_creating=1)
    api("CreateStream", StreamName="s", ShardCount=1)
    assert api.error_of("PutResourcePolicy", ResourceARN=ARN, Policy=POLICY) == "ResourceInUseException"
    api.now += 1
    arn = api("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")["Consumer"]["ConsumerARN"]
    assert api.error_of("PutResourcePolicy", ResourceARN=arn, Policy=POLICY) == "ResourceInUseException"
    api.now += 1
    api("PutResourcePolicy", ResourceARN=arn, Policy=POLICY)


@pytest.mark.parametrize(
    "policy",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"Statement":[]}',
        '{"Statement":["a"]}',
        json.dumps({"Statement": [{"Effect": "Allow"}]}),
    ],
)
def test_an_invalid_policy_is_rejected(api, policy):
    assert api.error_of("PutResourcePolicy", ResourceARN=ARN, Policy=policy) == "InvalidArgumentException"
    assert api("GetResourcePolicy", ResourceARN=ARN) == {"Policy": "{}"}
