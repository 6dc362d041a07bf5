from __future__ import annotations

from efo.consumer.status import ConsumerStatus, ShardStatus
from efo.health import IsolatedShard
from efo.model import Checkpoint, HashKeyRange, Lease, Shard
from efo_service.web.live.shard_map import Rate, live, places

TOP = 2**128
HALF = str(TOP // 2)


def keys(low: float, high: float) -> HashKeyRange:
    return HashKeyRange(str(int(low * TOP)), str(int(high * TOP) - 1))


def shard(shard_id: str, low: float, high: float, *parents: str, is_open: bool = True) -> Shard:
    return Shard(shard_id, keys(low, high), "1", None if is_open else "2", *parents)


# a is split into b and c, which are merged with their neighbour: c and d into e.
SHARDS = [
    shard("a", 0, 0.5, is_open=False),
    shard("b", 0, 0.25, "a"),
    shard("c", 0.25, 0.5, "a", is_open=False),
    shard("d", 0.5, 1, is_open=False),
    shard("e", 0.25, 1, "c", "d"),
]
READ = Checkpoint("7")


def lease(key: str, checkpoint: Checkpoint = READ, owner: str | None = "w-1", **fields) -> Lease:
    return Lease(key, checkpoint, owner, **fields)


def status(*shards: ShardStatus, isolated=()) -> ConsumerStatus:
    return ConsumerStatus("w-1", True, False, shards, None, tuple(isolated))


def test_a_shard_takes_its_hash_keys_and_the_generations_until_its_children():
    found = {place.id: place for place in places(SHARDS, {})}
    assert [(p.id, p.low, p.high, p.generation, p.until) for p in found.values()] == [
        ("a", 0.0, 0.5, 0, 1),
        ("d", 0.5, 1.0, 0, 2),  # beside two generations
        ("b", 0.0, 0.25, 1, None),
        ("c", 0.25, 0.5, 1, 2),
        ("e", 0.25, 1.0, 2, None),
    ]
    assert found["e"].parents == ("c", "d")
    assert [key for key, place in found.items() if place.is_open] == ["b", "e"]


def test_a_shard_ends_where_its_first_child_begins():
    shards = [shard("a", 0, 0.5), shard("b", 0, 0.25, "a"), shard("c", 0.25, 0.5, "a", "b")]
    assert {place.id: place.until for place in places(shards, {})} == {"a": 1, "b": 2, "c": None}


def test_parents_that_are_gone_are_left_out_and_leases_of_expired_shards_are_kept():
    leases = {"old": lease("old", hash_key_range=keys(0, 1)), "x": lease("x", parents=("gone",))}
    found = {place.id: place for place in places([shard("b", 0, 0.25, "a")], leases)}
    assert (found["b"].parents, found["b"].generation) == ((), 0)
    assert (found["old"].low, found["old"].high, found["old"].is_open) == (0.0, 1.0, False)
    assert (found["x"].low, found["x"].parents) == (None, ())


def test_leases_that_are_each_others_parents_have_some_place():
    leases = {"x": lease("x", parents=("y",)), "y": lease("y", parents=("x",)), "z": lease("z", parents=("z",))}
    assert sorted(place.id for place in places([], leases)) == ["x", "y", "z"]


def test_a_thousand_generations_are_no_recursion():
    chain = [Shard(f"s-{number}", keys(0, 1), "1", None, f"s-{number - 1}") for number in range(3000)]
    assert places(list(reversed(chain)), {})[-1].generation == 2999


def test_the_state_of_a_shard_that_this_worker_reads_is_its_condition():
    read = ShardStatus(
        "b",
        READ,
        0,
        state="live",
        lag=0.26,
        condition="current",
        last_event_age=1.0,
        saved_age=2.0,
        read_mode="polling",
    )
    (found,) = live(places([SHARDS[1]], {}), {"b": lease("b")}, status(read), {"b": Rate(12.34, 5678.9)})
    assert (found.state, found.worker, found.subscription, found.checkpoint) == ("current", "w-1", "live", "7")
    assert (found.lag, found.records, found.bytes) == (0.3, 12.3, 5678.9)
    assert found.read_mode == "polling"


def test_the_state_of_other_shards_is_that_of_their_leases():
    leases = {
        "a": lease("a", Checkpoint.SHARD_END),
        "b": lease("b", owner="w-2"),
        "c": lease("c", owner="w-2", checkpoint_owner="w-3"),
        "d": lease("d", owner=None),
    }
    found = {each.id: (each.state, each.worker) for each in live(places(SHARDS, leases), leases, status(), {})}
    assert found == {
        "a": ("finished", "w-1"),
        "b": ("other_worker", "w-2"),
        "c": ("handing_over", "w-3"),
        "d": ("ready", None),
        "e": ("no_lease_yet", None),
    }
    held = {"b": lease("b")}  # by this worker, which is about to read it
    assert live(places([SHARDS[1]], held), held, status(), {})[0].state == "ready"
    waiting = {"c": lease("c"), "e": lease("e", parents=("c", "d"), owner=None)}
    assert live(places(SHARDS, waiting), waiting, status(), {})[-1].state == "waiting_parent"


def test_a_shard_that_this_worker_gave_up_has_its_reason_and_its_new_owner():
    given_up = ShardStatus("b", READ, 0, state="isolated", condition="isolated")
    isolated = [IsolatedShard("b", "kms", 30.0), IsolatedShard("c", "released", 30.0)]
    leases = {"b": lease("b", owner=None), "c": lease("c", owner="w-2")}
    found = {each.id: each for each in live(places(SHARDS, leases), leases, status(given_up, isolated=isolated), {})}
    assert (found["b"].state, found["b"].worker, found["b"].error) == ("isolated", None, "kms")
    assert (found["c"].state, found["c"].worker, found["c"].error) == ("other_worker", "w-2", "released")
