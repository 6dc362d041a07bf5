"""Advice by itself; `tests/efo/adapters/test_advice.py` has the situations in which consumers give it."""

from __future__ import annotations

import datetime as dt

import pytest

from efo import events
from efo.consumer.advice import Advice
from efo.errors import ResourceInUseError
from efo.leases import manual_assignment
from efo.model import Checkpoint, Lease
from efo.settings import ConsumerSettings


@pytest.mark.parametrize(
    ("shards", "unknown"),
    [(["s-0", "s-7", "s-1"], "s-7"), (["s-0", "s-1"], ""), (None, ""), (lambda _shard: True, "")],
)
def test_ids_of_shards_that_neither_the_stream_nor_a_lease_has_are_named(shards, unknown):
    given: list[events.Event] = []
    advice = Advice(given.append, lambda: 0.0, "app")
    advice.shards_listed("orders", ConsumerSettings(shards=shards), ["s-0"], {"s-1": None})
    texts = [f"shards= names {unknown}, which the stream orders does not have"] if unknown else []
    assert [(event.topic, event.what) for event in given] == [("unknown_shards", text) for text in texts]


class Given:
    """An Advice, its clock, and what it has given."""

    def __init__(self, **options: object) -> None:
        self.now = 100.0
        self.events: list[events.AdviceGiven] = []
        self.advice = Advice(self.events.append, lambda: self.now, "app", **options)

    @property
    def topics(self) -> list[tuple[str, bool]]:
        return [(event.topic, event.is_warning) for event in self.events]


def test_only_the_events_that_it_looks_at_are_observed():
    advice = Given().advice
    assert advice.observes(events.SubscribeAttempted)
    assert advice.observes(events.SubscriptionEnded)
    assert not advice.observes(events.RecordsProcessed)


@pytest.mark.parametrize(
    ("after", "error_type", "is_given"), [(9.9, None, False), (9.9, "in use", True), (10.0, "in use", False)]
)
def test_a_refusal_in_the_first_ten_seconds_is_that_of_a_restart(after, error_type, is_given):
    given = Given()
    given.now += after
    for _ in range(2):  # reported once
        given.advice(events.SubscribeAttempted("s-0", 0.0, 0.1, error_type and ResourceInUseError.error_type))
    assert given.topics == [("subscribe_wait", False)] * is_given


@pytest.mark.parametrize(
    ("seconds", "is_given"),
    [((0, 1), False), ((0, 300, 599), True), ((0, 300, 600), False), ((0, 300, 600, 899), True)],
)
def test_three_take_overs_of_a_shard_within_ten_minutes_are_reported(seconds, is_given):
    given = Given()
    for number, second in enumerate(seconds):
        given.now = 100.0 + second
        given.advice(ended("s-0"))
        given.advice(ended(f"s-other-{number}"))
    assert given.topics == [("taken_over", True)] * is_given
    assert all("taken the subscription of s-0 over 3 times in 599 s" in event.what for event in given.events)


def ended(shard_id: str, reason: events.EndReason = "service") -> events.SubscriptionEnded:
    return events.SubscriptionEnded(shard_id, 5.0, reason, error_type=ResourceInUseError.error_type)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "7 records of s-0 were"),
        (2, "14 records of 2 shards (s-0, s-1) were"),
        (5, "35 records of 5 shards (s-0, s-1, s-2, s-3, s-4) were"),
        (7, "49 records of 7 shards (s-0, s-1, s-2, s-3, s-4 and 2 more) were"),
    ],
)
def test_at_most_five_shards_are_named(count, text):
    given = Given()
    given.advice.unacked({})
    assert given.events == []
    given.advice.unacked({f"s-{number}": 7 for number in range(count)})
    assert given.events[0].what.startswith(text)


def test_a_relative_lease_file_is_told_without_a_warning():
    given = Given()
    given.advice.lease_file("leases.db")
    assert given.topics == [("lease_file", False)]
    assert "leases.db" in given.events[0].what


@pytest.mark.parametrize(
    ("prefix", "named", "unknown"),
    [
        ("", ["s-0", "s-7"], "s-7"),
        ("orders/", ["orders/s-0", "orders/s-7", "other/s-7"], "orders/s-7"),
        ("orders/", ["s-0", "other/s-7"], "s-0"),
        ("orders/", ["orders/s-0"], ""),
    ],
)
def test_shards_of_an_assignment_that_the_stream_does_not_have_are_named(prefix, named, unknown):
    given = Given(prefix=prefix)
    settings = ConsumerSettings(assignment=manual_assignment(dict.fromkeys(named, "ann")))
    given.advice.shards_listed("orders", settings, ["s-0"], {})
    expected = [f"manual_assignment names {unknown}, which the stream orders does not have"] if unknown else []
    assert [event.what for event in given.events] == expected


AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("leases", "text"),
    [
        pytest.param([Lease("a", Checkpoint("7"))], "on a, of 1:", id="begun"),
        pytest.param([Lease("a", Checkpoint("7")), Lease("b", Checkpoint.LATEST)], "on a, of 2:", id="one-of-two"),
        pytest.param([Lease("a", Checkpoint.TRIM_HORIZON)], "on a, of 1:", id="another-position"),
        pytest.param([Lease("a", Checkpoint.LATEST)], None, id="the-same-position"),
        pytest.param([Lease("a", Checkpoint.SHARD_END)], None, id="finished"),
        pytest.param(
            [Lease("p", Checkpoint.SHARD_END), Lease("a", Checkpoint.TRIM_HORIZON, parents=("p", "q"))],
            None,
            id="a-child-begins-at-its-start",
        ),
        pytest.param([Lease("a", Checkpoint.TRIM_HORIZON, parents=("p",))], "on a, of 1:", id="its-parent-is-gone"),
    ],
)
def test_leases_that_override_the_initial_position_are_named(leases, text):
    given = Given()
    rows = {lease.key: lease for lease in leases}
    given.advice.shards_listed("orders", ConsumerSettings(initial_position="LATEST"), list(rows), rows)
    assert [(topic, is_warning) for topic, is_warning in given.topics] == [("initial_position", False)] * (
        text is not None
    )
    assert all(event.what.startswith(f"initial_position=LATEST has no effect {text}") for event in given.events)


def test_an_overridden_time_is_a_warning():
    given = Given()
    rows = {"a": Lease("a", Checkpoint("7"))}
    given.advice.shards_listed("orders", ConsumerSettings(initial_position=AT), ["a"], rows)
    assert given.topics == [("initial_position", True)]
    assert "initial_position=2026-01-02" in given.events[0].what


@pytest.mark.parametrize("position_is_chosen", [True, False])
def test_the_default_position_is_overridden_silently_unless_it_was_chosen(position_is_chosen):
    given = Given(position_is_chosen=position_is_chosen)
    given.advice.shards_listed("orders", ConsumerSettings(), ["a"], {"a": Lease("a", Checkpoint("7"))})
    assert len(given.events) == position_is_chosen
