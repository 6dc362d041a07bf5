"""One held lease: its writes, its renewals, and when it counts as lost. The fail-over time is 10 s."""

from itertools import pairwise

import pytest
import trio

from efo.errors import LeaseLostError, LeaseStoreUnavailableError
from efo.events import CheckpointSaved, LeaseStoreCalled
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint


@pytest.fixture
async def ann(fleet):
    """A worker that holds the only lease."""
    await fleet.create(1)
    worker = fleet.start("ann")
    await trio.testing.wait_all_tasks_blocked()
    assert worker.keys == {"s0"}
    return worker


@pytest.fixture
def held(ann):
    return ann.coordinator.held["s0"]


async def test_a_lease_is_renewed_three_times_per_failover_time(autojump_clock, fleet, ann):
    await trio.sleep(99)
    times = ann.store.times("renew")
    assert len(times) == 29
    assert all(after - before == pytest.approx(10 / 3) for before, after in pairwise(times))
    assert (await fleet.rows())["s0"].counter == 1 + 29
    assert ann.keys == {"s0"}


async def test_a_checkpoint_replaces_a_renewal(autojump_clock, fleet, ann, held):
    for number in range(50):
        await trio.sleep(2)
        await held.checkpoint(Checkpoint(str(number)))
    assert ann.store.times("renew") == []
    row = (await fleet.rows())["s0"]
    assert row == held.lease
    assert (row.checkpoint, row.counter) == (Checkpoint("49"), 51)


async def test_each_saved_checkpoint_is_reported_once_to_the_observer_and_to_the_reader(
    autojump_clock, fleet, ann, held
):
    reader = held.reader = Reader()
    reader.acks = 1
    await held.checkpoint(Checkpoint("1"))
    await held.save_children(("a", "b"))  # saves no checkpoint
    await held.checkpoint(Checkpoint("1"))
    reader.acks = 2
    await held.checkpoint(Checkpoint("2"))
    saved = [event.checkpoint for event in ann.events if isinstance(event, CheckpointSaved)]
    assert saved == [Checkpoint("1"), Checkpoint("2")]
    assert reader.saves == [1, 2]


async def test_a_renewal_saves_since_when_records_are_unread_with_the_checkpoint_that_it_belongs_to(
    autojump_clock, fleet, ann, held
):
    reader = held.reader = Reader()
    held.unread_since = trio.current_time
    await held.checkpoint(Checkpoint("1"))
    reader.acked = Checkpoint("1")
    await trio.sleep(60)  # idle: it is renewed, at the same checkpoint
    row = (await fleet.rows())["s0"]
    assert row.checkpoint == Checkpoint("1")
    assert row.unread_since == pytest.approx(trio.current_time(), abs=5)
    reader.acked = Checkpoint("2")  # not saved yet
    before = row.unread_since
    await held.checkpoint(Checkpoint("1"))
    assert (await fleet.rows())["s0"].unread_since == before
    await held.checkpoint(Checkpoint("2"))
    assert (await fleet.rows())["s0"].unread_since == trio.current_time()


async def test_a_time_that_is_unknown_leaves_the_one_before(autojump_clock, fleet, ann, held):
    held.reader = Reader()
    held.unread_since = lambda: 5.0
    await held.checkpoint(Checkpoint("1"))
    held.unread_since = lambda: None
    await held.checkpoint(Checkpoint("2"))
    assert (await fleet.rows())["s0"].unread_since == 5.0


async def test_a_renewal_notes_the_stream_in_a_row_that_does_not_name_it(autojump_clock, fleet, ann, held):
    await trio.sleep(10)
    assert (await fleet.rows())["s0"].stream_created_at is None
    ann.coordinator.stream_created_at = 1000.0
    await trio.sleep(5)
    assert (await fleet.rows())["s0"].stream_created_at == 1000.0
    ann.coordinator.stream_created_at = 2000.0  # what a row says is not changed: the shard sync refuses it
    await trio.sleep(5)
    assert (await fleet.rows())["s0"].stream_created_at == 1000.0


