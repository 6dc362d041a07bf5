from __future__ import annotations

import io
import json
import logging
import warnings
from threading import Thread
from typing import get_args

import pytest
import structlog

from efo import events
from efo.model import Checkpoint, Position
from efo_service.telemetry.logs import _NAMES, configure, log_events, name_worker, severity_of
from tests.spans import Traces


def CLOCK() -> float:  # noqa: N802 - a constant
    return 0.0


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
    log_events("info", CLOCK)(events.ShardStarted("s-0", Checkpoint("12", 3)))
    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "shard_started", "level": "info", "shard_id": "s-0", "checkpoint": "12/3"}


def test_every_line_names_the_worker_also_those_of_libraries(lines):
    name_worker("w-1")
    try:
        log_events("info", CLOCK)(events.ShardPaused("s-0"))
        structlog.get_logger().warning("something")
        logging.getLogger("botocore").warning("from a library")
        Thread(target=logging.getLogger("exporter").warning, args=("from its thread",)).run()
    finally:
        name_worker(None)
    assert [line["worker_id"] for line in lines()] == ["w-1"] * 4


def test_an_outage_is_one_line_when_it_begins_and_one_when_it_ends(lines):
    now = 100.0
    observe = log_events("info", lambda: now)
    for _ in range(241):
        observe(events.SubscribeAttempted("s-0", 0, 0, "transport", "no route"))
        observe(events.SubscriptionEnded("s-1", 2, "reset"))
        now += 0.5
    observe(events.EventReceived("s-0", 0, 100, 0, None))
    assert [line["event"] for line in lines()] == ["kinesis_outage_began"]
    observe(events.EventReceived("s-1", 0, 100, 0, None))
    began, ended = lines()
    assert (began["level"], began["shard_id"], began["error_type"], began["detail"]) == (
        "warning",
        "s-0",
        "transport",
        "no route",
    )
    assert (ended["event"], ended["error_type"], ended["duration"], ended["failures"]) == (
        "kinesis_outage_ended",
        "transport",
        120.5,
        482,
    )


def test_a_line_is_one_write(output):
    """With two writes, another worker could write between them if Python does not buffer."""
    log_events("info", CLOCK)(events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON))
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
    log_events("info", CLOCK)(events.ShardRepositioned("s-0", to))
    assert lines()[0]["to"] == text


def test_events_below_the_level_are_not_logged(lines):
    log_events("info", CLOCK)(events.CheckpointSaved("s-0", Checkpoint.TRIM_HORIZON))
    assert lines() == []
    log_events("debug", CLOCK)(events.CheckpointSaved("s-0", Checkpoint.TRIM_HORIZON))
    assert [line["event"] for line in lines()] == ["checkpoint_saved"]


@pytest.mark.parametrize(
    ("event", "severity"),
    [
        (events.SubscribeAttempted("s", 0, 0, None), logging.DEBUG),
        (events.SubscribeAttempted("s", 0, 0, "ResourceInUseException"), logging.DEBUG),
        (events.SubscribeAttempted("s", 0, 0, "throttled"), logging.DEBUG),
        (events.PollAttempted("s", "GetRecords", 0, "throttled"), logging.DEBUG),
        (events.ReadModeChanged("polling"), logging.INFO),
        (events.ReadModeChanged("polling", "consumer_limit", "20", 300.0), logging.WARNING),
        (events.ReadModeChanged("fanout"), logging.INFO),
        (events.SubscriptionEnded("s", 250, "renewed"), logging.DEBUG),
        (events.EventReceived("s", 1, 1, 1, None), logging.DEBUG),
        (events.LeaseLost("s", "taken"), logging.WARNING),
        (events.LeaseLost("s", "released"), logging.INFO),
        (events.LeaseStoreCalled("take", "s", 0.1, "lease_lost"), logging.DEBUG),
        (events.LeaseStoreCalled("renew", "s", 0.1, "lease_lost"), logging.DEBUG),
        (events.ShardStopped("s"), logging.INFO),
        (events.ShardStopped("s", "sink_full", "no room"), logging.ERROR),
        (events.ShardIsolated("s", 60.0, "kms"), logging.WARNING),
        (events.StreamIsolated("late", 60.0, "kms"), logging.WARNING),
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


@pytest.mark.parametrize("log", [structlog.get_logger, lambda: logging.getLogger("a_library")])
def test_a_traceback_shows_neither_local_variables_nor_texts_of_exceptions(log, lines):
    secret = "hunter2"
    try:
        {}[secret]
    except KeyError:
        log().exception("failed")
    (line,) = lines()
    assert "in test_a_traceback_shows_neither" in line["exception"]
    assert line["exception"].endswith("KeyError")
    assert secret not in json.dumps(line)


def test_a_line_of_a_library_has_no_user_of_a_url(lines):
    logging.getLogger("a_library").warning("cannot reach https://me:hunter2@host/x")
    (line,) = lines()
    assert line["event"] == "cannot reach https://...@host/x"


def test_lines_have_the_ids_of_the_current_span_also_those_of_libraries(lines):
    with Traces().provider.get_tracer("test").start_as_current_span("work") as span:
        structlog.get_logger().warning("inside")
        logging.getLogger("botocore").warning("from a library")
    structlog.get_logger().warning("outside")
    context = span.get_span_context()
    ids = (f"{context.trace_id:032x}", f"{context.span_id:016x}")
    assert [(line.get("trace_id"), line.get("span_id")) for line in lines()] == [ids, ids, (None, None)]
