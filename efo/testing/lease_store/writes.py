"""Checks of a lease store: each write of one lease, and its condition."""

from __future__ import annotations

from dataclasses import replace

from efo.errors import LeaseLostError
from efo.leases.store import LeaseStore
from efo.model import Checkpoint, Lease
from efo.testing.lease_store.checking import (
    FULL,
    HOLDER_WRITES,
    TIMES,
    Write,
    check,
    only,
    raises,
    same,
    write_children,
    write_request,
    write_reset,
    write_take,
)


@check()
async def a_new_store_is_empty(store: LeaseStore, _: LeaseStore) -> None:
    same(list(await store.list()), [])


@check([FULL, *(Lease("s", Checkpoint(name)) for name in ("TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "SHARD_END"))])
async def every_field_is_stored(store: LeaseStore, _: LeaseStore, lease: Lease) -> None:
    await store.create(lease)
    same(await only(store), lease)


@check()
async def get_returns_one_lease_by_its_key(one: LeaseStore, other: LeaseStore) -> None:
    await one.create(FULL)
    await one.create(Lease("s", Checkpoint.LATEST))
    same(await other.get(FULL.key), FULL)
    same(await other.get("s"), Lease("s", Checkpoint.LATEST))
    same(await other.get("t"), None)


@check()
async def a_second_create_adds_nothing(one: LeaseStore, other: LeaseStore) -> None:
    same(await one.create(Lease("s", Checkpoint.LATEST)), True)
    same(await other.create(Lease("s", Checkpoint.TRIM_HORIZON)), False)
    lease = Lease("s", Checkpoint.LATEST)
    same(await one.create(lease), False)
    same(await only(other), lease)


@check()
async def a_lease_is_taken_renewed_released_and_taken_again(one: LeaseStore, other: LeaseStore) -> None:
    await one.create(Lease("s", Checkpoint.LATEST))
    ann = await one.take(await only(one), "ann")
    same(ann, Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    ann = await one.renew(ann)
    same(ann.counter, 2)
    ann = await one.release(ann)
    same(ann, await only(other), Lease("s", Checkpoint.LATEST, counter=3))
    bob = await other.take(await only(other), "bob")
    same(bob, await only(one), Lease("s", Checkpoint.LATEST, owner="bob", counter=4))


@check()
async def owner_switches_are_counted_until_the_next_checkpoint(store: LeaseStore, _: LeaseStore) -> None:
    await store.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=5))
    again = await store.take(await only(store), "ann")
    same(again.owner_switches, 0)
    bob = await store.take(again, "bob")
    same((await only(store)).owner_switches, bob.owner_switches, 1)
    bob = await store.checkpoint(bob, Checkpoint("7", 1))
    same(bob, await only(store), Lease("s", Checkpoint("7", 1), owner="bob", counter=8))


@check([12.25, 1e-6, 0.0, 123456789.123457])
async def the_throughput_is_saved_by_a_renewal_and_kept_by_the_next_one(
    store: LeaseStore, _: LeaseStore, kbps: float
) -> None:
    await store.create(Lease("s", Checkpoint.LATEST, owner="ann"))
    lease = await store.renew(await only(store), kbps)
    same(lease, await only(store), Lease("s", Checkpoint.LATEST, owner="ann", counter=1, throughput_kbps=kbps))
    lease = await store.renew(lease)
    same(lease, await only(store), Lease("s", Checkpoint.LATEST, owner="ann", counter=2, throughput_kbps=kbps))


@check()
async def a_pending_checkpoint_stays_until_the_next_checkpoint(one: LeaseStore, other: LeaseStore) -> None:
    pending = Lease(  # as KCL makes it: efo itself has no checkpoints in two steps
        "s",
        Checkpoint("5"),
        owner="ann",
        pending_checkpoint=Checkpoint("7", 2),
        pending_checkpoint_state=b"\x00half",
    )
    await one.create(pending)
    same(await only(one), pending)
    lease = await other.renew(await other.take(await only(other), "bob"))
    same(lease, await only(one), replace(pending, owner="bob", counter=2, owner_switches=1))
    lease = await other.checkpoint(lease, Checkpoint("8"))
    same(lease, await only(one), Lease("s", Checkpoint("8"), owner="bob", counter=3))


@check()
async def the_holder_of_a_lease_writes_its_times_with_each_write(one: LeaseStore, other: LeaseStore) -> None:
    await one.create(Lease("s", Checkpoint("5"), owner="ann"))
    lease = await one.renew(replace(await only(one), **TIMES))
    same(lease, await only(other), Lease("s", Checkpoint("5"), owner="ann", counter=1, **TIMES))
    later = {**TIMES, "unread_since": 1_767_225_800.0}
    lease = await one.checkpoint(replace(lease, **later), Checkpoint("7"))
    same(lease, await only(other), Lease("s", Checkpoint("7"), owner="ann", counter=2, **later))
    lease = await one.renew(replace(lease, unread_since=None, stream_created_at=None))  # it does not know more
    same((lease.stream_created_at, lease.unread_since), (TIMES["stream_created_at"], later["unread_since"]))
    lease = await one.release(lease)
    same(lease, await only(other))
    same((lease.stream_created_at, lease.unread_since), (TIMES["stream_created_at"], later["unread_since"]))
    bob = await other.take(lease, "bob")
    same(bob, await only(one))
    same((bob.stream_created_at, bob.unread_since), (TIMES["stream_created_at"], later["unread_since"]))


@check()
async def the_times_survive_a_hand_off_and_children(one: LeaseStore, other: LeaseStore) -> None:
    await one.create(Lease("s", Checkpoint("5"), owner="ann", **TIMES))
    ann = await only(one)
    await other.request_handoff(await only(other), "bob")
    ann = await one.renew(replace(ann, unread_since=1_767_225_900.0))
    await other.save_children(Lease("s", Checkpoint("5"), owner="ann", **TIMES), ("a",))  # as it was read before
    await one.release(ann)
    after = await only(other)
    same((after.stream_created_at, after.unread_since), (TIMES["stream_created_at"], 1_767_225_900.0))


@check([*HOLDER_WRITES, write_take, write_reset])
async def a_write_with_a_stale_counter_fails(one: LeaseStore, other: LeaseStore, write: Write) -> None:
    await one.create(Lease("s", Checkpoint.LATEST))
    stale = await one.take(await only(one), "ann")
    current = await one.renew(stale)
    with raises(LeaseLostError):
        await write(other, stale)
    same(await only(other), current)


@check([*HOLDER_WRITES, write_request])
async def a_write_of_another_owner_fails_even_with_the_current_counter(
    store: LeaseStore, _: LeaseStore, write: Write
) -> None:
    await store.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=3))
    with raises(LeaseLostError):
        await write(store, Lease("s", Checkpoint.LATEST, owner="bob", counter=3))
    same(await only(store), Lease("s", Checkpoint.LATEST, owner="ann", counter=3))


@check([*HOLDER_WRITES, write_request])
async def an_unowned_lease_can_only_be_taken(store: LeaseStore, _: LeaseStore, write: Write) -> None:
    await store.create(Lease("s", Checkpoint.LATEST))
    with raises(LeaseLostError):
        await write(store, Lease("s", Checkpoint.LATEST))
    same(await only(store), Lease("s", Checkpoint.LATEST))


@check([*HOLDER_WRITES, write_take, write_request, write_reset, write_children])
async def a_write_to_a_deleted_lease_fails_and_does_not_recreate_it(
    one: LeaseStore, other: LeaseStore, write: Write
) -> None:
    await one.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    ann = await only(one)
    await other.delete("s")
    await other.delete("s")
    with raises(LeaseLostError):
        await write(one, ann)
    same(list(await one.list()), [])
