"""The conformance suite of the lease stores: every store passes these tests."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
import trio

from efo.errors import LeaseLostError
from efo.leases.writes import ReleaseLease, RenewLease, TakeLease, row_after
from efo.model import MAX_HASH_KEY, Checkpoint, HashKeyRange, Lease
from tests.efo.leases.stores.all_stores import STORES


@pytest.fixture(params=STORES)
def pair(request, tmp_path, servers):
    """A function that opens two stores on the same leases."""
    kind = STORES[request.param]
    return partial(kind.open, tmp_path, *([servers.url(kind.serve)] if kind.serve else []))


@pytest.fixture
async def stores(pair):
    """Two stores on the same leases, one per worker."""
    async with pair() as stores:
        yield stores


@pytest.fixture
def store(stores):
    return stores[0]


FULL = Lease(
    "shardId-000000000007",
    Checkpoint("49590338271490256608559692538361571095921575989136588898", 3),
    owner="ann",
    counter=41,
    owner_switches=2,
    parents=("shardId-000000000002", "shardId-000000000003"),
    children=("shardId-000000000009",),
    hash_key_range=HashKeyRange("0", str(MAX_HASH_KEY)),
    latest_at=1_767_225_600.125,
    checkpoint_owner="bob",
    pending_checkpoint=Checkpoint("49590338271490256608559692538361571095921575989136588899", 1),
    pending_checkpoint_state=b"\x00\xffstate",
    throughput_kbps=1234.5,
    stream_created_at=1_767_000_000.25,
    unread_since=1_767_225_601.5,
)


async def only(store):
    (lease,) = await store.list()
    return lease


async def test_a_new_store_is_empty(store):
    assert list(await store.list()) == []


@pytest.mark.parametrize(
    "lease",
    [FULL, *(Lease("s", Checkpoint(name)) for name in ("TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "SHARD_END"))],
)
async def test_every_field_is_stored(store, lease):
    await store.create(lease)
    assert await only(store) == lease


async def test_get_returns_one_lease_by_its_key(stores):
    one, other = stores
    await one.create(FULL)
    await one.create(Lease("s", Checkpoint.LATEST))
    assert await other.get(FULL.key) == FULL
    assert await other.get("s") == Lease("s", Checkpoint.LATEST)
    assert await other.get("t") is None


@pytest.mark.scenario("G19")
async def test_a_second_create_adds_nothing(stores):
    one, other = stores
    assert await one.create(Lease("s", Checkpoint.LATEST)) is True
    assert await other.create(Lease("s", Checkpoint.TRIM_HORIZON)) is False
    lease = Lease("s", Checkpoint.LATEST)
    assert await one.create(lease) is False
    assert await only(other) == lease


@pytest.mark.scenario("G23")
async def test_a_lease_is_taken_renewed_released_and_taken_again(stores):
    one, other = stores
    await one.create(Lease("s", Checkpoint.LATEST))
    ann = await one.take(await only(one), "ann")
    assert ann == Lease("s", Checkpoint.LATEST, owner="ann", counter=1)
    ann = await one.renew(ann)
    assert ann.counter == 2
    ann = await one.release(ann)
    assert ann == await only(other) == Lease("s", Checkpoint.LATEST, counter=3)
    bob = await other.take(await only(other), "bob")
    assert bob == await only(one) == Lease("s", Checkpoint.LATEST, owner="bob", counter=4)


async def test_owner_switches_are_counted_until_the_next_checkpoint(store):
    await store.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=5))
    again = await store.take(await only(store), "ann")
    assert again.owner_switches == 0
    bob = await store.take(again, "bob")
    assert (await only(store)).owner_switches == bob.owner_switches == 1
    bob = await store.checkpoint(bob, Checkpoint("7", 1))
    assert bob == await only(store) == Lease("s", Checkpoint("7", 1), owner="bob", counter=8)


@pytest.mark.parametrize("kbps", [12.25, 1e-6, 0.0, 123456789.123457])
async def test_the_throughput_is_saved_by_a_renewal_and_kept_by_the_next_one(store, kbps):
    await store.create(Lease("s", Checkpoint.LATEST, owner="ann"))
    lease = await store.renew(await only(store), kbps)
    assert lease == await only(store) == Lease("s", Checkpoint.LATEST, owner="ann", counter=1, throughput_kbps=kbps)
    lease = await store.renew(lease)
    assert lease == await only(store) == Lease("s", Checkpoint.LATEST, owner="ann", counter=2, throughput_kbps=kbps)


@pytest.mark.scenario("G66")
async def test_a_pending_checkpoint_stays_until_the_next_checkpoint(stores):
    one, other = stores
    pending = Lease(  # as KCL makes it: efo itself has no checkpoints in two steps
        "s",
        Checkpoint("5"),
        owner="ann",
        pending_checkpoint=Checkpoint("7", 2),
        pending_checkpoint_state=b"\x00half",
    )
    await one.create(pending)
    assert await only(one) == pending
    lease = await other.renew(await other.take(await only(other), "bob"))
    assert lease == await only(one) == replace(pending, owner="bob", counter=2, owner_switches=1)
    lease = await other.checkpoint(lease, Checkpoint("8"))
    assert lease == await only(one) == Lease("s", Checkpoint("8"), owner="bob", counter=3)


TIMES = {"stream_created_at": 1_767_000_000.125, "unread_since": 1_767_225_700.1234567}


async def test_the_holder_of_a_lease_writes_its_times_with_each_write(stores):
    one, other = stores
    await one.create(Lease("s", Checkpoint("5"), owner="ann"))
    lease = await one.renew(replace(await only(one), **TIMES))
    assert lease == await only(other) == Lease("s", Checkpoint("5"), owner="ann", counter=1, **TIMES)
    later = {**TIMES, "unread_since": 1_767_225_800.0}
    lease = await one.checkpoint(replace(lease, **later), Checkpoint("7"))
    assert lease == await only(other) == Lease("s", Checkpoint("7"), owner="ann", counter=2, **later)
    lease = await one.renew(replace(lease, unread_since=None, stream_created_at=None))  # it does not know more
    assert (lease.stream_created_at, lease.unread_since) == (TIMES["stream_created_at"], later["unread_since"])
    lease = await one.release(lease)
    assert lease == await only(other)
    assert (lease.stream_created_at, lease.unread_since) == (TIMES["stream_created_at"], later["unread_since"])
    bob = await other.take(lease, "bob")
    assert bob == await only(one)
    assert (bob.stream_created_at, bob.unread_since) == (TIMES["stream_created_at"], later["unread_since"])


async def test_the_times_survive_a_hand_off_and_children(stores):
    one, other = stores
    await one.create(Lease("s", Checkpoint("5"), owner="ann", **TIMES))
    ann = await only(one)
    await other.request_handoff(await only(other), "bob")
    ann = await one.renew(replace(ann, unread_since=1_767_225_900.0))
    await other.save_children(Lease("s", Checkpoint("5"), owner="ann", **TIMES), ("a",))  # as it was read before
    await one.release(ann)
    after = await only(other)
    assert (after.stream_created_at, after.unread_since) == (TIMES["stream_created_at"], 1_767_225_900.0)


async def write_renew(store, lease):
    await store.renew(lease)


async def write_release(store, lease):
    await store.release(lease)


async def write_checkpoint(store, lease):
    await store.checkpoint(lease, Checkpoint.SHARD_END)


async def write_request(store, lease):
    await store.request_handoff(lease, "cid")


async def write_take(store, lease):
    await store.take(lease, "bob")


async def write_reset(store, lease):
    await store.reset(lease, Checkpoint.TRIM_HORIZON)


async def write_children(store, lease):
    await store.save_children(lease, ("c",))


HOLDER_WRITES = [write_renew, write_release, write_checkpoint]


@pytest.mark.parametrize("write", [*HOLDER_WRITES, write_take, write_reset])
@pytest.mark.scenario("G20", "G23")
async def test_a_write_with_a_stale_counter_fails(stores, write):
    one, other = stores
    await one.create(Lease("s", Checkpoint.LATEST))
    stale = await one.take(await only(one), "ann")
    current = await one.renew(stale)
    with pytest.raises(LeaseLostError, match="lease s: "):
        await write(other, stale)
    assert await only(other) == current


@pytest.mark.parametrize("write", [*HOLDER_WRITES, write_request])
async def test_a_write_of_another_owner_fails_even_with_the_current_counter(store, write):
    await store.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=3))
    with pytest.raises(LeaseLostError):
        await write(store, Lease("s", Checkpoint.LATEST, owner="bob", counter=3))
    assert await only(store) == Lease("s", Checkpoint.LATEST, owner="ann", counter=3)


@pytest.mark.parametrize("write", [*HOLDER_WRITES, write_request])
@pytest.mark.scenario("G23")
async def test_an_unowned_lease_can_only_be_taken(store, write):
    await store.create(Lease("s", Checkpoint.LATEST))
    with pytest.raises(LeaseLostError, match="no owner"):
        await write(store, Lease("s", Checkpoint.LATEST))
    assert await only(store) == Lease("s", Checkpoint.LATEST)


@pytest.mark.parametrize("write", [*HOLDER_WRITES, write_take, write_request, write_reset, write_children])
@pytest.mark.scenario("G28")
async def test_a_write_to_a_deleted_lease_fails_and_does_not_recreate_it(stores, write):
    one, other = stores
    await one.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    ann = await only(one)
    await other.delete("s")
    await other.delete("s")
    with pytest.raises(LeaseLostError):
        await write(one, ann)
    assert list(await one.list()) == []


# --- the graceful hand-off ---


@pytest.fixture
async def requested(stores):
    """The lease as last read by ann, the holder, and by bob, which has requested it."""
    one, other = stores
    await one.create(Lease("s", Checkpoint.LATEST))
    ann_lease = await one.take(await only(one), "ann")
    return ann_lease, await other.request_handoff(await only(other), "bob")


async def test_a_request_sets_the_next_owner_and_keeps_the_counter(stores, requested):
    ann_lease, bob_lease = requested
    assert (
        bob_lease
        == await only(stores[0])
        == Lease("s", Checkpoint.LATEST, owner="bob", counter=1, checkpoint_owner="ann")
    )
    assert bob_lease.holder == ann_lease.holder == "ann"


@pytest.mark.scenario("G22")
async def test_the_next_write_of_the_holder_succeeds_and_returns_the_request(stores, requested):
    one, other = stores
    ann_lease, _ = requested
    ann_lease = await one.renew(ann_lease, 3.5)  # ann has not read the request yet
    expected = Lease("s", Checkpoint.LATEST, owner="bob", counter=2, checkpoint_owner="ann", throughput_kbps=3.5)
    assert ann_lease == await only(other) == expected
    ann_lease = await one.checkpoint(ann_lease, Checkpoint("7"))
    expected = Lease("s", Checkpoint("7"), owner="bob", counter=3, checkpoint_owner="ann", throughput_kbps=3.5)
    assert ann_lease == await only(other) == expected


@pytest.mark.parametrize("is_seen", [False, True], ids=["unread request", "read request"])
@pytest.mark.scenario("G31")
async def test_a_release_hands_the_lease_over_to_the_next_owner(stores, requested, is_seen):
    one, other = stores
    ann_lease, bob_lease = requested
    ann_lease = await one.release(bob_lease if is_seen else ann_lease)
    assert ann_lease == await only(other) == Lease("s", Checkpoint.LATEST, owner="bob", counter=2, owner_switches=1)
    with pytest.raises(LeaseLostError):
        await other.renew(bob_lease)  # the lease as bob read it before the release
    bob_lease = await other.take(await only(other), "bob")
    assert bob_lease == Lease("s", Checkpoint.LATEST, owner="bob", counter=3, owner_switches=1)
    with pytest.raises(LeaseLostError):
        await one.checkpoint(replace(ann_lease, owner="ann"), Checkpoint("9"))
    assert await other.renew(bob_lease) == await only(one)


async def test_the_next_owner_cannot_write_before_the_release(stores, requested):
    _, other = stores
    _, bob_lease = requested
    for write in HOLDER_WRITES:
        with pytest.raises(LeaseLostError):
            await write(other, replace(bob_lease, checkpoint_owner=None))
    assert await only(other) == bob_lease


async def test_a_take_by_force_ends_the_hand_off(stores, requested):
    one, other = stores
    ann_lease, bob_lease = requested
    bob_lease = await other.take(bob_lease, "bob")
    assert bob_lease == await only(one) == Lease("s", Checkpoint.LATEST, owner="bob", counter=2)
    with pytest.raises(LeaseLostError):
        await one.checkpoint(ann_lease, Checkpoint("9"))
    cid_lease = await one.take(bob_lease, "cid")
    assert cid_lease == await only(other) == Lease("s", Checkpoint.LATEST, owner="cid", counter=3, owner_switches=1)


async def test_a_second_request_replaces_the_first_only_if_it_has_read_it(stores, requested):
    one, other = stores
    ann_lease, bob_lease = requested
    with pytest.raises(LeaseLostError):
        await one.request_handoff(ann_lease, "cid")  # has not read the request of bob
    assert await only(one) == bob_lease
    cid_lease = await one.request_handoff(bob_lease, "cid")
    assert (
        cid_lease == await only(other) == Lease("s", Checkpoint.LATEST, owner="cid", counter=1, checkpoint_owner="ann")
    )
    with pytest.raises(LeaseLostError):
        await other.request_handoff(bob_lease, "bob")


async def test_a_request_for_the_holder_withdraws_the_pending_request(stores, requested):
    one, other = stores
    ann_lease, bob_lease = requested
    bob_lease = await other.request_handoff(bob_lease, "ann")
    assert bob_lease == await only(one) == ann_lease == Lease("s", Checkpoint.LATEST, owner="ann", counter=1)
    assert (await one.release(ann_lease)).owner is None


async def test_a_request_does_not_depend_on_the_counter(stores):
    """Otherwise the renewals of the holder would make requests fail."""
    one, other = stores
    await one.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    bob_lease = await only(other)
    ann_lease = await one.renew(bob_lease)
    bob_lease = await other.request_handoff(bob_lease, "bob")
    assert bob_lease == await only(one) == replace(ann_lease, owner="bob", checkpoint_owner="ann")


async def test_a_request_after_a_release_or_a_take_fails(stores):
    one, other = stores
    await one.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    old = await only(other)
    after = await one.release(old)
    with pytest.raises(LeaseLostError):
        await other.request_handoff(old, "bob")
    assert await only(other) == after
    after = await one.take(after, "cid")
    with pytest.raises(LeaseLostError):
        await other.request_handoff(old, "bob")
    assert await only(other) == after


async def test_one_of_many_concurrent_requests_succeeds(stores):
    await stores[0].create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    lease = await only(stores[0])
    won = []

    async def request(store, worker):
        with suppress(LeaseLostError):
            won.append(await store.request_handoff(lease, worker))

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(request, stores[number % 2], f"w{number}")
    assert won == [await only(stores[1])]


async def test_saving_children_neither_needs_nor_returns_the_current_counter(stores):
    """A worker that lost its lease may save the children, but must not get the counter of the new owner."""
    one, other = stores
    await one.create(Lease("s", Checkpoint.LATEST))
    ann = await one.take(await only(one), "ann")
    bob = await other.take(await only(other), "bob")
    ann = await one.save_children(ann, ("a", "b"))
    assert (ann.counter, ann.owner, ann.children) == (1, "ann", ("a", "b"))
    assert (await only(one)).children == ("a", "b")
    with pytest.raises(LeaseLostError):
        await one.checkpoint(ann, Checkpoint.SHARD_END)
    await other.renew(bob)  # a write of bob, which has not read the children, keeps them
    assert (await only(one)).children == ("a", "b")


async def test_a_reset_lease_has_no_owner_and_another_checkpoint(stores):
    one, other = stores
    await one.create(replace(FULL, checkpoint=Checkpoint.SHARD_END))
    row = await other.reset(await only(other), Checkpoint.AT_TIMESTAMP, 1_767_225_600.25)
    unowned = replace(FULL, owner=None, checkpoint_owner=None, pending_checkpoint=None, pending_checkpoint_state=None)
    unowned = replace(unowned, owner_switches=0, counter=42, unread_since=None)
    expected = replace(unowned, checkpoint=Checkpoint.AT_TIMESTAMP, latest_at=1_767_225_600.25)
    assert row == await only(one) == expected
    row = await one.reset(row, Checkpoint("7", 1))
    assert (row.checkpoint, row.latest_at) == (Checkpoint("7", 1), None)
    assert row == await only(other)


async def test_writes_to_one_lease_do_not_change_another(store):
    await store.create(Lease("a", Checkpoint.LATEST))
    await store.create(Lease("b", Checkpoint.TRIM_HORIZON))
    taken = await store.take(Lease("a", Checkpoint.LATEST), "ann")
    assert {lease.key: lease for lease in await store.list()} == {"a": taken, "b": Lease("b", Checkpoint.TRIM_HORIZON)}
    await store.delete("a")
    assert await only(store) == Lease("b", Checkpoint.TRIM_HORIZON)


async def test_one_of_many_concurrent_takes_succeeds(stores):
    keys = [f"s{number}" for number in range(10)]
    for key in keys:
        await stores[0].create(Lease(key, Checkpoint.LATEST))
    won = []

    async def take(store, key, worker):
        with suppress(LeaseLostError):
            won.append(await store.take(Lease(key, Checkpoint.LATEST), worker))

    async with trio.open_nursery() as nursery:
        for key in keys:
            for number, store in enumerate((*stores, *stores)):
                nursery.start_soon(take, store, key, f"w{number}")
    assert sorted(lease.key for lease in won) == keys
    assert sorted(won, key=lambda lease: lease.key) == sorted(await stores[1].list(), key=lambda lease: lease.key)


async def test_one_of_many_concurrent_creates_succeeds(stores):
    created = []

    async def create(store, worker):
        created.append(await store.create(Lease("s", Checkpoint.LATEST, owner=worker)))

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(create, stores[number % 2], f"w{number}")
    assert sorted(created) == [False] * 5 + [True]


# --- batches ---


async def results_of(store, writes):
    """Perform a batch; return its results in order. Each write is settled once."""
    results = {}

    def settle(index, result):
        assert index not in results
        results[index] = result

    await store.write_many(writes, settle)
    assert len(results) == len(writes)
    return [results[index] for index in range(len(writes))]


async def create_held(store, count, owner="ann"):
    """Create leases with an owner; return them by key."""
    for number in range(count):
        await store.create(Lease(f"s{number}", Checkpoint("5"), owner=owner, counter=number))
    return {lease.key: lease for lease in await store.list()}


async def test_an_empty_batch_does_nothing(store):
    assert await results_of(store, []) == []


async def test_a_batch_has_the_effects_of_its_writes(stores):
    one, other = stores
    held = await create_held(one, 7)
    await one.create(replace(FULL, key="full"))
    await one.create(Lease("free", Checkpoint.LATEST))
    writes = [
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
    assert results == [row_after(write, write.lease) for write in writes]
    assert {lease.key: lease for lease in await other.list()} == {lease.key: lease for lease in results}
    assert {lease.key: lease for lease in await one.list()} == {lease.key: lease for lease in results}


@pytest.mark.parametrize("batch", [2, 40])
async def test_a_lost_lease_and_a_deleted_one_fail_alone(stores, batch):
    one, other = stores
    held = await create_held(one, batch + 2)
    taken = await other.take(held["s1"], "bob")
    await other.delete("s2")
    results = await results_of(one, [RenewLease(lease, Checkpoint("9")) for lease in held.values()])
    results = dict(zip(held, results, strict=True))
    assert isinstance(results.pop("s1"), LeaseLostError)
    assert isinstance(results.pop("s2"), LeaseLostError)
    assert results == {key: await other.get(key) for key in results}
    assert {lease.checkpoint for lease in results.values()} == {Checkpoint("9")}
    assert await one.get("s1") == taken
    assert await one.get("s2") is None


async def test_a_batch_returns_requests_and_children_that_its_worker_has_not_read(stores):
    one, other = stores
    held = await create_held(one, 3)
    await other.request_handoff(held["s0"], "bob")
    await other.request_handoff(held["s1"], "bob")
    await other.save_children(held["s2"], ("c",))
    results = await results_of(
        one, [RenewLease(held["s0"], Checkpoint("9")), ReleaseLease(held["s1"]), RenewLease(held["s2"])]
    )
    assert results == [await other.get(key) for key in ("s0", "s1", "s2")]
    assert [(lease.owner, lease.checkpoint_owner) for lease in results] == [
        ("bob", "ann"),
        ("bob", None),
        ("ann", None),
    ]
    assert results[2].children == ("c",)


async def test_an_unowned_lease_in_a_batch_can_only_be_taken(store):
    await create_held(store, 1)
    await store.create(Lease("free", Checkpoint.LATEST))
    free = await store.get("free")
    for write in (RenewLease(free), RenewLease(free, Checkpoint("9")), ReleaseLease(free)):
        lost, renewed = await results_of(store, [write, RenewLease(await store.get("s0"))])
        assert isinstance(lost, LeaseLostError)
        assert renewed == await store.get("s0")
    assert await store.get("free") == free


async def test_two_writes_of_one_lease_in_a_batch_are_refused(store):
    held = await create_held(store, 2)
    with pytest.raises(ValueError, match="two writes of one lease"):
        await results_of(store, [RenewLease(held["s0"]), RenewLease(held["s1"]), ReleaseLease(held["s0"])])
    assert {lease.key: lease for lease in await store.list()} == held


async def test_a_cancelled_batch_leaves_each_row_either_old_or_new(stores):
    one, other = stores
    held = await create_held(one, 60)
    writes = [RenewLease(lease, Checkpoint("9")) for lease in held.values()]
    with trio.CancelScope() as scope:
        await one.write_many(writes, lambda _index, _result: scope.cancel())
    with trio.CancelScope() as scope:
        scope.cancel()
        await one.write_many(writes, lambda _index, _result: None)
    await one.get("s0")  # waits for work that was left in the background
    rows = {lease.key: lease for lease in await other.list()}
    assert rows.keys() == held.keys()
    assert all(rows[write.lease.key] in (write.lease, row_after(write, write.lease)) for write in writes)


async def test_one_of_two_concurrent_batches_takes_each_lease(stores):
    keys = [f"s{number}" for number in range(30)]
    for key in keys:
        await stores[0].create(Lease(key, Checkpoint.LATEST))
    leases = list(await stores[0].list())
    won = []

    async def take(store, worker, order):
        results = await results_of(store, [TakeLease(lease, worker) for lease in leases[::order]])
        won.extend(result for result in results if isinstance(result, Lease))

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(take, stores[number % 2], f"w{number}", (-1) ** number)
    assert sorted(lease.key for lease in won) == sorted(keys)
    assert sorted(won, key=lambda lease: lease.key) == sorted(await stores[1].list(), key=lambda lease: lease.key)


@pytest.mark.parametrize("write", [*HOLDER_WRITES, write_request, write_children])
async def test_a_write_cancelled_before_it_starts_has_no_effect_and_leaves_no_lock(stores, write):
    one, other = stores
    await one.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
    before = await only(one)
    with trio.CancelScope() as scope:
        scope.cancel()
        await write(one, before)
    assert scope.cancelled_caught
    assert await only(other) == before
    await write(other, before)  # no lock is left behind
    assert await only(one) != before