async def test_saving_children_does_not_replace_a_renewal(autojump_clock, fleet, ann, held):
    for _ in range(9):
        await trio.sleep(2)
        await held.save_children(("a", "b"))
    assert len(ann.store.times("renew")) == 5
    assert (await fleet.rows())["s0"].children == held.lease.children == ("a", "b")


async def test_a_checkpoint_waits_for_a_running_renewal(autojump_clock, fleet, ann, held):
    """Otherwise the renewal changes the counter that the checkpoint depends on."""
    ann.store.faults["renew"] = "slow"
    await trio.sleep(4)
    await held.checkpoint(Checkpoint("7"))
    assert len(ann.store.times("renew")) == 1
    assert (await fleet.rows())["s0"] == held.lease
    assert (held.lease.counter, held.lease.checkpoint) == (3, Checkpoint("7"))


@pytest.mark.parametrize(("fault", "reason"), [("down", "store"), ("hang", "expired"), ("response_lost", "store")])
async def test_a_lease_is_given_up_if_no_renewal_succeeds_in_time(autojump_clock, fleet, ann, held, fault, reason):
    started = trio.current_time()
    ann.store.faults["*"] = fault
    await trio.sleep(9.4)
    assert (held.lost.is_set(), held.lost_because) == (False, None)
    await held.lost.wait()
    assert trio.current_time() - started == pytest.approx(9.5)
    assert ann.losses == [("s0", reason)]
    assert held.lost_because == reason
    assert ann.keys == set()
    with pytest.raises(LeaseLostError, match="not held by this worker any more"):
        await held.checkpoint(Checkpoint("1"))


async def test_a_renewal_that_hangs_is_cancelled_when_its_lease_is_given_up(autojump_clock, ann, held):
    ann.store.faults = {"renew": "hang"}
    await held.lost.wait()
    lost_at = trio.current_time()
    await trio.testing.wait_all_tasks_blocked()
    (call,) = [event for event in ann.events if isinstance(event, LeaseStoreCalled) and event.operation == "renew"]
    assert call.error_type is not None
    assert trio.current_time() == lost_at


async def test_a_lease_is_given_up_before_another_worker_takes_it(autojump_clock, fleet, ann, held):
    """Whenever ann loses the store and bob scans the lease table."""
    bob = fleet.start("bob", scan_interval=0.7)
    await trio.sleep(21.3)
    ann.store.faults["*"] = "down"
    while "s0" not in bob.keys:
        await bob.changed.wait()
    assert held.lost.is_set()
    assert ann.losses == [("s0", "store")]


async def test_a_lease_survives_outages_shorter_than_the_failover_time(autojump_clock, ann, held):
    for _ in range(5):
        ann.store.faults["*"] = "down"
        await trio.sleep(6)
        ann.store.faults.clear()
        await trio.sleep(4)
    assert not held.lost.is_set()
    assert ann.losses == []


async def test_after_a_long_outage_the_lease_is_taken_at_the_first_scan(autojump_clock, ann, held):
    await trio.sleep(5)
    ann.store.faults["*"] = "down"
    await held.lost.wait()
    await trio.sleep(60)
    ann.store.faults.clear()
    await trio.sleep(1)
    assert ann.keys == {"s0"}
    assert ann.coordinator.held["s0"] is not held


@pytest.mark.scenario("G21")
async def test_a_renewal_whose_response_was_lost_succeeds(autojump_clock, fleet, ann, held):
    """The row has this worker as holder, and a counter that is one ahead."""
    ann.store.faults["renew"] = "response_lost"
    await trio.sleep(3.4)
    ann.store.faults.clear()
    assert (await fleet.rows())["s0"].counter == held.lease.counter + 1
    await trio.sleep(30)
    assert ann.losses == []
    assert (await fleet.rows())["s0"] == held.lease


async def test_a_checkpoint_whose_response_was_lost_can_be_written_again(autojump_clock, fleet, ann, held):
    ann.store.faults["checkpoint"] = "response_lost"
    with pytest.raises(LeaseStoreUnavailableError):
        await held.checkpoint(Checkpoint("7"))
    ann.store.faults.clear()
    await held.checkpoint(Checkpoint("8"))
    assert (await fleet.rows())["s0"] == held.lease
    assert held.lease.checkpoint == Checkpoint("8")


