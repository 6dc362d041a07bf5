"""Group commit: writes that come together, or while a batch is written, share the next batch."""

import pytest
import trio

from efo.errors import LeaseLostError, LeaseStoreUnavailableError
from efo.events import LeaseStoreCalled
from efo.leases.store import LeaseStore
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.writer import LeaseWriter
from efo.leases.writes import ReleaseLease, RenewLease, TakeLease, write_each
from efo.model import Checkpoint, Lease


class BatchStore(MemoryLeaseStore):
    """Keeps the sizes of its batches. A batch takes `seconds`."""

    def __init__(self):
        super().__init__()
        self.batches = []
        self.seconds = 0.0
        self.error = None

    async def renew(self, lease, throughput_kbps=None):
        self.batches.append(1)
        await trio.sleep(self.seconds)
        return await super().renew(lease, throughput_kbps)

    async def write_many(self, writes, settle):
        self.batches.append(len(writes))
        await trio.sleep(self.seconds)
        if self.error:
            raise self.error
        await super().write_many(writes, settle)


@pytest.fixture
async def store():
    store = BatchStore()
    for number in range(100):
        await store.create(Lease(f"s{number}", Checkpoint("5"), owner="ann"))
    return store


@pytest.fixture
def events():
    return []


@pytest.fixture
async def writer(store, events, nursery):
    writer = LeaseWriter(store, 10.0, events.append)
    await nursery.start(writer.run)
    return writer


async def write_all(writer, leases, results):
    async def write(lease):
        try:
            results[lease.key] = await writer.write(RenewLease(lease))
        except (LeaseLostError, LeaseStoreUnavailableError) as error:
            results[lease.key] = error

    async with trio.open_nursery() as nursery:
        for lease in leases:
            nursery.start_soon(write, lease)


async def test_writes_of_many_tasks_share_one_batch(autojump_clock, store, writer, events):
    results = {}
    await write_all(writer, await store.list(), results)
    assert store.batches == [100]
    assert results == {lease.key: lease for lease in await store.list()}
    assert events == [LeaseStoreCalled("renew", "", 0.0, None, 100)]


async def test_a_batch_waits_for_the_tasks_that_write_a_moment_later(autojump_clock, store, writer):
    """One event often wakes several tasks that write, some of them through another one."""

    async def write_later(lease, steps):
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        await writer.write(RenewLease(lease))

    leases = (await store.list())[:2]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_later, leases[0], 0)
        nursery.start_soon(write_later, leases[1], 1)
    assert store.batches == [2]


async def test_writes_during_a_batch_share_the_next_one(autojump_clock, store, writer):
    store.seconds = 0.3
    leases, results = await store.list(), {}
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(write_all, writer, leases[number * 10 : number * 10 + 10], results)
            await trio.sleep(0.02)
    assert store.batches == [10, 90]
    assert len(results) == 100


async def test_a_batch_that_hangs_delays_the_next_one_by_half_a_second(autojump_clock, store, writer):
    store.seconds = 8
    one, *others = await store.list()
    results = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_all, writer, [one], results)
        await trio.sleep(0.1)
        store.seconds = 0
        started = trio.current_time()
        await write_all(writer, others, results)
        assert trio.current_time() - started == pytest.approx(0.4)
        assert one.key not in results


async def test_a_lost_lease_fails_alone(autojump_clock, store, writer, events):
    leases = await store.list()
    await store.take(leases[7], "bob")
    results = {}
    await write_all(writer, leases, results)
    assert isinstance(results.pop("s7"), LeaseLostError)
    assert {row.counter for row in results.values()} == {1}
    assert events == [
        LeaseStoreCalled("renew", "", 0.0, None, 99),
        LeaseStoreCalled("renew", "s7", 0.0, "lease_lost", 1),
    ]


@pytest.mark.parametrize("fault", ["error", "hang"])
async def test_each_write_of_a_batch_that_fails_or_hangs_is_in_doubt(autojump_clock, store, writer, events, fault):
    store.error, store.seconds = LeaseStoreUnavailableError("down"), {"error": 0.0, "hang": 100.0}[fault]
    results = {}
    await write_all(writer, await store.list(), results)
    assert {type(result) for result in results.values()} == {LeaseStoreUnavailableError}
    assert [event.error_type for event in events] == ["lease_store_unavailable"]
    assert trio.current_time() == {"error": 0.0, "hang": 10.0}[fault]


