"""Two streams of one process that would use the same thing."""

from __future__ import annotations

import pytest

from efo_service.config.clashes import clashes
from efo_service.config.settings import Settings

ARN = "arn:aws:kinesis:eu-west-1:{}:stream/a"


def settings(stream: str, *, kinesis=None, consumer=None, leases=None, relay=None, cloudwatch=None) -> Settings:
    return Settings(
        kinesis={"stream": stream, **(kinesis or {})},
        consumer=consumer or {},
        leases=leases or {},
        relay=relay or {},
        cloudwatch=cloudwatch or {},
    )


def found(one: Settings, other: Settings) -> list[str]:
    return list(clashes({"one": one, "other": other}))


def test_two_streams_with_the_defaults_share_nothing():
    assert found(settings("a"), settings("b")) == []


def test_a_sentence_names_both_streams_and_the_remedy():
    (sentence,) = found(settings("a"), settings("b", relay={"topic": "a"}))
    assert sentence.startswith("[streams.one] and [streams.other]: both write the topic 'a' of the log ")
    assert sentence.endswith("choose another [relay] topic, dead_letters or directory for one of them")


KAFKA = {"sink": "kafka"}
DYNAMODB = {"store": "dynamodb"}
SUMMARY = {"level": "summary"}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (settings("a"), settings("a", relay={"topic": "b"}), "both are the application 'efo' on the stream 'a'"),
        (
            settings("a"),
            settings("a", consumer={"application": "x", "consumer_name": "efo"}, relay={"topic": "b"}),
            "as the fan-out consumer 'efo'",
        ),
        (settings("a"), settings("b", relay={"directory": "var/../var/log", "topic": "a"}), "the topic 'a' of the log"),
        (settings("a", relay={"dead_letters": "x"}), settings("b", relay={"dead_letters": "x"}), "the topic 'x'"),
        (settings("a", relay={"dead_letters": "b"}), settings("b"), "the topic 'b' of the log"),
        (settings("a", relay={"sink": "jsonl"}), settings("b", relay={"sink": "jsonl"}), "the JSON lines to stdout"),
        (
            settings("a", relay={"sink": "jsonl", "jsonl_file": "x/../f"}),
            settings("b", relay={"sink": "jsonl", "jsonl_file": "f"}),
            "/f: choose another [relay] jsonl_file",
        ),
        (settings("a", relay=KAFKA), settings("b", relay={**KAFKA, "topic": "a"}), "of the Kafka cluster"),
        (settings("a", leases=DYNAMODB), settings("b", leases=DYNAMODB), "the DynamoDB table 'efo'"),
        (
            settings("a", leases=DYNAMODB),
            settings("b", leases={**DYNAMODB, "dynamodb": {"stream_id": "123456789012:b:1"}}),
            "the DynamoDB table 'efo'",
        ),
        (settings("a", cloudwatch=SUMMARY), settings("b", cloudwatch=SUMMARY), "the CloudWatch namespace 'efo'"),
    ],
)  # fmt: skip
def test_what_only_one_stream_may_have_is_refused(one, other, expected):
    (sentence,) = found(one, other)
    assert expected in sentence
    assert found(other, one) != []


def stream_id(number: int) -> dict:
    return {**DYNAMODB, "dynamodb": {"stream_id": f"123456789012:s:{number}"}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (settings("a"), settings("a", consumer={"application": "x"}, relay={"topic": "b"})),
        (settings("a", leases=stream_id(1)), settings("b", leases=stream_id(2))),
        (settings("a", leases=DYNAMODB), settings("b", leases={**DYNAMODB, "dynamodb": {"table": "x-2"}})),
        (settings("a", relay={"directory": "x"}), settings("b", relay={"directory": "y", "topic": "a"})),
        (settings("a", cloudwatch=SUMMARY), settings("b")),
        (settings("a", cloudwatch=SUMMARY), settings("b", cloudwatch={**SUMMARY, "namespace": "other"})),
        (settings("a", cloudwatch=SUMMARY), settings("b", cloudwatch={**SUMMARY, "region": "us-east-1"})),
        (
            settings("a", relay={**KAFKA, "dead_letters": "x"}),
            settings("b", relay={**KAFKA, "dead_letters": "x"}),  # each letter names its stream
        ),
        (
            settings(ARN.format("111111111111")),
            settings(
                ARN.format("222222222222"),
                consumer={"application": "x", "consumer_name": "efo"},
                relay={"topic": "b"},
            ),
        ),
        (
            settings("a", kinesis={"region": "eu-west-1"}),
            settings(
                "a",
                kinesis={"region": "us-east-1"},
                consumer={"application": "x", "consumer_name": "efo"},
                relay={"topic": "b"},
            ),
        ),
    ],
)  # fmt: skip
def test_what_differs_is_not_refused(one, other):
    assert found(one, other) == []
