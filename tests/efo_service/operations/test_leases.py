"""Operations on leases, with a store in memory and virtual time."""

import json
from dataclasses import replace

import pytest
import trio

from efo.errors import ConfigurationError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, HashKeyRange, Lease, Shard
from efo_service.errors import UsageError
from efo_service.operations.leases import (
    ResetTarget,
    apply_import,
    export_leases,
    finished_parents,
    leases_to_reset,
    living_holders,
    missing_leases,
    parse_export,
    parse_target,
    plan_import,
    release,
    reread,
    resolve_time,
    select_leases,
)

NOW = 1_769_860_800.0
A = Lease("a", Checkpoint("7", 2), owner="ann", counter=4, hash_key_range=HashKeyRange("0", "9"), children=("c",))
B = Lease("b", Checkpoint.SHARD_END, counter=9, parents=("a",), pending_checkpoint_state=b"\xff")


@pytest.fixture
async def store():
    store = MemoryLeaseStore()
    for lease in (B, A):
        await store.create(lease)
    return store


async def test_leases_are_selected_by_shard_or_all_together(store):
    assert await select_leases(store, ["b"]) == [B]
    assert await select_leases(store, [], select_all=True) == [A, B]
    with pytest.raises(UsageError, match="no lease x"):
        await select_leases(store, ["a", "x"])
    for keys, select_all in ([], False), (["a"], True):
        with pytest.raises(UsageError, match="--all, not both"):
            await select_leases(store, keys, select_all=select_all)


async def test_a_worker_is_alive_if_the_counter_of_its_lease_changes(store, autojump_clock):
    await store.create(Lease("d", Checkpoint.LATEST, owner="dead"))
    shown = []

    async def renew():
        await trio.sleep(6)
        await store.renew(A)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(renew)
        alive = await living_holders(
            store, await store.list(), 10.0, lambda left, seconds: shown.append((left, seconds))
        )
    assert alive == {"a": "ann"}
    assert trio.current_time() == pytest.approx(10.0)
    assert shown[0] == (2, 10.0)
    assert shown[-1][0] == 1


async def test_leases_without_a_holder_are_decided_at_once(store, autojump_clock):
    assert await living_holders(store, [B], 10.0) == {}
    assert trio.current_time() == 0


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("trim_horizon", ResetTarget(Checkpoint.TRIM_HORIZON)),
        ("LATEST", ResetTarget(Checkpoint.LATEST)),
        ("495903382714902566085", ResetTarget(Checkpoint("495903382714902566085"))),
        ("77/3", ResetTarget(Checkpoint("77", 3))),
        ("2026-01-31T12:00:00Z", ResetTarget(Checkpoint.AT_TIMESTAMP, 1_769_860_800.0)),
        ("2026-01-31T13:00:00.5+01:00", ResetTarget(Checkpoint.AT_TIMESTAMP, 1_769_860_800.5)),
        ("-1.5h", ResetTarget(Checkpoint.AT_TIMESTAMP, 1_769_855_400.0)),
    ],
)  # fmt: skip
def test_the_target_of_a_reset_is_a_sentinel_a_time_or_a_sequence_number(text, target):
    assert parse_target(text, NOW) == target


@pytest.mark.parametrize(
    "text", ["", "yesterday", "-5", "2026-01-31T12:00:00", "1" * 130, "SHARD_END", "77/", "77/x", "/3"]
)
def test_an_invalid_target_is_refused(text):
    with pytest.raises(UsageError, match="--to"):
        parse_target(text, NOW)


def test_a_reset_to_latest_omits_finished_shards_and_a_sequence_number_takes_one_shard():
    assert leases_to_reset([A, B], ResetTarget(Checkpoint.TRIM_HORIZON)) == [A, B]
    assert leases_to_reset([A, B], ResetTarget(Checkpoint.AT_TIMESTAMP, 1.0)) == [A, B]
    assert leases_to_reset([A, B], ResetTarget(Checkpoint.LATEST)) == [A]
    assert leases_to_reset([B], ResetTarget(Checkpoint("1"))) == [B]
    with pytest.raises(UsageError, match="belongs to one shard"):
        leases_to_reset([A, B], ResetTarget(Checkpoint("1")))


async def test_a_worker_that_takes_a_released_lease_during_the_check_is_alive(store, autojump_clock):
    """The lease table is read between the release by one worker and the take by another."""

    async def hand_over():
        await trio.sleep(0.9)
        row = await store.release(A)
        await trio.sleep(0.3)
        await store.take(row, "bob")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hand_over)
        assert await living_holders(store, [A], 10.0) == {"a": "bob"}


async def test_a_lease_that_was_taken_after_the_check_is_refused(store):
    assert await reread(store, A, force=False) == A
    taken = await store.take(A, "bob")
    with pytest.raises(UsageError, match="taken by bob"):
        await reread(store, A, force=False)
    assert await reread(store, A, force=True) == taken
    released = await store.release(taken)
    assert await reread(store, A, force=False) == released
    await store.delete("a")
    assert await reread(store, A, force=False) is None


async def test_release_also_removes_the_worker_that_requested_the_lease(store):
    await release(store, await store.request_handoff(A, "bob"))
    row = await store.get("a")
    assert (row.owner, row.checkpoint_owner) == (None, None)
    await release(store, row)
    assert await store.get("a") == row


