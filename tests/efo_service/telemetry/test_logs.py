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
from efo.protocol.aggregation import AggregateMode
from efo.telemetry.filtering import REPORT_INTERVAL, Filtering
from efo.telemetry.outages import OutageEnded, OutageGivenUp, Outages, Refused
from efo_service.telemetry.logs import _NAMES, configure, log_events, log_outage, name_worker, set_level, severity_of
from tests.spans import Traces


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
    name_worker(None)  # another test of this process may have named one
    configure("debug", output)
    yield output
    logging.captureWarnings(capture=False)
    logging.root.handlers, logging.root.level = handlers, level
    set_level("info")
    structlog.reset_defaults()


@pytest.fixture
def lines(output):
    """Return a function that returns the parsed lines of the log so far."""
    return lambda: [json.loads(line) for line in output.getvalue().splitlines()]


def test_every_event_has_a_log_name():
    assert set(_NAMES) == set(get_args(events.Event))


def test_an_event_is_one_json_line(lines):
    log_events()(events.ShardStarted("s-0", Checkpoint("12", 3)))
    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "shard_started", "level": "info", "shard_id": "s-0", "checkpoint": "12/3"}


def test_times_of_records_are_text(lines):
    log_events()(events.RecordsExpired("s-0", 0.0, 3600.0, 3600.0))
    (line,) = lines()
    assert (line["event"], line["level"]) == ("records_expired", "warning")
    assert (line["since"], line["until"]) == ("1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z")


def test_every_line_names_the_worker_also_those_of_libraries(lines):
    name_worker("w-1")
    try:
        log_events()(events.ShardPaused("s-0"))
        structlog.get_logger().warning("something")
        logging.getLogger("botocore").warning("from a library")
        Thread(target=logging.getLogger("exporter").warning, args=("from its thread",)).run()
    finally:
        name_worker(None)
    assert [line["worker_id"] for line in lines()] == ["w-1"] * 4


def test_an_outage_is_one_line_when_it_begins_and_one_when_it_ends(lines, output):
    configure("info", output)
    now = 100.0
    observe = log_events(Outages(lambda: now), Filtering(lambda: now))
    for _ in range(241):
        observe(events.SubscribeAttempted("s-0", 0, 0, "transport", "no route"))
        observe(events.SubscriptionEnded("s-1", 2, "transport"))
        now += 0.5
    observe(events.SubscribeAttempted("s-0", 0, 0, None))
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


def test_an_outage_tells_its_remedy_what_it_changes_to_and_that_it_is_given_up(lines, output):
    configure("info", output)
    now = 0.0
    observe = log_events(Outages(lambda: now))
    observe(events.SubscribeAttempted("s-0", 0, 0, "silence", "no response"))
    now = 5.0
    observe(events.SubscribeAttempted("s-0", 0, 0, "kms", "the key is disabled"))
    now = 9.0
    observe(events.ShardStopped("s-0"))
    began, changed, given_up, _stopped = lines()
    assert "NAT" in began["remedy"]
    assert (changed["event"], changed["before"], changed["error_type"]) == ("kinesis_outage_changed", "silence", "kms")
    assert (changed["detail"], "kms:Decrypt" in changed["remedy"]) == ("the key is disabled", True)
    assert (given_up["event"], given_up["duration"], given_up["failures"]) == ("kinesis_outage_given_up", 9.0, 2)


@pytest.mark.parametrize(
    ("system", "names"),
    [
        ("kinesis", ["kinesis_outage_ended", "kinesis_outage_given_up"]),
        ("lease_store", ["lease_store_outage_ended", "lease_store_outage_given_up"]),
        ("sink", ["sink_outage_ended", "sink_outage_given_up"]),
        ("cloudwatch", ["cloudwatch_outage_ended", "cloudwatch_outage_given_up"]),
    ],
)
def test_the_end_of_an_outage_tells_what_was_dropped_meanwhile(lines, system, names):
    log_outage(OutageEnded(system, "throttled", 2.0, 3, 7))
    log_outage(OutageGivenUp(system, "throttled", 2.0, 3, 7))
    assert [(line["event"], line["dropped"]) for line in lines()] == [(name, 7) for name in names]


