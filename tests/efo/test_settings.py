"""Settings of a consumer: what is accepted, and what is rejected when they are made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from efo.errors import ConfigurationError
from efo.model import Checkpoint, Lease, Position
from efo.protocol.aggregation import AggregateMode
from efo.protocol.subscription import SubscriptionTiming
from efo.settings import (
    CLOCK_ERROR,
    LATEST,
    TRIM_HORIZON,
    ConsumerSettings,
    consumer_name_of,
    parse_position,
    pinned,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "position"),
    [
        (TRIM_HORIZON, Position.trim_horizon()),
        ("TRIM_HORIZON", Position.trim_horizon()),
        ("latest", Position.latest()),
        (LATEST, Position.latest()),
        (NOON, Position.at_timestamp(NOON.timestamp())),
        (NOON.astimezone(timezone(timedelta(hours=2))), Position.at_timestamp(NOON.timestamp())),
        ("2026-01-31T12:00:00Z", Position.at_timestamp(NOON.timestamp())),
        ("2026-01-31T13:00:00+01:00", Position.at_timestamp(NOON.timestamp())),
        (Position.at_timestamp(7.5), Position.at_timestamp(7.5)),
    ],
)
def test_a_position_may_be_a_string_or_a_time(value, position):
    assert parse_position(value, "initial_position") == position
    assert ConsumerSettings(initial_position=value).initial_position == position


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"read_mode": "poll"}, "read_mode='poll': expected 'fanout', 'polling' or 'auto'"),
        ({"poll_seconds": 6.0}, "poll_seconds=6.0: expected at most 5 seconds"),
        ({"poll_seconds": 0}, "poll_seconds=0: expected"),
        (
            {
                "read_mode": "polling",
                "consumer_arn": "arn:aws:kinesis:eu-west-1:123456789012:stream/s/consumer/c:1700000000",
            },
            "consumer_arn has no effect with read_mode='polling'",
        ),
    ],
)
def test_a_read_mode_that_cannot_be_meant_is_rejected(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        ConsumerSettings(**settings)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("newest", "initial_position='newest': expected efo.TRIM_HORIZON, efo.LATEST"),
        ("2026-01-31T12:00:00", "the time has no zone"),
        ("1969-12-31T23:59:59Z", "timestamp=-1.0: expected"),
        ("0001-01-01T00:00:00+01:00", "timestamp=-[0-9.]+: expected"),
        (NOON.replace(tzinfo=None), "the time has no zone"),
        (7.5, "initial_position=7.5"),
        (Checkpoint.TRIM_HORIZON, "initial_position=<Checkpoint>"),
        (Position.at("x"), "initial_position: sequence_number='x': expected a text of decimal digits"),
        (Position.after(7), "initial_position: sequence_number=7"),
        (Position.at("9" * 130), "expected a text of decimal digits"),
        (Position.at_timestamp("noon"), "initial_position: timestamp='noon'"),
        (Position.at_timestamp(float("nan")), "initial_position: timestamp=nan"),
        (Position.at_timestamp(-1), "initial_position: timestamp=-1"),
        (Position("newest"), "initial_position: type='newest': expected a PositionType"),
        (Position.after("7"), "AFTER_SEQUENCE_NUMBER 7: expected TRIM_HORIZON, LATEST or a time"),
    ],
)
def test_anything_else_is_rejected_at_the_call(value, message):
    with pytest.raises(ConfigurationError, match=message.replace("(", r"\(")):
        ConsumerSettings(initial_position=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shards", "shardId-000000000000"),
        ("shards", 5),
        ("shards", []),
        ("shards", lambda: True),
        ("start_at", lambda: None),
        ("shards", [5]),
        ("shards", b"shardId-000000000000"),
        ("start_at", LATEST),
        ("consumer_name", ""),
        ("consumer_name", 5),
        ("timing", 300),
        ("graceful_handoff", "no"),
        ("balance", True),
        ("max_leases", "3"),
        ("max_leases", True),
        ("stream_window", 1024.0),
        ("checkpoint_seconds", True),
        ("aggregates", None),
        ("subscribes_per_second", 0),
        ("subscribes_per_second", float("inf")),
        ("checkpoint_seconds", -1),
        ("checkpoint_seconds", None),
        ("failover_seconds", "10"),
        ("handoff_seconds", -0.1),
        ("max_leases", 0),
        ("lease_scan_seconds", 0),
        ("lease_cleanup", 0),
        ("shard_sync_seconds", float("nan")),
        ("unsubscribe_idle_seconds", 0),
        ("shard_cooldown_seconds", -1),
        ("stream_window", 0),
        ("stream_window", 2**31),
        ("aggregates", "keep all"),
        ("consumer_tags", "team=billing"),
        ("consumer_tags", ["team"]),
        ("consumer_tags", {"team": 5}),
        ("consumer_tags", None),
        ("consumer_tags", {"": "x"}),
        ("consumer_tags", {"AWS:x": "x"}),
        ("consumer_tags", {"team": "x" * 257}),
        ("consumer_tags", {"team": "a\n"}),
        ("consumer_tags", {f"tag-{n}": "" for n in range(51)}),
    ],
)
def test_an_impossible_value_is_rejected_by_name(name, value):
    with pytest.raises(ConfigurationError, match=name):
        ConsumerSettings(**{name: value})


@pytest.mark.parametrize("name", ["lease_scan_seconds", "max_leases", "consumer_name"])
def test_none_stands_for_the_default_or_for_no_limit(name):
    assert getattr(ConsumerSettings(**{name: None}), name) is None


def test_an_aggregate_mode_may_be_given_by_its_name():
    assert ConsumerSettings(aggregates="keep").aggregates is AggregateMode.KEEP


@pytest.mark.parametrize(
    ("shards", "selected"),
    [(None, True), (["s-0"], True), ({"s-1"}, False), (lambda lease: lease.key == "s-0", True)],
)
def test_shards_are_selected_by_id_or_by_a_function(shards, selected):
    assert ConsumerSettings(shards=shards).selects(Lease("s-0", Checkpoint.TRIM_HORIZON)) is selected


@pytest.mark.parametrize(
    "timing", [{"renew_from": 0}, {"renew_to": "285"}, {"silence_timeout": -1}, {"renew_from": 290.0}]
)
def test_an_impossible_timing_is_rejected(timing):
    with pytest.raises(ConfigurationError, match=next(iter(timing))):
        SubscriptionTiming(**timing)


def test_tags_do_not_take_part_in_the_hash_of_settings():
    settings = ConsumerSettings(consumer_tags={"team": "billing", "cost center": "a/b:c+d=e@f-1"})
    assert hash(settings) == hash(ConsumerSettings())
    assert settings != ConsumerSettings()


def test_the_name_and_the_arn_of_a_consumer_must_agree():
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/fan:17"
    assert ConsumerSettings(consumer_arn=arn, consumer_name="fan").consumer_arn == arn
    with pytest.raises(ConfigurationError, match=r"consumer_name 'app' is not that of consumer_arn: .* write 'fan'"):
        ConsumerSettings(consumer_arn=arn, consumer_name="app")


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Position.latest(), Position.at_timestamp(1000.0)),
        (Position.trim_horizon(), Position.trim_horizon()),
        (Position.at("7"), Position.at("7")),
        (Position.at_timestamp(999.0), Position.at_timestamp(999.0)),
        (Position.at_timestamp(1000.0 + CLOCK_ERROR), Position.at_timestamp(1000.0)),
    ],
)
def test_a_pinned_position_does_not_move_and_is_not_in_the_future(position, expected):
    assert pinned(position, 1000.0, "initial_position") == expected


def test_a_time_in_the_future_is_a_mistake():
    with pytest.raises(
        ConfigurationError, match=r"^initial_position: 1970-01-01T00:21:41Z is in the future, and it is"
    ):
        pinned(Position.at_timestamp(1000.0 + CLOCK_ERROR + 1), 1000.0, "initial_position")


@pytest.mark.parametrize(
    "more", [{"read_mode": "polling"}, {"consumer_arn": "arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:1"}]
)
def test_an_ephemeral_consumer_needs_one_that_efo_registers(more):
    with pytest.raises(ConfigurationError, match=r"ephemeral has no effect with (read_mode|consumer_arn)"):
        ConsumerSettings(ephemeral=True, **more)


def test_the_name_of_an_ephemeral_consumer_is_of_one_worker_and_never_too_long():
    settings = ConsumerSettings(ephemeral=True)
    one, other = (consumer_name_of("x" * 128, worker, settings) for worker in ("a", "b"))
    assert one != other
    assert len(one) == 128
    assert consumer_name_of("app", "a", ConsumerSettings()) == "app"
