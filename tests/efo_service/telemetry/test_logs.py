from __future__ import annotations

import io
import json
import logging
import warnings
from typing import get_args

import pytest
import structlog

from efo import events
from efo.model import Checkpoint, Position
from efo_service.telemetry.logs import _NAMES, configure, log_events, severity_of


class Output(io.StringIO):
    """The output of the log. `writes` lists each write."""

    def __init__(self):
        super().__init__()
        self.writes = []

    def write(self, text):
        self.writes.append(text)
        return super().write(text)


@pytest.fixture
def output():
    """Configure the log at "debug", and return its output."""
    output = Output()
    handlers, level = logging.root.handlers[:], logging.root.level
    configure("debug", output)
    yield output
    logging.captureWarnings(capture=False)
    logging.root.handlers, logging.root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
def lines(output):
    """Return a function that returns the parsed lines of the log so far."""
    return lambda: [json.loads(line) for line in output.getvalue().splitlines()]


def test_every_event_has_a_log_name():
    assert set(_NAMES) == set(get_args(events.Event))


def test_an_event_is_one_json_line(lines):
    log_events("info")(events.ShardStarted("s-0", Checkpoint("12", 3)))
    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "shard_started", "level": "info", "shard_id": "s-0", "checkpoint": "12/3"}


def test_a_line_is_one_write(output):
    """With two writes, another worker could write between them if Python does not buffer."""
    log_events("info")(events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON))
    logging.getLogger("botocore").warning("from a library")
    assert [text[-2:] for text in output.writes] == ["}\n", "}\n"]


@pytest.mark.parametrize(
    ("to", "text"),
    [
        (Checkpoint("12"), "12"),
        (Position.trim_horizon(), "TRIM_HORIZON"),
        (Position.after("7"), "AFTER_SEQUENCE_NUMBER 7"),
    ],
)
def test_a_reposition_is_logged_with_a_readable_target(lines, to, text):
    log_events("info")(events.ShardRepositioned("s-0", to))
    assert lines()[0]["to"] == text


def test_events_below_the_level_are_not_logged(lines):
    log_events("info")(events.CheckpointSaved("s-0", Checkpoint.TRIM_HORIZON))
    assert lines() == []
    log_events("debug")(events.CheckpointSaved("s-0", Checkpoint.TRIM_HORIZON))
    assert [line["event"] for line in lines()] == ["checkpoint_saved"]


@pytest.mark.parametrize(
    ("event", "severity"),
    [
        (events.SubscribeAttempted("s", 0, 0, None), logging.DEBUG),
        (events.SubscribeAttempted("s", 0, 0, "throttled"), logging.WARNING),
        (events.SubscriptionEnded("s", 250, "renewed"), logging.DEBUG),
        (events.SubscriptionEnded("s", 2, "reset"), logging.WARNING),
        (events.EventReceived("s", 1, 1, 1, None), logging.DEBUG),
        (events.LeaseLost("s", "taken"), logging.WARNING),
        (events.LeaseLost("s", "released"), logging.INFO),
        (events.LeaseStoreCalled("take", "s", 0.1, "lease_lost"), logging.DEBUG),
        (events.LeaseStoreCalled("take", "s", 0.1, "lease_store_unavailable"), logging.WARNING),
        (events.LeaseStoreCalled("renew", "s", 0.1, "lease_lost"), logging.WARNING),
        (events.ShardStopped("s"), logging.INFO),
        (events.ShardStopped("s", "sink_full", "no room"), logging.ERROR),
        (events.ShardIsolated("s", 60.0, "kms"), logging.WARNING),
        (events.HandlerFailed("s", "1", 1, 1, 0.1, "ValueError", "retry"), logging.WARNING),
        (events.SubscriptionEnded("s", 60, "idle"), logging.DEBUG),
        (events.ShardPaused("s"), logging.INFO),
        (events.ConsumerReady("c", "arn", registered=False), logging.INFO),
    ],
)
def test_each_event_has_its_severity(event, severity):
    assert severity_of(event) == severity


def test_log_lines_of_libraries_and_python_warnings_are_json(lines):
    logging.getLogger("some.library").warning("slow by %s s", 3)
    logging.getLogger("some.library").info("chatter")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)  # as `configure` does, inside this context
        warnings.warn("deprecated", stacklevel=1)
    assert [line["level"] for line in lines()] == ["warning", "warning"]
    assert lines()[0]["event"] == "slow by 3 s"


def test_a_traceback_does_not_show_local_variables(lines):
    secret = "hunter2"
    try:
        raise ValueError("surprise")
    except ValueError:
        structlog.get_logger().exception("failed")
    (line,) = lines()
    assert "ValueError: surprise" in line["exception"]
    assert secret not in line["exception"]
