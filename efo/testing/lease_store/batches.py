"""Checks of a lease store: batches of writes, and writes that are cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import trio

from efo.errors import LeaseError, LeaseLostError
from efo.leases.store import LeaseStore
from efo.leases.writes import LeaseWrite, ReleaseLease, RenewLease, TakeLease, row_after
from efo.model import Checkpoint, Lease
from efo.testing.lease_store.checking import (
    FULL,
    HOLDER_WRITES,
    TIMES,
    Write,
    check,
    found,
    holds,
    only,
    raises,
    same,
    write_children,
    write_request,
)


async def results_of(store: LeaseStore, writes: Sequence[LeaseWrite]) -> list[Any]:
    """Perform a batch; return its results in order. Each write is settled once."""
    results: dict[int, Lease | LeaseError] = {}

    def settle(index: int, result: Lease | LeaseError) -> None:
        holds(index not in results)
        results[index] = result

    await store.write_many(writes, settle)
    same(len(results), len(writes))
    return [results[index] for index in range(len(writes))]


async def create_held(store: LeaseStore, count: int, owner: str = "ann") -> dict[str, Lease]:
    """Create leases with an owner; return them by key."""
    for number in range(count):
        await store.create(Lease(f"s{number}", Checkpoint("5"), owner=owner, counter=number))
    return {lease.key: lease for lease in await store.list()}


@check()
async def an_empty_batch_does_nothing(store: LeaseStore, _: LeaseStore) -> None:
    same(await results_of(store, []), [])


@check()
async def a_batch_has_the_effects_of_its_writes(one: LeaseStore, other: LeaseStore) -> None:
    held = await create_held(one, 7)
    await one.create(replace(FULL, key="full"))
    await one.create(Lease("free", Checkpoint.LATEST))
    writes: list[LeaseWrite] = [
        RenewLease(held["s0"]),
        RenewLease(held["s1"], throughput_kbps=12.25),
        RenewLease(held["s2"], Checkpoint("7", 1)),
        RenewLease(held["s3"], Checkpoint("8"), 0.5),
        RenewLease(replace(held["s5"], **TIMES), Checkpoint("8")),
        RenewLease(replace(held["s6"], **TIMES)),
        ReleaseLease(held["s4"]),
        ReleaseLease(replace(FULL, key="full")),
        TakeLease(Lease("free", Checkpoint.LATEST), "cid"),
    ]
    results = await results_of(one, writes)
    same(results, [row_after(write, write.lease) for write in writes])
    same({lease.key: lease for lease in await other.list()}, {lease.key: lease for lease in results})
    same({lease.key: lease for lease in await one.list()}, {lease.key: lease for lease in results})


@check([2, 40])
async def a_lost_lease_and_a_deleted_one_fail_alone(one: LeaseStore, other: LeaseStore, batch: int) -> None:
    held = await create_held(one, batch + 2)
    taken = await other.take(held["s1"], "bob")
    await other.delete("s2")
    settled = await results_of(one, [RenewLease(lease, Checkpoint("9")) for lease in held.values()])
    results = dict(zip(held, settled, strict=True))
    holds(isinstance(results.pop("s1"), LeaseLostError))
    holds(isinstance(results.pop("s2"), LeaseLostError))
    same(results, {key: await other.get(key) for key in results})
    same({lease.checkpoint for lease in results.values()}, {Checkpoint("9")})
    same(await one.get("s1"), taken)
    same(await one.get("s2"), None)


@check()
async def a_batch_returns_requests_and_children_that_its_worker_has_not_read(
    one: LeaseStore, other: LeaseStore
) -> None:
    held = await create_held(one, 3)
    await other.request_handoff(held["s0"], "bob")
    await other.request_handoff(held["s1"], "bob")
    await other.save_children(held["s2"], ("c",))
    results = await results_of(
        one, [RenewLease(held["s0"], Checkpoint("9")), ReleaseLease(held["s1"]), RenewLease(held["s2"])]
    )
    same(results, [await other.get(key) for key in ("s0", "s1", "s2")])
    same(
        [(lease.owner, lease.checkpoint_owner) for lease in results],
        [
            ("bob", "ann"),
            ("bob", None),
            ("ann", None),
        ],
    )
    same(results[2].children, ("c",))


@check()
async def an_unowned_lease_in_a_batch_can_only_be_taken(store: LeaseStore, _: LeaseStore) -> None:
    await create_held(store, 1)
    await store.create(Lease("free", Checkpoint.LATEST))
    free = await found(store, "free")
    for write in (RenewLease(free), RenewLease(free, Checkpoint("9")), ReleaseLease(free)):
        lost, renewed = await results_of(store, [write, RenewLease(await found(store, "s0"))])
        holds(isinstance(lost, LeaseLostError))
        same(renewed, await store.get("s0"))
    same(await store.get("free"), free)


@check()
async def two_writes_of_one_lease_in_a_batch_are_refused(store: LeaseStore, _: LeaseStore) -> None:
    held = await create_held(store, 2)
    with raises(ValueError):
        await results_of(store, [RenewLease(held["s0"]), RenewLease(held["s1"]), ReleaseLease(held["s0"])])
    same({lease.key: lease for lease in await store.list()}, held)


@check()
async def a_cancelled_batch_leaves_each_row_either_old_or_new(one: LeaseStore, other: LeaseStore) -> None:
    held = await create_held(one, 60)
    writes = [RenewLease(lease, Checkpoint("9")) for lease in held.values()]
    with trio.CancelScope() as scope:
        await one.write_many(writes, lambda _index, _result: scope.cancel())
    with trio.CancelScope() as scope:
        scope.cancel()
        await one.write_many(writes, lambda _index, _result: None)
    await one.get("s0")  # waits for work that was left in the background
    rows = {lease.key: lease for lease in await other.list()}
    same(rows.keys(), held.keys())
    holds(all(rows[write.lease.key] in (write.lease, row_after(write, write.lease)) for write in writes))


@check()
async def one_of_two_concurrent_batches_takes_each_lease(one: LeaseStore, other: LeaseStore) -> None:
    keys = [f"s{number}" for number in range(30)]
    for key in keys:
        await one.create(Lease(key, Checkpoint.LATEST))
    leases = list(await one.list())
    won: list[Lease] = []

    async def take(store: LeaseStore, worker: str, order: int) -> None:
        results = await results_of(store, [TakeLease(lease, worker) for lease in leases[::order]])
        won.extend(result for result in results if isinstance(result, Lease))

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(take, (one, other)[number % 2], f"w{number}", (-1) ** number)
    same(sorted(lease.key for lease in won), sorted(keys))
    same(sorted(won, key=lambda lease: lease.key), sorted(await other.list(), key=lambda lease: lease.key))


@check([*HOLDER_WRITES, write_request, write_children])
async def a_write_cancelled_before_it_starts_has_no_effect_and_leaves_no_lock(
    one: LeaseStore, other: LeaseStore, write: Write
) -> None:
    await one.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    before = await only(one)
    with trio.CancelScope() as scope:
        scope.cancel()
        await write(one, before)
    holds(scope.cancelled_caught)
    same(await only(other), before)
    await write(other, before)  # no lock is left behind
    holds(await only(one) != before)
