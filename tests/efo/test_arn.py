"""Streams by name and by ARN."""

import pytest

from efo.arn import parse_stream
from efo.errors import ConfigurationError

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        ("orders", ("orders", None)),
        ("a.B-c_9", ("a.B-c_9", None)),
        ("x" * 128, ("x" * 128, None)),
        (ARN, ("orders", "eu-central-1")),
        (ARN.replace("aws", "aws-cn").replace("eu-central-1", "cn-north-1"), ("orders", "cn-north-1")),
        (ARN.replace("aws", "aws-us-gov"), ("orders", "eu-central-1")),
    ],
)
def test_names_and_arns(stream, expected):
    assert parse_stream(stream) == expected


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        ("", "not a stream's name"),
        ("two words", "not a stream's name"),
        ("x" * 129, "not a stream's name"),
        ("orders\n", "not a stream's name"),
        ("caf\u00e9", "not a stream's name"),
        ("arn:aws:kinesis:eu-central-1:123456789012:stream/", "not a stream's ARN"),
        ("arn:aws:kinesis:eu-central-1:12345:stream/orders", "not a stream's ARN"),
        ("arn:aws:s3:::bucket", "not a stream's ARN"),
        (ARN + "/more", "not a stream's ARN"),
        (ARN + "/consumer/app:1700000000", "a consumer's ARN"),
    ],
)
def test_anything_else_is_refused(stream, said):
    with pytest.raises(ConfigurationError, match=said):
        parse_stream(stream)