async def test_saving_children_does_not_hide_a_lost_response(autojump_clock, fleet, ann, held):
    ann.store.faults["renew"] = "response_lost"
    with pytest.raises(LeaseStoreUnavailableError):
        await held.confirm()
    ann.store.faults.clear()
    await held.save_children(("c",))
    await held.checkpoint(Checkpoint.SHARD_END)
    assert (await fleet.rows())["s0"].is_finished
    assert ann.losses == []


async def test_a_lease_can_be_released_after_a_cancelled_write(autojump_clock, fleet, ann, held):
    ann.store.faults["checkpoint"] = "hang"
    with trio.move_on_after(1) as scope:
        await held.checkpoint(Checkpoint("7"))
    assert scope.cancelled_caught
    await held.release()
    assert (await fleet.rows())["s0"].owner is None


async def test_a_counter_one_ahead_without_a_write_in_doubt_is_a_lost_lease(autojump_clock, fleet, ann, held):
    row = (await fleet.rows())["s0"]
    await fleet.store.take(row, "ann")  # by a second worker with the same id
    await trio.sleep(4)
    assert ann.losses == [("s0", "taken")]


async def test_a_checkpoint_after_a_second_worker_with_the_same_id_is_refused(autojump_clock, fleet, ann, held):
    """Its row looks like one of a write in doubt, but there is none."""
    row = await fleet.store.take((await fleet.rows())["s0"], "ann")
    with pytest.raises(LeaseLostError):
        await held.checkpoint(Checkpoint("7"))
    assert (await fleet.rows())["s0"] == row


async def test_a_watcher_is_called_once_when_the_lease_is_requested_and_when_it_is_lost(
    autojump_clock, fleet, ann, held
):
    calls = []
    ann.release_delay = None
    held.watch(on_lost=lambda: calls.append("lost"), on_handoff_requested=lambda: calls.append("requested"))
    await fleet.store.request_handoff((await fleet.rows())["s0"], "bob")
    await trio.sleep(20)
    assert calls == ["requested"]
    ann.store.faults["*"] = "down"
    await trio.sleep(20)
    assert calls == ["requested", "lost"]


async def test_a_watcher_that_comes_late_is_called_at_once(autojump_clock, fleet, ann, held):
    ann.release_delay = None
    await fleet.store.request_handoff((await fleet.rows())["s0"], "bob")
    await held.handoff_requested.wait()
    calls = []
    watcher = {"on_lost": lambda: calls.append("lost"), "on_handoff_requested": lambda: calls.append("requested")}
    held.watch(**watcher)
    assert calls == ["requested"]
    ann.store.faults["*"] = "down"
    await held.lost.wait()
    calls.clear()
    held.watch(**watcher)
    assert calls == ["requested", "lost"]


async def test_the_end_of_a_shard_is_no_loss_for_its_watcher(autojump_clock, fleet, ann, held):
    calls = []
    held.watch(on_lost=lambda: calls.append("lost"), on_handoff_requested=lambda: calls.append("requested"))
    await held.checkpoint(Checkpoint.SHARD_END)
    await trio.sleep(20)
    assert calls == []


async def test_a_worker_that_lost_its_lease_cannot_checkpoint(autojump_clock, fleet, ann, held):
    """For example a worker that was suspended."""
    bob_lease = await fleet.store.take((await fleet.rows())["s0"], "bob")
    bob_lease = await fleet.store.checkpoint(bob_lease, Checkpoint("9"))
    with pytest.raises(LeaseLostError):
        await held.checkpoint(Checkpoint("3"))
    assert (await fleet.rows())["s0"] == bob_lease
    assert held.lost.is_set()
    assert ann.losses == [("s0", "taken")]


async def test_a_deleted_row_is_a_lost_lease(autojump_clock, fleet, ann, held):
    await fleet.store.delete("s0")
    await trio.sleep(4)
    assert ann.losses == [("s0", "taken")]
    assert await fleet.rows() == {}


