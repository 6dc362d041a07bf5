"""What is done to leases, over a store in memory and under virtual time."""

import json
from dataclasses import replace

import pytest
import trio

from efo.errors import ConfigurationError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import AT_TIMESTAMP, LATEST, SHARD_END, TRIM_HORIZON, Checkpoint, HashKeyRange, Lease, Shard
from efo_service.errors import UsageError
from efo_service.operations.leases import (
    Target,
    bring_in,
    check_time,
    chosen,
    exported,
    forgotten,
    imported,
    living,
    parse_target,
    plan_import,
    release,
    served,
    to_reset,
    unmoved,
)

A = Lease("a", Checkpoint("7", 2), owner="ann", counter=4, hash_key_range=HashKeyRange("0", "9"), children=("c",))
B = Lease("b", SHARD_END, counter=9, parents=("a",), pending_checkpoint_state=b"\xff")


@pytest.fixture
async def store():
    store = MemoryLeaseStore()
    for lease in (B, A):
        await store.create(lease)
    return store


async def test_leases_are_chosen_by_name_or_all_of_them(store):
    assert await chosen(store, ["b"]) == [B]
    assert await chosen(store, [], every=True) == [A, B]
    with pytest.raises(UsageError, match="no lease x"):
        await chosen(store, ["a", "x"])
    for keys, every in ([], False), (["a"], True):
        with pytest.raises(UsageError, match="--all, not both"):
            await chosen(store, keys, every=every)


async def test_a_worker_lives_whose_counter_moves(store, autojump_clock):
    await store.create(Lease("d", LATEST, owner="dead"))
    shown = []

    async def renew():
        await trio.sleep(6)
        await store.renew(A)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(renew)
        alive = await living(store, await store.list(), 10.0, lambda left, seconds: shown.append((left, seconds)))
    assert alive == {"a": "ann"}
    assert trio.current_time() == pytest.approx(10.0)
    assert shown[0] == (2, 10.0)
    assert shown[-1][0] == 1


async def test_nothing_is_waited_for_where_nobody_holds_a_lease(store, autojump_clock):
    assert await living(store, [B], 10.0) == {}
    assert trio.current_time() == 0


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("trim_horizon", Target(TRIM_HORIZON)),
        ("LATEST", Target(LATEST)),
        ("495903382714902566085", Target(Checkpoint("495903382714902566085"))),
        ("2026-01-31T12:00:00Z", Target(AT_TIMESTAMP, 1_769_860_800.0)),
        ("2026-01-31T13:00:00.5+01:00", Target(AT_TIMESTAMP, 1_769_860_800.5)),
    ],
)  # fmt: skip
def test_where_to(text, target):
    assert parse_target(text) == target


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "2026-01-31T12:00:00", "1" * 130, "SHARD_END"])
def test_a_place_that_is_none(text):
    with pytest.raises(UsageError, match="--to"):
        parse_target(text)


def test_what_a_reset_concerns():
    assert to_reset([A, B], Target(TRIM_HORIZON)) == [A, B]
    assert to_reset([A, B], Target(AT_TIMESTAMP, 1.0)) == [A, B]
    assert to_reset([A, B], Target(LATEST)) == [A]
    assert to_reset([B], Target(Checkpoint("1"))) == [B]
    with pytest.raises(UsageError, match="of one shard"):
        to_reset([A, B], Target(Checkpoint("1")))


async def test_a_worker_that_takes_what_was_just_let_go_of_is_seen(store, autojump_clock):
    """The look falls between one worker's release and the next one's take."""

    async def hand_over():
        await trio.sleep(0.9)
        row = await store.release(A)
        await trio.sleep(0.3)
        await store.take(row, "bob")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hand_over)
        assert await living(store, [A], 10.0) == {"a": "bob"}


async def test_a_lease_that_was_taken_since_we_looked_is_left_alone(store):
    assert await unmoved(store, A, force=False) == A
    taken = await store.take(A, "bob")
    with pytest.raises(UsageError, match="held by bob"):
        await unmoved(store, A, force=False)
    assert await unmoved(store, A, force=True) == taken
    free = await store.release(taken)
    assert await unmoved(store, A, force=False) == free
    await store.delete("a")
    assert await unmoved(store, A, force=False) is None


async def test_a_released_lease_is_nobodys_not_even_of_the_one_who_waits(store):
    await release(store, await store.request_handoff(A, "bob"))
    row = await store.get("a")
    assert (row.owner, row.checkpoint_owner) == (None, None)
    await release(store, row)
    assert await store.get("a") == row


