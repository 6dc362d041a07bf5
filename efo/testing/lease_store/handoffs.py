"""Checks of a lease store: graceful hand-offs, children, resets, and workers that write at the same time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import trio

from efo.errors import LeaseLostError
from efo.leases.store import LeaseStore
from efo.model import Checkpoint, Lease
from efo.testing.lease_store.checking import (
    FULL,
    HOLDER_WRITES,
    check,
    only,
    raises,
    same,
)


async def _requested(one: LeaseStore, other: LeaseStore) -> tuple[Lease, Lease]:
    """Return the lease as last read by ann, the holder, and by bob, which has requested it."""
    await one.create(Lease("s", Checkpoint.LATEST))
    ann_lease = await one.take(await only(one), "ann")
    return ann_lease, await other.request_handoff(await only(other), "bob")


@check()
async def a_request_sets_the_next_owner_and_keeps_the_counter(one: LeaseStore, other: LeaseStore) -> None:
    ann_lease, bob_lease = await _requested(one, other)
    same(bob_lease, await only(one), Lease("s", Checkpoint.LATEST, owner="bob", counter=1, checkpoint_owner="ann"))
    same(bob_lease.holder, ann_lease.holder, "ann")


@check()
async def the_next_write_of_the_holder_succeeds_and_returns_the_request(one: LeaseStore, other: LeaseStore) -> None:
    ann_lease, _ = await _requested(one, other)
    ann_lease = await one.renew(ann_lease, 3.5)  # ann has not read the request yet
    expected = Lease("s", Checkpoint.LATEST, owner="bob", counter=2, checkpoint_owner="ann", throughput_kbps=3.5)
    same(ann_lease, await only(other), expected)
    ann_lease = await one.checkpoint(ann_lease, Checkpoint("7"))
    expected = Lease("s", Checkpoint("7"), owner="bob", counter=3, checkpoint_owner="ann", throughput_kbps=3.5)
    same(ann_lease, await only(other), expected)


@check([False, True])
async def a_release_hands_the_lease_over_to_the_next_owner(one: LeaseStore, other: LeaseStore, is_seen: bool) -> None:
    ann_lease, bob_lease = await _requested(one, other)
    ann_lease = await one.release(bob_lease if is_seen else ann_lease)
    same(ann_lease, await only(other), Lease("s", Checkpoint.LATEST, owner="bob", counter=2, owner_switches=1))
    with raises(LeaseLostError):
        await other.renew(bob_lease)  # the lease as bob read it before the release
    bob_lease = await other.take(await only(other), "bob")
    same(bob_lease, Lease("s", Checkpoint.LATEST, owner="bob", counter=3, owner_switches=1))
    with raises(LeaseLostError):
        await one.checkpoint(replace(ann_lease, owner="ann"), Checkpoint("9"))
    same(await other.renew(bob_lease), await only(one))


@check()
async def the_next_owner_cannot_write_before_the_release(one: LeaseStore, other: LeaseStore) -> None:
    _, bob_lease = await _requested(one, other)
    for write in HOLDER_WRITES:
        with raises(LeaseLostError):
            await write(other, replace(bob_lease, checkpoint_owner=None))
    same(await only(other), bob_lease)


@check()
async def a_take_by_force_ends_the_hand_off(one: LeaseStore, other: LeaseStore) -> None:
    ann_lease, bob_lease = await _requested(one, other)
    bob_lease = await other.take(bob_lease, "bob")
    same(bob_lease, await only(one), Lease("s", Checkpoint.LATEST, owner="bob", counter=2))
    with raises(LeaseLostError):
        await one.checkpoint(ann_lease, Checkpoint("9"))
    cid_lease = await one.take(bob_lease, "cid")
    same(cid_lease, await only(other), Lease("s", Checkpoint.LATEST, owner="cid", counter=3, owner_switches=1))


@check()
async def a_second_request_replaces_the_first_only_if_it_has_read_it(one: LeaseStore, other: LeaseStore) -> None:
    ann_lease, bob_lease = await _requested(one, other)
    with raises(LeaseLostError):
        await one.request_handoff(ann_lease, "cid")  # has not read the request of bob
    same(await only(one), bob_lease)
    cid_lease = await one.request_handoff(bob_lease, "cid")
    same(cid_lease, await only(other), Lease("s", Checkpoint.LATEST, owner="cid", counter=1, checkpoint_owner="ann"))
    with raises(LeaseLostError):
        await other.request_handoff(bob_lease, "bob")


@check()
async def a_request_for_the_holder_withdraws_the_pending_request(one: LeaseStore, other: LeaseStore) -> None:
    ann_lease, bob_lease = await _requested(one, other)
    bob_lease = await other.request_handoff(bob_lease, "ann")
    same(bob_lease, await only(one), ann_lease, Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    same((await one.release(ann_lease)).owner, None)


@check()
async def a_request_does_not_depend_on_the_counter(one: LeaseStore, other: LeaseStore) -> None:
    """Otherwise the renewals of the holder would make requests fail."""
    await one.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    bob_lease = await only(other)
    ann_lease = await one.renew(bob_lease)
    bob_lease = await other.request_handoff(bob_lease, "bob")
    same(bob_lease, await only(one), replace(ann_lease, owner="bob", checkpoint_owner="ann"))


@check()
async def a_request_after_a_release_or_a_take_fails(one: LeaseStore, other: LeaseStore) -> None:
    await one.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    old = await only(other)
    after = await one.release(old)
    with raises(LeaseLostError):
        await other.request_handoff(old, "bob")
    same(await only(other), after)
    after = await one.take(after, "cid")
    with raises(LeaseLostError):
        await other.request_handoff(old, "bob")
    same(await only(other), after)


@check()
async def one_of_many_concurrent_requests_succeeds(one: LeaseStore, other: LeaseStore) -> None:
    await one.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    lease = await only(one)
    won: list[Lease] = []

    async def request(store: LeaseStore, worker: str) -> None:
        with suppress(LeaseLostError):
            won.append(await store.request_handoff(lease, worker))

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(request, (one, other)[number % 2], f"w{number}")
    same(won, [await only(other)])


@check()
async def saving_children_neither_needs_nor_returns_the_current_counter(one: LeaseStore, other: LeaseStore) -> None:
    """A worker that lost its lease may save the children, but must not get the counter of the new owner."""
    await one.create(Lease("s", Checkpoint.LATEST))
    ann = await one.take(await only(one), "ann")
    bob = await other.take(await only(other), "bob")
    ann = await one.save_children(ann, ("a", "b"))
    same((ann.counter, ann.owner, ann.children), (1, "ann", ("a", "b")))
    same((await only(one)).children, ("a", "b"))
    with raises(LeaseLostError):
        await one.checkpoint(ann, Checkpoint.SHARD_END)
    await other.renew(bob)  # a write of bob, which has not read the children, keeps them
    same((await only(one)).children, ("a", "b"))


@check()
async def a_reset_lease_has_no_owner_and_another_checkpoint(one: LeaseStore, other: LeaseStore) -> None:
    await one.create(replace(FULL, checkpoint=Checkpoint.SHARD_END))
    row = await other.reset(await only(other), Checkpoint.AT_TIMESTAMP, 1_767_225_600.25)
    unowned = replace(FULL, owner=None, checkpoint_owner=None, pending_checkpoint=None, pending_checkpoint_state=None)
    unowned = replace(unowned, owner_switches=0, counter=42, unread_since=None)
    expected = replace(unowned, checkpoint=Checkpoint.AT_TIMESTAMP, latest_at=1_767_225_600.25)
    same(row, await only(one), expected)
    row = await one.reset(row, Checkpoint("7", 1))
    same((row.checkpoint, row.latest_at), (Checkpoint("7", 1), None))
    same(row, await only(other))


@check()
async def writes_to_one_lease_do_not_change_another(store: LeaseStore, _: LeaseStore) -> None:
    await store.create(Lease("a", Checkpoint.LATEST))
    await store.create(Lease("b", Checkpoint.TRIM_HORIZON))
    taken = await store.take(Lease("a", Checkpoint.LATEST), "ann")
    same({lease.key: lease for lease in await store.list()}, {"a": taken, "b": Lease("b", Checkpoint.TRIM_HORIZON)})
    await store.delete("a")
    same(await only(store), Lease("b", Checkpoint.TRIM_HORIZON))


@check()
async def one_of_many_concurrent_takes_succeeds(one: LeaseStore, other: LeaseStore) -> None:
    keys = [f"s{number}" for number in range(10)]
    for key in keys:
        await one.create(Lease(key, Checkpoint.LATEST))
    won: list[Lease] = []

    async def take(store: LeaseStore, key: str, worker: str) -> None:
        with suppress(LeaseLostError):
            won.append(await store.take(Lease(key, Checkpoint.LATEST), worker))

    async with trio.open_nursery() as nursery:
        for key in keys:
            for number, store in enumerate((one, other, one, other)):
                nursery.start_soon(take, store, key, f"w{number}")
    same(sorted(lease.key for lease in won), keys)
    same(sorted(won, key=lambda lease: lease.key), sorted(await other.list(), key=lambda lease: lease.key))


@check()
async def one_of_many_concurrent_creates_succeeds(one: LeaseStore, other: LeaseStore) -> None:
    created: list[bool] = []

    async def create(store: LeaseStore, worker: str) -> None:
        created.append(await store.create(Lease("s", Checkpoint.LATEST, owner=worker)))

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(create, (one, other)[number % 2], f"w{number}")
    same(sorted(created), [False] * 5 + [True])
