"""What every lease store must do: all implementations pass this file."""

from contextlib import suppress
from functools import partial

import pytest
import trio

from efo.errors import LeaseLostError
from efo.model import LATEST, MAX_HASH_KEY, SHARD_END, TRIM_HORIZON, Checkpoint, HashKeyRange, Lease
from tests.leases.stores import STORES


@pytest.fixture(params=STORES)
def pair(request, tmp_path, servers):
    """Opens two ways to the same leases."""
    kind = STORES[request.param]
    return partial(kind.open, tmp_path, *([servers.url(kind.serve)] if kind.serve else []))


@pytest.fixture
async def stores(pair):
    """Two ways to the same leases, as two workers have them."""
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
async def test_every_field_comes_back(store, lease):
    await store.create(lease)
    assert await only(store) == lease


async def test_create_twice_adds_once(stores):
    one, other = stores
    assert await one.create(Lease("s", LATEST)) is True
    assert await other.create(Lease("s", TRIM_HORIZON)) is False
    lease = Lease("s", LATEST)
    assert await one.create(lease) is False
    assert await only(other) == lease


async def test_take_then_renew_then_release_then_take(stores):
    one, other = stores
    await one.create(Lease("s", LATEST))
    ann = await one.take(await only(one), "ann")
    assert ann == Lease("s", LATEST, owner="ann", counter=1)
    ann = await one.renew(ann)
    assert ann.counter == 2
    ann = await one.release(ann)
    assert ann == await only(other) == Lease("s", LATEST, counter=3)
    bob = await other.take(await only(other), "bob")
    assert bob == await only(one) == Lease("s", LATEST, owner="bob", counter=4)


async def test_a_change_of_owner_is_counted_until_the_next_checkpoint(store):
    await store.create(Lease("s", LATEST, owner="ann", counter=5))
    again = await store.take(await only(store), "ann")
    assert again.owner_switches == 0
    bob = await store.take(again, "bob")
    assert (await only(store)).owner_switches == bob.owner_switches == 1
    bob = await store.checkpoint(bob, Checkpoint("7", 1))
    assert bob == await only(store) == Lease("s", Checkpoint("7", 1), owner="bob", counter=8)


async def write_renew(store, lease):
    await store.renew(lease)


async def write_release(store, lease):
    await store.release(lease)


async def write_checkpoint(store, lease):
    await store.checkpoint(lease, SHARD_END)


async def write_take(store, lease):
    await store.take(lease, "bob")


async def write_children(store, lease):
    await store.save_children(lease, ("c",))


OWNERS_WRITES = [write_renew, write_release, write_checkpoint]


@pytest.mark.parametrize("write", [*OWNERS_WRITES, write_take])
async def test_a_stale_counter_loses(stores, write):
    one, other = stores
    await one.create(Lease("s", LATEST))
    stale = await one.take(await only(one), "ann")
    current = await one.renew(stale)
    with pytest.raises(LeaseLostError, match="lease s: "):
        await write(other, stale)
    assert await only(other) == current


@pytest.mark.parametrize("write", OWNERS_WRITES)
async def test_another_owner_loses_even_with_the_right_counter(store, write):
    await store.create(Lease("s", LATEST, owner="ann", counter=3))
    with pytest.raises(LeaseLostError):
        await write(store, Lease("s", LATEST, owner="bob", counter=3))
    assert await only(store) == Lease("s", LATEST, owner="ann", counter=3)


@pytest.mark.parametrize("write", OWNERS_WRITES)
async def test_an_unowned_lease_can_only_be_taken(store, write):
    await store.create(Lease("s", LATEST))
    with pytest.raises(LeaseLostError, match="no owner"):
        await write(store, Lease("s", LATEST))
    assert await only(store) == Lease("s", LATEST)


@pytest.mark.parametrize("write", [*OWNERS_WRITES, write_take, write_children])
async def test_a_deleted_lease_is_lost_and_not_resurrected(stores, write):
    one, other = stores
    await one.create(Lease("s", LATEST, owner="ann", counter=1))
    ann = await only(one)
    await other.delete("s")
    await other.delete("s")
    with pytest.raises(LeaseLostError):
        await write(one, ann)
    assert list(await one.list()) == []


async def test_children_need_no_current_counter_and_give_none(stores):
    """A worker that lost its lease may save what is a fact, but must not get the new owner's counter by it."""
    one, other = stores
    await one.create(Lease("s", LATEST))
    ann = await one.take(await only(one), "ann")
    bob = await other.take(await only(other), "bob")
    ann = await one.save_children(ann, ("a", "b"))
    assert (ann.counter, ann.owner, ann.children) == (1, "ann", ("a", "b"))
    assert (await only(one)).children == ("a", "b")
    with pytest.raises(LeaseLostError):
        await one.checkpoint(ann, SHARD_END)
    await other.renew(bob)  # bob knows nothing of the children; his write leaves them
    assert (await only(one)).children == ("a", "b")


async def test_leases_do_not_touch_each_other(store):
    await store.create(Lease("a", LATEST))
    await store.create(Lease("b", TRIM_HORIZON))
    taken = await store.take(Lease("a", LATEST), "ann")
    assert {lease.key: lease for lease in await store.list()} == {"a": taken, "b": Lease("b", TRIM_HORIZON)}
    await store.delete("a")
    assert await only(store) == Lease("b", TRIM_HORIZON)


async def test_a_race_to_take_has_one_winner(stores):
    keys = [f"s{number}" for number in range(10)]
    for key in keys:
        await stores[0].create(Lease(key, LATEST))
    won = []

    async def take(store, key, worker):
        with suppress(LeaseLostError):
            won.append(await store.take(Lease(key, LATEST), worker))

    async with trio.open_nursery() as nursery:
        for key in keys:
            for number, store in enumerate((*stores, *stores)):
                nursery.start_soon(take, store, key, f"w{number}")
    assert sorted(lease.key for lease in won) == keys
    assert sorted(won, key=lambda lease: lease.key) == sorted(await stores[1].list(), key=lambda lease: lease.key)


async def test_a_race_to_create_has_one_winner(stores):
    created = []

    async def create(store, worker):
        created.append(await store.create(Lease("s", LATEST, owner=worker)))

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(create, stores[number % 2], f"w{number}")
    assert sorted(created) == [False] * 5 + [True]


@pytest.mark.parametrize("write", [*OWNERS_WRITES, write_children])
async def test_a_cancelled_write_takes_place_whole_or_not_at_all(stores, write):
    one, other = stores
    await one.create(Lease("s", LATEST, owner="ann", counter=1))
    before = await only(one)
    with trio.CancelScope() as scope:
        scope.cancel()
        await write(one, before)
    assert scope.cancelled_caught
    assert await only(other) == before
    await write(other, before)  # nobody is left holding a lock
    assert await only(one) != before
