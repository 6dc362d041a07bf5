from __future__ import annotations

import pytest

from efo.testing.errors import FakeError
from efo.testing.server.shapes import INPUTS
from efo.testing.server.validation import Shape, check, required

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"


def error_of(operation, members):
    with pytest.raises(FakeError) as caught:
        check(members, INPUTS[operation])
    return caught.value.code, caught.value.message


def violation(value, path, rule):
    return f"Value {value} at '{path}' failed to satisfy constraint: {rule}"


@pytest.mark.parametrize(
    ("operation", "members", "violations"),
    [
        ("CreateStream", {}, [violation("null", "streamName", "Member must not be null")]),
        ("CreateStream", {"StreamName": None}, [violation("null", "streamName", "Member must not be null")]),
        (
            "CreateStream",
            {"StreamName": "a b", "ShardCount": 0},
            [
                violation("'a b'", "streamName", "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"),
                violation("'0'", "shardCount", "Member must have value greater than or equal to 1"),
            ],
        ),
        (
            "DescribeStream",
            {"Limit": 10_001},
            [violation("'10001'", "limit", "Member must have value less than or equal to 10000")],
        ),
        (
            "ListShards",
            {"StreamName": "s" * 129, "ShardFilter": {"Type": "UNKNOWN"}},
            [
                violation(f"'{'s' * 129}'", "streamName", "Member must have length less than or equal to 128"),
                violation(
                    "'UNKNOWN'",
                    "shardFilter.type",
                    "Member must satisfy enum value set: [AFTER_SHARD_ID, AT_TRIM_HORIZON, FROM_TRIM_HORIZON, "
                    "AT_LATEST, AT_TIMESTAMP, FROM_TIMESTAMP]",
                ),
            ],
        ),
        (
            "PutRecords",
            {"Records": [{"Data": "", "PartitionKey": "k"}, {"PartitionKey": ""}]},
            [
                violation("null", "records.2.member.data", "Member must not be null"),
                violation("''", "records.2.member.partitionKey", "Member must have length greater than or equal to 1"),
            ],
        ),
        (
            "PutRecords",
            {"Records": []},
            [violation("'[]'", "records", "Member must have length greater than or equal to 1")],
        ),
        (
            "AddTagsToStream",
            {"StreamName": "s", "Tags": {"": "v" * 257}},
            [
                violation("''", "tags.key", "Member must have length greater than or equal to 1"),
                violation(f"'{'v' * 256}'", "tags..member", "Member must have length less than or equal to 256"),
            ],
        ),
        (
            "PutRecord",
            {"Data": "A" * 13_981_020, "PartitionKey": "k"},
            [violation("'java.nio.HeapByteBuffer'", "data", "Member must have length less than or equal to 10485760")],
        ),
    ],
)
def test_all_violations_are_counted_and_listed(operation, members, violations):
    count = f"{len(violations)} validation error{'s' if len(violations) > 1 else ''} detected: "
    assert error_of(operation, members) == ("ValidationException", count + "; ".join(violations))


@pytest.mark.parametrize(
    ("operation", "members", "token"),
    [
        ("ListStreams", [], "START_ARRAY"),
        ("ListStreams", None, "NULL_VALUE"),
        ("ListStreams", {"Limit": "5"}, "STRING_VALUE"),
        ("ListStreams", {"Limit": True}, "BOOLEAN_VALUE"),
        ("ListStreams", {"Limit": 1.5}, "DECIMAL_VALUE"),
        ("DescribeStream", {"StreamName": 7}, "NUMBER_VALUE"),
        ("DescribeStream", {"StreamName": {}}, "START_OBJECT"),
        ("PutRecords", {"Records": {}}, "START_OBJECT"),
        ("PutRecords", {"Records": ["x"]}, "STRING_VALUE"),
        ("PutRecords", {"Records": [{"Data": 7}]}, "NUMBER_VALUE"),
        ("AddTagsToStream", {"Tags": {"k": 7}}, "NUMBER_VALUE"),
        ("SubscribeToShard", {"StartingPosition": {"Type": 7}}, "NUMBER_VALUE"),
        ("SubscribeToShard", {"StartingPosition": {"Type": "LATEST", "Timestamp": "now"}}, "STRING_VALUE"),
        ("DeleteStream", {"EnforceConsumerDeletion": "yes"}, "STRING_VALUE"),
    ],
)
def test_a_wrong_type_is_a_serialization_exception(operation, members, token):
    code, message = error_of(operation, members)
    assert code == "SerializationException"
    assert message.startswith(f"{token} can not be converted to a ")


@pytest.mark.parametrize("operation", sorted(INPUTS))
def test_every_missing_required_member_is_reported(operation):
    members = INPUTS[operation].members
    required_names = [name for name, member in members.items() if member.required]
    if required_names:
        code, message = error_of(operation, {})
        assert code == "ValidationException"
        assert message.count("Member must not be null") == len(required_names)
    else:
        check({}, INPUTS[operation])


def test_unknown_members_and_nulls_are_ignored():
    check({"StreamName": "s", "Limit": None, "Unknown": {"member": 1}}, INPUTS["DescribeStream"])


def test_a_long_value_is_truncated_in_the_message():
    with pytest.raises(FakeError) as caught:
        check({"A": "x" * 1_000_000}, Shape(kind="structure", members={"A": required(Shape(kind="string", maximum=1))}))
    assert len(caught.value.message) < 500


def test_the_message_never_contains_data():
    _, message = error_of("PutRecord", {"Data": b"s3cret" * 2_000_000, "PartitionKey": "k"})
    assert "s3cret" not in message