def test_what_is_refused_for_good_is_one_line_and_no_outage(lines):
    log_outage(Refused("cloudwatch", "ValidationError", "too old", 7))
    (line,) = lines()
    assert (line["event"], line["level"], line["dropped"]) == ("cloudwatch_refused", "warning", 7)


def test_filtered_records_are_a_warning_when_it_begins_and_once_an_hour(lines):
    now = 0.0
    observe = log_events(filtering=Filtering(lambda: now))
    for now in (0.0, 1.0, REPORT_INTERVAL, REPORT_INTERVAL + 1):  # noqa: B007 - the clock reads it
        observe(events.RecordsFiltered("s-0", "7", 3, AggregateMode.FILTER))
    observe(events.RecordsFiltered("s-1", "7", 3, AggregateMode.FILTER))
    assert [line["level"] for line in lines()] == ["warning", "debug", "warning", "debug", "warning"]
    assert {line["event"] for line in lines()} == {"records_filtered"}
    assert lines()[0]["mode"] == "filter"


def test_dropped_records_are_a_warning_once_an_hour_and_each_hole_is_one(lines):
    now = 0.0
    observe = log_events(filtering=Filtering(lambda: now))
    for now in (0.0, 1.0, REPORT_INTERVAL):  # noqa: B007 - the clock reads it
        observe(events.RecordsDropped("s-0", "too_old", 0.0, 60.0, 3))
        observe(events.RecordsDropped("s-0", "behind", 0.0, 60.0, 3))
    reported = [line["level"] for line in lines() if line["reason"] == "too_old"]
    assert reported == ["warning", "debug", "warning"]
    assert [line["level"] for line in lines() if line["reason"] == "behind"] == ["warning"] * 3
    assert (lines()[0]["event"], lines()[0]["since"]) == ("records_dropped", "1970-01-01T00:00:00Z")


def test_a_line_is_one_write(output):
    """With two writes, another worker could write between them if Python does not buffer."""
    log_events()(events.ShardStarted("s-0", Checkpoint.TRIM_HORIZON))
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
    log_events()(events.ShardRepositioned("s-0", to))
    assert lines()[0]["to"] == text


def test_events_below_the_level_are_not_logged_and_the_level_changes_while_it_runs(lines, output):
    configure("info", output)
    observe, log = log_events(), structlog.get_logger()
    for level in ("info", "debug", "warning"):
        set_level(level)
        observe(events.CheckpointSaved("s-0", Checkpoint.TRIM_HORIZON))
        observe(events.BatchDelivered("s-0", 1))
        log.info("own")
    shown = [line["event"] for line in lines()]
    assert shown == ["own", "log_level_changed", "checkpoint_saved", "own"]


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
        (events.ConsumerFailed("ValueError", "", ()), logging.DEBUG),  # consumer_failed
        (events.ShardIsolated("s", 60.0, "kms"), logging.WARNING),
        (events.StreamIsolated("late", 60.0, "kms"), logging.WARNING),
        (events.StreamRestored("late", "stream_recreated", 90.0, 3), logging.WARNING),
        (events.StreamIdentified(1000.0, 24.0), logging.DEBUG),
        (events.RecordsExpired("s", 0.0, 60.0, 60.0), logging.WARNING),
        (events.HandlerFailed("s", "1", 1, 1, 0.1, "ValueError", "retry"), logging.WARNING),
        (events.SubscriptionEnded("s", 60, "idle"), logging.DEBUG),
        (events.ShardPaused("s"), logging.INFO),
        (events.ConsumerReady("c", "arn", registered=False), logging.INFO),
        (events.ConsumerDeregistered("c"), logging.INFO),
        (events.ConsumerDeregistered("c", "AccessDeniedException"), logging.WARNING),
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


def test_at_debug_counts_have_a_line_when_they_change_and_a_line_begins_with_time_level_and_event(output):
    configure("debug", output)
    observe = log_events()
    for held in (1, 1, 2, 2):
        observe(events.LeasesCounted({"held": held}, 1))
        observe(events.ShardsCounted({"consuming": held}))
    shown = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [(line["event"], line["counts"]) for line in shown] == [
        ("leases_counted", {"held": 1}),
        ("shards_counted", {"consuming": 1}),
        ("leases_counted", {"held": 2}),
        ("shards_counted", {"consuming": 2}),
    ]
    assert [list(line)[:3] for line in shown] == [["timestamp", "level", "event"]] * 4