async def test_two_writes_of_one_lease_go_into_two_batches(autojump_clock, store, writer):
    lease, *_ = await store.list()
    settled = []
    writer.put(RenewLease(lease), settled.append)
    writer.put(ReleaseLease(lease), settled.append)
    await trio.testing.wait_all_tasks_blocked()
    renewed, lost = settled
    assert renewed.counter == 1
    assert isinstance(lost, LeaseLostError)


async def test_a_batch_has_at_most_a_thousand_writes_and_those_of_one_lease_keep_their_order(
    autojump_clock, store, writer
):
    settled = []
    leases = [Lease(f"many-{number}", Checkpoint("5"), owner="ann") for number in range(1500)]
    for lease in leases:
        await store.create(lease)
    for number, lease in enumerate([*leases, leases[0], leases[-1]]):
        writer.put(RenewLease(lease), lambda _result, number=number: settled.append(number))
    await trio.sleep(1)
    assert store.batches == [1000, 501, 1]
    assert settled == [*range(1501), 1501]


async def test_a_write_that_is_cancelled_before_its_batch_has_no_effect(autojump_clock, store, writer):
    store.seconds = 0.2
    one, other, *_ = await store.list()
    results = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_all, writer, [one], results)
        await trio.sleep(0.1)
        with trio.move_on_after(0.05):
            await writer.write(RenewLease(other))
    await trio.sleep(1)
    assert store.batches == [1]
    assert await store.get(other.key) == other


async def test_a_batch_is_cancelled_when_nobody_waits_for_it(autojump_clock, store, writer):
    store.seconds = 5
    leases = await store.list()
    with trio.move_on_after(1):
        await write_all(writer, leases, {})
    await trio.sleep(10)
    assert list(await store.list()) == list(leases)


async def test_a_batch_goes_on_while_somebody_waits_for_one_of_its_writes(autojump_clock, store, writer):
    store.seconds = 5
    (one, other), results = (await store.list())[:2], []
    withdrawn = writer.put(RenewLease(one), lambda _result: None)
    writer.put(RenewLease(other), results.append)
    await trio.sleep(1)
    writer.withdraw(withdrawn)
    await trio.sleep(9)
    assert store.batches == [2]
    assert results == [await store.get(other.key)]
    assert results != [other]


async def test_writes_are_performed_one_by_one_while_the_task_does_not_run(autojump_clock, store, events):
    writer, results = LeaseWriter(store, 10.0, events.append), {}
    await write_all(writer, (await store.list())[:3], results)
    assert store.batches == [1, 1, 1]
    assert {row.counter for row in results.values()} == {1}


async def test_writes_are_performed_one_by_one_after_the_task_has_ended(autojump_clock, store, events):
    """The coordinator's leases may still be checkpointed then, for example by a shard that is being cancelled."""
    writer = LeaseWriter(store, 10.0, events.append)
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        nursery.cancel_scope.cancel()
    with trio.fail_after(60):
        assert (await writer.write(RenewLease((await store.list())[0]))).counter == 1


async def test_writes_in_the_queue_fail_when_the_task_ends(autojump_clock, store, events):
    writer, results = LeaseWriter(store, 10.0, events.append), {}
    store.seconds = 3
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        nursery.start_soon(write_all, writer, (await store.list())[:3], results)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert list(await store.list()) == [Lease(f"s{number}", Checkpoint("5"), owner="ann") for number in range(100)]


async def test_a_store_that_cannot_batch_performs_each_write_of_a_batch(autojump_clock, events, nursery):
    class Plain(MemoryLeaseStore):
        write_many = LeaseStore.write_many

    store = Plain()
    for number in range(3):
        await store.create(Lease(f"s{number}", Checkpoint("5"), owner="ann"))
    leases = await store.list()
    await store.take(leases[1], "bob")
    writer, results = LeaseWriter(store, 10.0, events.append), {}
    await nursery.start(writer.run)
    await write_all(writer, leases, results)
    assert isinstance(results.pop("s1"), LeaseLostError)
    assert results == {row.key: row for row in await store.list() if row.key != "s1"}
    assert {row.counter for row in results.values()} == {1}


async def test_a_write_that_is_withdrawn_before_its_batch_fails_and_is_not_written(autojump_clock, store):
    idle, results = LeaseWriter(store, 10.0, lambda _event: None), []
    (lease, other) = (await store.list())[:2]
    entry = idle.put(RenewLease(lease), results.append)
    idle.put(RenewLease(other), lambda _result: None)
    idle.withdraw(entry)
    (error,) = results
    assert isinstance(error, LeaseStoreUnavailableError)
    idle.withdraw(entry)  # again: it has its result
    async with trio.open_nursery() as running:
        await running.start(idle.run)
        await trio.sleep(1)
        running.cancel_scope.cancel()
    assert (store.batches, len(results)) == ([1], 1)
    assert {
        row.key: row.counter - lease.counter for row in await store.list() if row.key in {lease.key, other.key}
    } == {
        lease.key: 0,
        other.key: 1,
    }