def test_latest_gets_a_time_and_a_time_in_the_future_is_refused():
    assert resolve_time(ResetTarget(Checkpoint.LATEST), 100.0) == ResetTarget(Checkpoint.LATEST, 100.0)
    assert resolve_time(ResetTarget(Checkpoint.AT_TIMESTAMP, 100.0), 100.0) == ResetTarget(
        Checkpoint.AT_TIMESTAMP, 100.0
    )
    assert resolve_time(ResetTarget(Checkpoint.TRIM_HORIZON), 100.0) == ResetTarget(Checkpoint.TRIM_HORIZON)
    # The clocks of two hosts differ: it is now by the service's clock.
    assert resolve_time(ResetTarget(Checkpoint.AT_TIMESTAMP, 400.0), 100.0) == ResetTarget(
        Checkpoint.AT_TIMESTAMP, 100.0
    )
    with pytest.raises(UsageError, match="future"):
        resolve_time(ResetTarget(Checkpoint.AT_TIMESTAMP, 400.1), 100.0)


def test_a_reset_of_all_shards_creates_leases_that_were_cleaned_up():
    shards = [Shard("a", A.hash_key_range, "1"), Shard("z", A.hash_key_range, "1", "2", "y", "x")]
    lease = Lease("z", Checkpoint.AT_TIMESTAMP, parents=("y", "x"), hash_key_range=A.hash_key_range, latest_at=9.0)
    assert missing_leases(shards, [A, B], ResetTarget(Checkpoint.AT_TIMESTAMP, 9.0)) == [lease]


def test_a_reset_of_all_shards_to_latest_creates_the_leases_of_open_children():
    """The end of a parent would start them at TRIM_HORIZON."""
    hashes = A.hash_key_range
    shards = [Shard("a", hashes, "1", "2"), Shard("y", hashes, "3", "4", "a"), Shard("z", hashes, "5", None, "y")]
    assert missing_leases(shards, [A, B], ResetTarget(Checkpoint.LATEST, 9.0)) == [
        Lease("y", Checkpoint.SHARD_END, parents=("a",), hash_key_range=hashes),
        Lease("z", Checkpoint.LATEST, parents=("y",), hash_key_range=hashes, latest_at=9.0),
    ]


def test_a_finished_parent_without_a_lease_is_not_read_again_for_its_child():
    child = Lease("m", Checkpoint.TRIM_HORIZON, parents=("a", "gone"))
    assert finished_parents(child, [A, B]) == [Lease("gone", Checkpoint.SHARD_END, children=("m",))]
    assert finished_parents(child, [B]) == []
    assert finished_parents(child, [A, Lease("gone", Checkpoint.SHARD_END)]) == []


async def test_leases_are_imported_into_another_store_without_their_owners(store):
    document = export_leases(await store.list(), "app", "orders")
    assert json.loads(document)["leases"][0]["lease_key"] in "ab"
    other = MemoryLeaseStore()
    plan = plan_import(parse_export(document, "orders", "file"), [])
    await apply_import(other, plan)
    assert await select_leases(other, [], select_all=True) == [replace(A, owner=None), B]


@pytest.mark.parametrize("change", [lambda text: b"\xef\xbb\xbf" + text, lambda text: text.replace(b"\n", b"\r\n")])
async def test_an_export_that_an_editor_of_windows_has_saved_can_be_imported(store, change):
    document = export_leases(await store.list(), "app", "orders")
    assert parse_export(change(document), "orders", "file") == parse_export(document, "orders", "file")


async def test_an_export_without_leases_can_be_imported():
    assert parse_export(export_leases([], "app", "orders"), "orders", "file") == []


async def test_an_import_changes_only_leases_with_another_checkpoint(store):
    imported = [
        replace(A, owner=None),
        replace(B, checkpoint=Checkpoint.TRIM_HORIZON),
        Lease("c", Checkpoint.LATEST, latest_at=3.0),
    ]
    plan = plan_import(imported, await store.list())
    assert (plan.new, plan.changed, plan.same) == ((imported[2],), ((B, imported[1]),), (A,))
    await apply_import(store, plan)
    rows = {row.key: row for row in await store.list()}
    assert rows["a"] == A
    assert (rows["b"].checkpoint, rows["b"].counter) == (Checkpoint.TRIM_HORIZON, 10)
    assert rows["c"] == imported[2]
    assert plan_import(imported, rows.values()).changed == ()


async def test_an_import_that_finishes_a_shard_saves_its_children(store):
    plan = plan_import([replace(A, checkpoint=Checkpoint.SHARD_END, children=("c", "d"))], await store.list())
    await apply_import(store, plan)
    row = await store.get("a")
    assert (row.checkpoint, row.children, row.owner) == (Checkpoint.SHARD_END, ("c", "d"), None)


async def test_a_lease_that_is_created_during_an_import_is_reported(store):
    plan = plan_import([Lease("c", Checkpoint.LATEST)], await store.list())
    await store.create(Lease("c", Checkpoint.TRIM_HORIZON))
    with pytest.raises(UsageError, match="c was created during the import"):
        await apply_import(store, plan)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"", "not written by `efo leases export`"),
        (b"\xff\xfe", "not written by `efo leases export`: it is UTF-16 text: save it as UTF-8"),
        (b'{"version":3,"application":"a","stream":"orders","leases":[]}', "not written by `efo leases export`"),
        (b'{"version":1,"application":"a","stream":"clicks","leases":[]}', "clicks"),
        (export_leases([A], "app", "orders").replace(b'"7"', b'"seven"'), "seven"),
    ],
)
def test_a_file_that_is_not_an_export_of_the_stream_is_refused(document, message):
    with pytest.raises(ConfigurationError, match=message):
        parse_export(document, "orders", "leases.json")