@pytest.mark.parametrize("moment", [0.3, 2.4, 7.1])
async def test_a_released_lease_is_taken_again_at_the_next_scan(autojump_clock, fleet, ann, held, moment):
    """Although no row has changed since this worker wrote it, and all leases were settled before."""
    await trio.sleep(moment)
    await held.release()
    assert ann.keys == set()
    await trio.sleep(1.1)
    assert ann.keys == {"s0"}


async def test_a_released_lease_has_no_owner(autojump_clock, fleet, ann, held):
    ann.coordinator.stop_acquiring()
    await held.release()
    assert held.lost.is_set()
    assert ann.losses == [("s0", "released")]
    assert (await fleet.rows())["s0"].owner is None
    await held.release()  # a second release does nothing
    await trio.sleep(30)
    assert (await fleet.rows())["s0"].counter == 2


async def test_a_lease_is_still_held_after_a_failed_release(autojump_clock, ann, held):
    ann.store.faults["release"] = "down"
    with pytest.raises(LeaseStoreUnavailableError):
        await held.release()
    assert not held.lost.is_set()
    assert ann.keys == {"s0"}


async def test_shard_end_ends_the_held_lease_without_a_loss(autojump_clock, fleet, ann, held):
    await held.save_children(("s1",))
    await held.checkpoint(Checkpoint.SHARD_END)
    assert ann.keys == set()
    assert not held.lost.is_set()
    assert ann.losses == []
    finished = (await fleet.rows())["s0"]
    assert finished.is_finished
    await trio.sleep(100)
    assert (await fleet.rows())["s0"] == finished
    assert ann.keys == set()


async def test_operations_are_reported_as_events(autojump_clock, ann, held):
    await trio.sleep(4)
    ann.store.faults["checkpoint"] = "down"
    with pytest.raises(LeaseStoreUnavailableError):
        await held.checkpoint(Checkpoint("7"))
    operations = [event for event in ann.events if isinstance(event, LeaseStoreCalled) and event.shard_id]
    assert operations == [
        LeaseStoreCalled("take", "s0", 0.0),
        LeaseStoreCalled("renew", "s0", 0.0),
        LeaseStoreCalled(
            "checkpoint", "s0", 0.0, "lease_store_unavailable", detail="checkpoint: down (injected fault)"
        ),
    ]


# --- the progress of the reader ---


class Reader:
    """The reader of a shard: its progress, and how many acks it has made."""

    def __init__(self, checkpoint=None):
        self.acked = checkpoint
        self.acks = 0
        self.bytes_received = 0
        self.saves = []

    def saved(self, acks):
        self.saves.append(acks)

    def ack(self, number):
        self.acked = Checkpoint(str(number))
        self.acks += 1

    def move(self, number):
        """Move without records: by the continuation of an event without records."""
        self.acked = Checkpoint(str(number))


async def test_progress_is_saved_with_renewals_and_without_a_write_of_its_own(autojump_clock, fleet, ann, held):
    held.reader = Reader()
    for number in range(50):
        held.reader.ack(number)
        await trio.sleep(2)
    times = ann.store.times("checkpoint")
    assert ann.store.times("renew") == []
    assert max(after - before for before, after in pairwise(times)) == pytest.approx(10 / 3)


async def test_progress_is_saved_within_the_checkpoint_interval(autojump_clock, fleet):
    """Also if renewals are less frequent."""
    await fleet.create(3)
    ann = fleet.start("ann", failover_seconds=100.0, checkpoint_seconds=2.0)
    await trio.testing.wait_all_tasks_blocked()
    readers = {key: Reader() for key in ann.keys}
    for key, held in ann.coordinator.held.items():
        held.reader = readers[key]
    for number in range(100):
        for key in ("s0", "s1"):
            readers[key].ack(number)
            await trio.sleep(2.4)
            assert ann.coordinator.held[key].lease.checkpoint == Checkpoint(str(number))
    assert ann.coordinator.held["s2"].lease.counter < 20


async def test_progress_without_records_is_saved_rarely_after_the_first_time(autojump_clock, fleet, ann, held):
    held.reader = Reader()
    held.reader.move(0)
    await trio.sleep(4)
    assert held.lease.checkpoint == Checkpoint("0")
    for number in range(1, 1000):
        held.reader.move(number)
        await trio.sleep(5)
    saved = ann.store.times("checkpoint")
    assert all(145 <= after - before <= 300 for before, after in pairwise(saved))
    assert len(saved) > 1000 * 5 / 300


