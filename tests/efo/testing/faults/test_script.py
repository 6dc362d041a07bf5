"""What fires when: the decision alone, and its file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from efo.errors import ConfigurationError
from efo.testing.faults.file import load_faults
from efo.testing.faults.kinds import PASSING, BitFlip, GoAway, Refuse, Reset, Site, StaleListing, Stall
from efo.testing.faults.script import ALWAYS, FaultScript, Target, When

A, B = Target("SubscribeToShard", "s", "a"), Target("SubscribeToShard", "s", "b")
LIST = Target("ListShards")


def fired(script, target=A, occasions=8, site=Site.EVENT, every=1.0):
    """Return the numbers of the occasions, from 1, at which a fault fired."""
    return [n for n in range(1, occasions + 1) if script.take(site, target, n * every) is not None]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (When(), [1]),
        (When(times=3), [1, 2, 3]),
        (When(nth=3), [3]),
        (When(nth=3, times=2), [3, 4]),
        (When(nth=6, times=ALWAYS), [6, 7, 8]),
        (When(at=2.5), [3]),
        (When(at=2.5, times=2), [3, 4]),
        (When(start=4), [4]),
        (When(start=4, stop=6, times=ALWAYS), [4, 5]),
        (When(probability=1), [1, 2, 3, 4, 5, 6, 7, 8]),
        (When(probability=1, times=2), [1, 2]),
        (When(probability=0), []),
        (When(shard="b"), []),
        (When(stream="other"), []),
        (When(stream="s", shard="a"), [1]),
    ],
    ids=repr,
)
def test_when(when, expected):
    assert fired(FaultScript([(Reset(), when)])) == expected


def test_each_shard_is_counted_by_itself():
    script = FaultScript([(Reset(), When(nth=2))])
    assert [script.take(Site.EVENT, target, 1.0) for target in (A, B, A, B)] == [None, None, Reset(), Reset()]


def test_calls_are_counted_by_operation():
    script = FaultScript([(Refuse(), When(operation="ListShards", nth=2)), (Refuse("Other"), When(operation="*"))])
    assert script.take(Site.CALL, LIST, 0.0) == Refuse("Other")
    assert script.take(Site.CALL, LIST, 0.0) == Refuse()
    assert script.take(Site.CALL, A, 0.0) == Refuse("Other")
    assert script.take(Site.LISTING, LIST, 0.0) is None


def test_faults_strike_at_their_site_alone():
    script = FaultScript([Refuse(), StaleListing()])
    assert script.take(Site.EVENT, A, 0.0) is None
    assert script.take(Site.LISTING, LIST, 0.0) == StaleListing()
    assert script.take(Site.CALL, A, 0.0) == Refuse()


def test_of_two_that_are_due_the_first_fires_and_the_other_at_the_next_occasion():
    script = FaultScript([Reset("CANCEL"), Reset("NO_ERROR")])
    assert [script.take(Site.EVENT, A, 0.0) for _ in range(3)] == [Reset("CANCEL"), Reset("NO_ERROR"), None]


def test_what_needs_no_event_is_due_at_its_moment_once():
    script = FaultScript([(Reset(), When(at=10, times=2)), (Stall(), When(at=5))])
    assert script.due(A, 0.0) == 10
    assert script.take(Site.EVENT, A, 10.0, occasion=False) == Reset()
    assert script.due(A, 10.0) == math.inf
    assert script.take(Site.EVENT, A, 11.0, occasion=False) is None
    assert script.take(Site.EVENT, A, 11.0) == Reset()


def test_a_rate_is_kept_and_tells_when_it_is_due():
    script = FaultScript([(Reset(), When(rate=0.1))], seed=4)
    now = 0.0
    while (due := script.due(A, now)) < 10_000:
        assert script.take(Site.EVENT, A, due, occasion=False) == Reset()
        now = due
    assert 850 < len(script.fired) < 1150


def test_probability_is_kept():
    assert 400 < len(fired(FaultScript([(BitFlip(), When(probability=0.5))], seed=1), occasions=1000)) < 600


def test_the_seed_decides_and_not_the_order_in_which_shards_ask():
    def run(seed, targets):
        script = FaultScript.random(seed, rate=1 / 5)
        for n in range(200):
            for target in targets:
                script.take(Site.EVENT, target, float(n))
        return sorted((event.at, event.target.shard, repr(event.fault)) for event in script.fired)

    assert run(7, [A, B]) == run(7, [B, A])
    assert run(7, [A, B]) != run(8, [A, B])


def test_rules_can_be_taken_out_and_listeners_hear_of_new_ones():
    script, heard = FaultScript(), []
    script.listeners.add(lambda: heard.append("x"))
    rule = script.add(Reset())
    assert (bool(script), heard) == (True, ["x"])
    script.remove(rule)
    assert not script
    script.add(GoAway())
    script.clear()
    assert script.take(Site.EVENT, A, 0.0) is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"nth": 1, "at": 2}, "nth and at"),
        ({"nth": 0}, "counted from 1"),
        ({"probability": 1.5}, "0 to 1"),
        ({"rate": 0}, "above 0"),
    ],
)
def test_a_when_without_sense_is_refused(fields, said):
    with pytest.raises(ConfigurationError, match=said):
        When(**fields)


def script_of(tmp_path: Path, text: str) -> FaultScript:
    path = tmp_path / "faults.toml"
    path.write_text(text)
    return load_faults(path)


def test_a_file(tmp_path):
    script = script_of(
        tmp_path,
        """
        seed = 3
        [[fault]]
        kind = "reset"
        code = "CANCEL"
        when = { shard = "a", nth = 2, times = inf }
        [[fault]]
        kind = "stall"
        seconds = 5
        """,
    )
    assert [script.take(Site.EVENT, A, 0.0) for _ in range(3)] == [Stall(5.0), Reset("CANCEL"), Reset("CANCEL")]
    assert script.seed == 3


def test_a_file_of_faults_at_random(tmp_path):
    script = script_of(tmp_path, "[random]\nrate = 1\nstop = 100")
    fired(script, occasions=200)
    assert {event.fault for event in script.fired} <= set(PASSING)
    assert len(script.fired) > 5
    assert max(event.at for event in script.fired) < 100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("= 3", "faults.toml: Invalid"),
        ("sede = 3", "sede"),
        ('[[fault]]\nkind = "earthquake"', "fault 1: .*earthquake"),
        ('[[fault]]\nkind = "reset"\n[[fault]]\nkind = "reset"\ncode = "NO"', "fault 2: .*NO"),
        ('[[fault]]\nkind = "reset"\ncolour = "red"', "fault 1: .*colour"),
        ('[[fault]]\nkind = "reset"\nwhen = 3', "when is no table"),
        ('[[fault]]\nkind = "reset"\nwhen = { nht = 3 }', "when has no nht; it may have shard, "),
        ('[[fault]]\nkind = "reset"\nwhen = { nth = "3" }', "fault 1: .*int"),
        ('[[fault]]\nkind = "reset"\nwhen = { nth = 0 }', "fault 1: nth = 0"),
    ],
)
def test_a_file_that_means_nothing_is_refused(tmp_path, text, said):
    with pytest.raises(ConfigurationError, match=said):
        script_of(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match="No such file"):
        load_faults(tmp_path / "missing.toml")
