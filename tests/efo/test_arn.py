"""Parsing a stream's name or ARN."""

import pytest

from efo.arn import parse_consumer, parse_stream
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
def test_a_name_or_an_arn_gives_the_name_and_the_region(stream, expected):
    assert parse_stream(stream) == expected


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ("", "not the name of a stream"),
        ("two words", "not the name of a stream"),
        ("x" * 129, "not the name of a stream"),
        ("orders\n", "not the name of a stream"),
        ("caf\u00e9", "not the name of a stream"),
        ("arn:aws:kinesis:eu-central-1:123456789012:stream/", "not the ARN of a stream"),
        ("arn:aws:kinesis:eu-central-1:12345:stream/orders", "not the ARN of a stream"),
        ("arn:aws:s3:::bucket", "not the ARN of a stream"),
        (ARN + "/more", "not the ARN of a stream"),
        (ARN + "/consumer/app:1700000000", "the ARN of a consumer"),
    ],
)
def test_any_other_string_is_rejected(stream, message):
    with pytest.raises(ConfigurationError, match=message):
        parse_stream(stream)


def test_the_arn_of_a_consumer_has_that_of_its_stream():
    assert parse_consumer(f"{ARN}/consumer/billing:1700000000") == (ARN, "billing")


@pytest.mark.parametrize(
    "arn", ["billing", ARN, f"{ARN}/consumer/billing", f"{ARN}/consumer/:1", f"{ARN}/consumer/b:1x"]
)
def test_what_is_no_arn_of_a_consumer_is_refused(arn):
    with pytest.raises(ConfigurationError, match="is not the ARN of a fan-out consumer: expected"):
        parse_consumer(arn)