def test_latest_is_a_time_and_no_time_is_in_the_future():
    assert check_time(Target(LATEST), 100.0) == Target(LATEST, 100.0)
    assert check_time(Target(AT_TIMESTAMP, 100.0), 100.0) == Target(AT_TIMESTAMP, 100.0)
    assert check_time(Target(TRIM_HORIZON), 100.0) == Target(TRIM_HORIZON)
    with pytest.raises(UsageError, match="future"):
        check_time(Target(AT_TIMESTAMP, 100.1), 100.0)


def test_shards_whose_leases_were_cleaned_up_begin_anew_too():
    shards = [Shard("a", A.hash_key_range, "1"), Shard("z", A.hash_key_range, "1", "2", "y", "x")]
    lease = Lease("z", AT_TIMESTAMP, parents=("y", "x"), hash_key_range=A.hash_key_range, latest_at=9.0)
    assert forgotten(shards, [A, B], Target(AT_TIMESTAMP, 9.0)) == [lease]


def test_at_latest_no_shard_is_left_to_the_ends_of_its_parents():
    """They would let it begin at its beginning."""
    hashes = A.hash_key_range
    shards = [Shard("a", hashes, "1", "2"), Shard("y", hashes, "3", "4", "a"), Shard("z", hashes, "5", None, "y")]
    assert forgotten(shards, [A, B], Target(LATEST, 9.0)) == [
        Lease("y", SHARD_END, parents=("a",), hash_key_range=hashes),
        Lease("z", LATEST, parents=("y",), hash_key_range=hashes, latest_at=9.0),
    ]


def test_a_parent_that_has_served_is_not_read_again_for_its_child():
    child = Lease("m", TRIM_HORIZON, parents=("a", "gone"))
    assert served(child, [A, B]) == [Lease("gone", SHARD_END, children=("m",))]
    assert served(child, [B]) == []
    assert served(child, [A, Lease("gone", SHARD_END)]) == []


async def test_leases_go_to_another_store_without_their_workers(store):
    document = exported(await store.list(), "app", "orders")
    assert json.loads(document)["leases"][0]["lease_key"] in "ab"
    there = MemoryLeaseStore()
    plan = plan_import(imported(document, "orders", "file"), [])
    await bring_in(there, plan)
    assert await chosen(there, [], every=True) == [replace(A, owner=None), B]


async def test_no_leases_at_all_can_be_exported():
    assert imported(exported([], "app", "orders"), "orders", "file") == []


async def test_what_is_there_already_is_told_from_what_stands_elsewhere(store):
    wanted = [replace(A, owner=None), replace(B, checkpoint=TRIM_HORIZON), Lease("c", LATEST, latest_at=3.0)]
    plan = plan_import(wanted, await store.list())
    assert (plan.new, plan.changed, plan.same) == ((wanted[2],), ((B, wanted[1]),), (A,))
    await bring_in(store, plan)
    rows = {row.key: row for row in await store.list()}
    assert rows["a"] == A
    assert (rows["b"].checkpoint, rows["b"].counter) == (TRIM_HORIZON, 10)
    assert rows["c"] == wanted[2]
    assert plan_import(wanted, rows.values()).changed == ()


async def test_an_import_that_finishes_a_shard_brings_its_children(store):
    plan = plan_import([replace(A, checkpoint=SHARD_END, children=("c", "d"))], await store.list())
    await bring_in(store, plan)
    row = await store.get("a")
    assert (row.checkpoint, row.children, row.owner) == (SHARD_END, ("c", "d"), None)


async def test_a_lease_that_is_created_during_an_import_is_told(store):
    plan = plan_import([Lease("c", LATEST)], await store.list())
    await store.create(Lease("c", TRIM_HORIZON))
    with pytest.raises(UsageError, match="c was created meanwhile"):
        await bring_in(store, plan)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b"", "what `efo leases export` writes"),
        (b"\xff\xfe", "what `efo leases export` writes"),
        (b'{"version":2,"application":"a","stream":"orders","leases":[]}', "what `efo leases export` writes"),
        (b'{"version":1,"application":"a","stream":"clicks","leases":[]}', "clicks"),
        (exported([A], "app", "orders").replace(b'"7"', b'"seven"'), "seven"),
    ],
)
def test_a_file_that_is_no_export(document, said):
    with pytest.raises(ConfigurationError, match=said):
        imported(document, "orders", "leases.json")