async def test_a_batch_with_two_writes_of_a_lease_is_refused_before_any_is_written(store):
    """By the function for stores without transactions, as each store refuses it."""
    lease = (await store.list())[0]
    with pytest.raises(ValueError, match="two writes of one lease"):
        await write_each(store, [RenewLease(lease), ReleaseLease(lease)], lambda *_result: None)
    assert (await store.list())[0] == lease


async def test_a_write_alone_needs_no_batch_of_the_store(autojump_clock, store, writer):
    store.error = LeaseStoreUnavailableError("batches do not work")
    lease, other, *_ = await store.list()
    assert (await writer.write(RenewLease(lease))).counter == 1
    results = {}
    await write_all(writer, [other, (await store.list())[2]], results)
    assert [str(result) for result in results.values()] == ["batches do not work"] * 2


async def test_each_kind_of_write_is_reported_with_its_operation_and_its_duration(autojump_clock, store, events):
    writer = LeaseWriter(store, 10.0, events.append)
    store.seconds = 0.5
    lease, other, *_ = await store.list()
    lease = await writer.write(RenewLease(lease))
    lease = await writer.write(RenewLease(lease, Checkpoint("6")))
    await writer.write(ReleaseLease(lease))
    await writer.write(TakeLease(other, "bob"))
    await writer.write(TakeLease(await store.get(other.key), "cid"), "steal")
    assert events == [
        LeaseStoreCalled("renew", "s0", 0.5),
        LeaseStoreCalled("checkpoint", "s0", 0.0),
        LeaseStoreCalled("release", "s0", 0.0),
        LeaseStoreCalled("take", "s1", 0.0),
        LeaseStoreCalled("steal", "s1", 0.0),
    ]


async def test_of_a_batch_each_take_is_reported_by_itself_and_other_writes_together(
    autojump_clock, store, writer, events
):
    store.seconds = 0.5
    for lease in (await store.list())[:4]:
        is_taken = lease.key in {"s0", "s1"}
        writer.put(TakeLease(lease, "bob") if is_taken else RenewLease(lease), lambda _result: None)
    await trio.sleep(1)
    assert events == [
        LeaseStoreCalled("take", "s0", 0.5),
        LeaseStoreCalled("take", "s1", 0.5),
        LeaseStoreCalled("renew", "", 0.5, None, 2),
    ]


async def test_a_batch_that_fails_is_reported_with_the_reason_and_each_task_gets_an_error_of_its_own(
    autojump_clock, store, writer, events
):
    store.error = LeaseStoreUnavailableError("down")
    results = {}
    await write_all(writer, (await store.list())[:2], results)
    one, other = results.values()
    assert (str(one), str(other), one is other) == ("down", "down", False)
    assert one.__cause__ is other.__cause__ is store.error
    assert events == [LeaseStoreCalled("renew", "", 0.0, "lease_store_unavailable", 2, "down")]


async def test_a_batch_that_is_cancelled_is_reported_as_that_and_its_writes_fail(autojump_clock, store, events):
    writer, results = LeaseWriter(store, 10.0, events.append), []
    store.seconds = 3
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        leases = await store.list()
        for lease in leases[:2]:
            writer.put(RenewLease(lease), results.append)
        await trio.sleep(1)
        writer.put(RenewLease(leases[2]), results.append)
        nursery.cancel_scope.cancel()
    assert sorted(str(error) for error in results) == [
        "the lease coordinator has ended",
        "the write was cancelled",
        "the write was cancelled",
    ]
    assert all(error.retryable for error in results)
    assert events == [LeaseStoreCalled("renew", "", 1.0, "cancelled", 2)]


async def test_a_batch_in_which_a_write_hangs_is_given_up_although_others_wait(autojump_clock, store, writer):
    store.seconds, results = 8, []
    leases = await store.list()
    hanging = writer.put(RenewLease(leases[0]), results.append)
    writer.put(RenewLease(leases[1]), results.append)
    await trio.sleep(1)
    writer.withdraw(hanging, hangs=True)
    await trio.testing.wait_all_tasks_blocked()
    assert [str(error) for error in results] == ["the lease store did not respond in time"] * 2
    assert trio.current_time() == 1
    assert hanging.batch is None
    writer.withdraw(hanging)  # it has its result
    assert len(results) == 2
