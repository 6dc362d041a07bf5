"""One stream of several: its name, its region, its settings, and what is refused."""

from __future__ import annotations

import pytest

from efo.aws.role import AssumedRole
from efo.consumer.streams.config import StreamConfig, check_one_balance, region_of, stream_config, stream_configs
from efo.errors import ConfigurationError
from efo.kinesis.client import KinesisClient
from efo.settings import ConsumerSettings, Position

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
THEIRS = f"{ARN}/consumer/theirs:1700000000"
ROLE = AssumedRole("arn:aws:iam::123456789012:role/reader")
COMMON = ConsumerSettings(consumer_name="ours", consumer_tags={"team": "billing"}, max_leases=7)


def client(stream: str = "clicks", region: str | None = "us-east-1") -> KinesisClient:
    return KinesisClient(stream, None, None, None, "host", "https", lambda: 0.0, region=region)


@pytest.mark.parametrize(
    ("stream", "name", "region"),
    [("orders", "orders", None), (ARN, "orders", "eu-west-1"), (client(), "clicks", "us-east-1")],
)
def test_a_stream_says_its_name_and_maybe_its_region(stream, name, region):
    config = stream_config(stream)
    assert (config.name, config.known_region) == (name, region)
    assert stream_config(config) is config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stream": client(), "role": ROLE}, "role and region have no effect on an open client"),
        ({"stream": client(), "region": "eu-west-1"}, "role and region have no effect on an open client"),
        ({"stream": "no/name"}, "is not the name of a stream"),
        ({"stream": "orders", "initial_position": "yesterday"}, "initial_position='yesterday'"),
        ({"stream": "orders", "role": "arn:aws:iam::1:role/x"}, "expected an AssumedRole"),
        ({"stream": "orders", "region": 7}, "region=7: expected a text, or None"),
        ({"stream": "orders", "stream_id": 7}, "stream_id=7: expected a text, or None"),
        ({"stream": "orders", "settings": 7}, "settings=7: expected a ConsumerSettings"),
        ({"stream": "orders", "consumer_arn": "arn:x"}, "is not the ARN of a fan-out consumer"),
    ],
)
def test_a_wrong_configuration_is_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        StreamConfig(**arguments)


def test_what_a_stream_may_have():
    StreamConfig(stream=client())
    config = StreamConfig(stream="orders", role=ROLE, region="eu-west-1", stream_id="1:orders:2")
    assert config.settings_over(COMMON) is COMMON


def test_the_settings_of_a_stream_are_its_own_or_those_of_all():
    own = ConsumerSettings(max_leases=3)
    assert StreamConfig(stream="orders", settings=own).settings_over(COMMON) is own
    moved = StreamConfig(stream="orders", initial_position="LATEST").settings_over(COMMON)
    assert (moved.start_position, moved.max_leases) == (Position.latest(), 7)
    theirs = StreamConfig(stream="orders", consumer_arn=THEIRS).settings_over(COMMON)
    assert (theirs.consumer_arn, theirs.consumer_name, theirs.consumer_tags) == (THEIRS, None, {})
    assert theirs.max_leases == 7


@pytest.mark.parametrize(
    ("streams", "region"),
    [
        ([ARN], "eu-west-1"),
        ([ARN, StreamConfig(stream=client(region="eu-west-1"))], "eu-west-1"),
        ([ARN, client()], None),
        ([ARN, "clicks"], None),
        (["clicks"], None),
        ([], None),
        (ARN, None),  # which is refused later
        (iter([ARN]), None),  # it may be read once
        (lambda: [ARN], None),
    ],
)
def test_streams_have_a_region_if_all_name_the_same_one(streams, region):
    assert region_of(streams) == region


def test_streams_are_named_in_their_order():
    configs = stream_configs(iter(["b", ARN, "a"]))
    assert [(name, config.name) for name, config in configs.items()] == [("b", "b"), ("orders", "orders"), ("a", "a")]


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        ("orders", r"streams='orders': expected several"),
        (b"orders", "expected several"),
        (7, "streams=7: expected several"),
        (["orders", 7], "stream 7: expected a name, an ARN, a client or a StreamConfig"),
        (["orders", ARN], "the stream 'orders' is there twice"),
    ],
)
def test_what_is_no_list_of_streams_is_refused(streams, message):
    with pytest.raises(ConfigurationError, match=message):
        stream_configs(streams)


def greedy(*_arguments: object) -> None:
    """Assign nothing."""


def test_all_streams_have_one_balance():
    check_one_balance([], COMMON)
    alike = [StreamConfig(stream=name, settings=ConsumerSettings(balance="throughput")) for name in ("a", "b")]
    check_one_balance(alike, COMMON)
    with pytest.raises(ConfigurationError, match="balance of the stream 'a' is 'throughput', and of 'c' 'count'"):
        check_one_balance([*alike, StreamConfig(stream="c")], COMMON)
    other = StreamConfig(stream="d", settings=ConsumerSettings(assignment=greedy))
    with pytest.raises(ConfigurationError, match=r"assignment of the stream 'c' is .*, and of 'd' greedy: the leases"):
        check_one_balance([StreamConfig(stream="c"), other], COMMON)