async def test_idle_shards_are_checkpointed_every_150_to_300_s_and_not_together(autojump_clock, fleet):
    await fleet.create(40)
    worker = fleet.start("ann")
    await trio.sleep(1)
    readers = {}
    for key, held in worker.coordinator.held.items():
        readers[key] = held.reader = Reader(Checkpoint("0"))
    saved_at = {key: [] for key in readers}
    for number in range(1, 1500):
        worker.events.clear()
        for reader in readers.values():
            reader.move(number)
        await trio.sleep(1)
        for event in worker.events:
            if isinstance(event, CheckpointSaved):
                saved_at[event.shard_id].append(trio.current_time())
    gaps = [after - before for times in saved_at.values() for before, after in pairwise(times)]
    assert min(gaps) >= 150 - 1
    assert max(gaps) <= 300 + 10 / 3 + 1
    assert max(gaps) - min(gaps) > 75
    assert len({times[1] for times in saved_at.values()}) > 20


async def test_an_ack_after_idle_time_is_saved_with_the_next_renewal(autojump_clock, fleet, ann, held):
    held.reader = Reader()
    held.reader.ack(1)
    await trio.sleep(4)
    held.reader.move(2)
    await trio.sleep(60)
    assert held.lease.checkpoint == Checkpoint("1")
    held.reader.ack(3)
    await trio.sleep(3.4)
    assert held.lease.checkpoint == Checkpoint("3")


async def test_a_long_checkpoint_interval_is_kept(autojump_clock, fleet):
    await fleet.create(1)
    ann = fleet.start("ann", checkpoint_seconds=60.0)
    await trio.testing.wait_all_tasks_blocked()
    held = ann.coordinator.held["s0"]
    held.reader = Reader()
    for number in range(600):
        held.reader.ack(number)
        await trio.sleep(1)
    saved = ann.store.times("checkpoint")
    assert all(50 <= after - before <= 60 for before, after in pairwise(saved))
    assert len(saved) >= 9


async def test_progress_whose_save_failed_is_saved_at_the_next_try(autojump_clock, fleet, ann, held):
    held.reader = Reader()
    held.reader.ack(1)
    ann.store.faults["checkpoint"] = "down"
    await trio.sleep(5)
    ann.store.faults.clear()
    await trio.sleep(1)
    assert (await fleet.rows())["s0"].checkpoint == Checkpoint("1")


async def test_many_leases_are_renewed_in_few_batches(autojump_clock, fleet):
    sizes = []

    class Store(type(fleet.store)):
        async def write_many(self, writes, settle):
            sizes.append(len(writes))
            await super().write_many(writes, settle)

    fleet.store = Store()
    await fleet.create(500)
    worker = fleet.make_worker("ann")
    worker.coordinator = type(worker.coordinator)(fleet.store, "ann")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run)
        await trio.sleep(1)
        sizes.clear()
        await trio.sleep(100)
        assert sizes == [500] * 30
        sizes.clear()
        await worker.stop()
    assert sizes == [500]
    assert {row.owner for row in (await fleet.rows()).values()} == {None}


async def test_a_lease_that_is_lost_in_a_batch_does_not_end_the_renewals_of_the_others(autojump_clock, fleet):
    """The batch is cancelled only for a lease whose own renewal hangs."""

    renewed_at = []

    class SlowStore(MemoryLeaseStore):
        async def renew(self, lease, throughput_kbps=None):
            if lease.key == "s1":
                renewed_at.append(trio.current_time())
                await trio.sleep(1)
            return await super().renew(lease, throughput_kbps)

    fleet.store = SlowStore()
    await fleet.create(2)
    ann = fleet.start("ann")
    await trio.sleep(1)
    await fleet.store.take((await fleet.rows())["s0"], "bob")
    await trio.sleep(5)
    assert ann.losses == [("s0", "taken")]
    assert len(renewed_at) == 1
