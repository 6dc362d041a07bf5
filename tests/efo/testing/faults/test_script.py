"""Which fault fires when, and fault scripts in files."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from efo.errors import ConfigurationError
from efo.testing.faults.kinds import PASSING, BitFlip, GoAway, Refuse, Reset, Site, StaleListing, Stall
from efo.testing.faults.script import ALWAYS, FaultScript, FaultTarget, When, load_faults

A, B = FaultTarget("SubscribeToShard", "s", "a"), FaultTarget("SubscribeToShard", "s", "b")
LIST = FaultTarget("ListShards")


def fired(script, target=A, occasions=8, site=Site.EVENT, every=1.0):
    """Return the numbers of the occasions, starting at 1, at which a fault fired."""
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
def test_a_fault_fires_at_the_occasions_of_its_when(when, expected):
    assert fired(FaultScript([(Reset(), when)])) == expected


def test_each_shard_is_counted_separately():
    script = FaultScript([(Reset(), When(nth=2))])
    assert [script.take(Site.EVENT, target, 1.0) for target in (A, B, A, B)] == [None, None, Reset(), Reset()]


def test_calls_are_counted_by_operation():
    script = FaultScript([(Refuse(), When(operation="ListShards", nth=2)), (Refuse("Other"), When(operation="*"))])
    assert script.take(Site.CALL, LIST, 0.0) == Refuse("Other")
    assert script.take(Site.CALL, LIST, 0.0) == Refuse()
    assert script.take(Site.CALL, A, 0.0) == Refuse("Other")
    assert script.take(Site.LISTING, LIST, 0.0) is None


def test_a_fault_fires_only_at_its_site():
    script = FaultScript([Refuse(), StaleListing()])
    assert script.take(Site.EVENT, A, 0.0) is None
    assert script.take(Site.LISTING, LIST, 0.0) == StaleListing()
    assert script.take(Site.CALL, A, 0.0) == Refuse()


def test_of_two_due_faults_the_second_fires_at_the_next_occasion():
    script = FaultScript([Reset("CANCEL"), Reset("NO_ERROR")])
    assert [script.take(Site.EVENT, A, 0.0) for _ in range(3)] == [Reset("CANCEL"), Reset("NO_ERROR"), None]


def test_a_fault_that_needs_no_event_is_due_once_at_its_time():
    script = FaultScript([(Reset(), When(at=10, times=2)), (Stall(), When(at=5))])
    assert script.due(A, 0.0) == 10
    assert script.take(Site.EVENT, A, 10.0, occasion=False) == Reset()
    assert script.due(A, 10.0) == math.inf
    assert script.take(Site.EVENT, A, 11.0, occasion=False) is None
    assert script.take(Site.EVENT, A, 11.0) == Reset()


def test_a_rate_is_met_on_average():
    script = FaultScript([(Reset(), When(rate=0.1))], seed=4)
    now = 0.0
    while (due := script.due(A, now)) < 10_000:
        assert script.take(Site.EVENT, A, due, occasion=False) == Reset()
        now = due
    assert 850 < len(script.fired) < 1150


def test_a_probability_is_met_on_average():
    assert 400 < len(fired(FaultScript([(BitFlip(), When(probability=0.5))], seed=1), occasions=1000)) < 600


def test_faults_depend_on_the_seed_and_not_on_the_order_of_shards():
    def run(seed, targets):
        script = FaultScript.random(seed, rate=1 / 5)
        for n in range(200):
            for target in targets:
                script.take(Site.EVENT, target, float(n))
        return sorted((event.at, event.target.shard, repr(event.fault)) for event in script.fired)

    assert run(7, [A, B]) == run(7, [B, A])
    assert run(7, [A, B]) != run(8, [A, B])


def test_faults_can_be_removed_and_listeners_are_notified_of_new_ones():
    script, notifications = FaultScript(), []
    script.listeners.add(lambda: notifications.append("x"))
    rule = script.add(Reset())
    assert (bool(script), notifications) == (True, ["x"])
    script.remove(rule)
    assert not script
    script.add(GoAway())
    script.clear()
    assert script.take(Site.EVENT, A, 0.0) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nth": 1, "at": 2}, "nth and at"),
        ({"nth": 0}, "at least 1"),
        ({"probability": 1.5}, "0 to 1"),
        ({"rate": 0}, "above 0"),
    ],
)
def test_an_invalid_when_is_rejected(fields, message):
    with pytest.raises(ConfigurationError, match=message):
        When(**fields)


def script_of(tmp_path: Path, text: str) -> FaultScript:
    path = tmp_path / "faults.toml"
    path.write_text(text)
    return load_faults(path)


def test_a_file_specifies_faults_and_the_seed(tmp_path):
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


def test_a_file_can_request_random_faults(tmp_path):
    script = script_of(tmp_path, "[random]\nrate = 1\nstop = 100")
    fired(script, occasions=200)
    assert {event.fault for event in script.fired} <= set(PASSING)
    assert len(script.fired) > 5
    assert max(event.at for event in script.fired) < 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("= 3", "faults.toml: Invalid"),
        ("x = " + "[" * 5000, "faults.toml: a value is nested too deep"),
        ("seed = " + "9" * 6000, "faults.toml: Exceeds the limit"),
        ("sede = 3", "sede"),
        ('[[fault]]\nkind = "unknown"', "fault 1: .*unknown"),
        ('[[fault]]\nkind = "reset"\n[[fault]]\nkind = "reset"\ncode = "NO"', "fault 2: .*NO"),
        ('[[fault]]\nkind = "reset"\ncolour = "red"', "fault 1: .*colour"),
        ('[[fault]]\nkind = "reset"\nwhen = 3', "when is not a table"),
        ('[[fault]]\nkind = "reset"\nwhen = { nht = 3 }', "unknown field in when: nht; expected shard, "),
        ('[[fault]]\nkind = "reset"\nwhen = { nth = "3" }', "fault 1: .*int"),
        ('[[fault]]\nkind = "reset"\nwhen = { nth = 0 }', "fault 1: nth = 0"),
    ],
)
def test_an_invalid_file_is_rejected(tmp_path, text, message):
    with pytest.raises(ConfigurationError, match=message):
        script_of(tmp_path, text)


def test_a_missing_file_is_rejected(tmp_path):
    with pytest.raises(ConfigurationError, match="No such file"):
        load_faults(tmp_path / "missing.toml")


def test_a_file_with_a_byte_order_mark_is_read_and_another_encoding_named(tmp_path):
    path = tmp_path / "faults.toml"
    path.write_bytes(b"\xef\xbb\xbfseed = 7\r\n")
    assert load_faults(path).fired == []
    path.write_bytes("seed = 7".encode("utf-16"))
    with pytest.raises(ConfigurationError, match=r"faults\.toml: it is UTF-16 text: save it as UTF-8"):
        load_faults(path)
