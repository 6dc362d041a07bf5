"""One held lease without a coordinator: what it saves and when, and what it makes of a row that it did not expect."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
import trio

from efo.errors import LeaseLostError, LeaseStoreUnavailableError
from efo.events import CheckpointSaved, LeaseLost, LeaseStoreCalled
from efo.leases.held_lease import IDLE_CHECKPOINT_INTERVAL, HeldLease, LeaseTiming, report_store_call
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.writer import LeaseWriter
from efo.leases.writes import RenewLease
from efo.model import Checkpoint, Lease
from tests.efo.leases.conftest import FaultyStore

TIMING = LeaseTiming(failover_seconds=9.0, checkpoint_seconds=2.0)


class Reader:
    """The reader of a shard: its checkpoint, and how many acks it has made."""

    def __init__(self, acked=None, acks=0):
        self.acked = None if acked is None else Checkpoint(str(acked))
        self.acks = acks
        self.bytes_received = 0
        self.saves = []

    def saved(self, acks):
        self.saves.append(acks)


class Holding:
    """A lease at checkpoint 5 that ann has taken, its store, and what it has told."""

    def __init__(self, lease):
        self.rows = MemoryLeaseStore()
        self.store = FaultyStore(self.rows)
        self.events, self.told = [], []
        self.writer = LeaseWriter(self.store, 9.0, self.events.append)
        self.held = HeldLease(
            lease,
            self.store,
            self.writer,
            taken_at=trio.current_time(),
            timing=TIMING,
            observer=self.events.append,
            on_end=lambda _held: self.told.append("end"),
            on_handoff_requested=lambda: self.told.append("requested"),
            on_due=lambda held: self.told.append(held.renew_at),
        )
        self.told.clear()

    async def row(self):
        return await self.rows.get("s0")

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
async def holding():
    made = Holding(Lease("s0", Checkpoint("5"), owner="ann", counter=3))
    await made.rows.create(made.held.lease)
    return made


@pytest.fixture
def held(holding):
    return holding.held


@pytest.fixture
async def running(holding, nursery):
    await nursery.start(holding.writer.run)
    return holding


def test_the_intervals_of_a_lease_are_shares_of_the_failover_time():
    assert (TIMING.renewal_interval, TIMING.retry_interval) == (3.0, 0.5)


async def test_a_lease_that_was_just_taken_is_trusted_and_renewed_by_the_time_of_its_take(
    autojump_clock, holding, held
):
    assert (held.trusted_until, held.renew_at) == (pytest.approx(0.95 * 9), 3.0)
    assert not held.has_ended


# --- saving what the reader has acked ---


@pytest.mark.parametrize("reader", [None, Reader(), Reader(5, acks=1)], ids=["none", "nothing acked", "saved already"])
async def test_what_is_saved_or_nobody_has_acked_is_not_written(autojump_clock, holding, held, reader):
    held.reader = reader
    await held.save()
    assert (held.save_at(), holding.store.calls) == (inf, [])


async def test_an_acked_checkpoint_is_written_and_its_reader_told(autojump_clock, holding, held):
    held.reader = Reader(6, acks=4)
    await held.save()
    assert (await holding.row()).checkpoint == held.lease.checkpoint == Checkpoint("6")
    assert held.reader.saves == [4]
    assert holding.of(CheckpointSaved) == [CheckpointSaved("s0", Checkpoint("6"))]
    await held.save()
    assert len(holding.store.calls) == 1


async def test_a_shard_whose_end_was_saved_without_a_response_is_not_moved_back(autojump_clock, holding, held):
    held.reader = Reader(6, acks=1)
    holding.store.faults["checkpoint"] = "response_lost"
    with pytest.raises(LeaseStoreUnavailableError):
        await held.checkpoint(Checkpoint.SHARD_END)
    holding.store.faults.clear()
    await held.confirm()
    assert held.lease.is_finished
    assert not held.has_ended
    assert held.save_at() == inf
    await held.save()
    assert (await holding.row()).is_finished


@pytest.mark.parametrize(
    ("reader", "checkpoint", "seconds"),
    [
        (Reader(6, acks=1), "5", 2.0),
        (Reader(6, acks=0), "LATEST", 2.0),  # the first position, although no record was acked
        (Reader(6, acks=0), "5", None),
    ],
    ids=["acks", "sentinel", "idle"],
)
async def test_progress_is_due_after_the_checkpoint_interval_if_records_were_acked(
    autojump_clock, reader, checkpoint, seconds
):
    await trio.sleep(7)
    held = Holding(Lease("s0", Checkpoint(checkpoint), owner="ann")).held
    held.reader = reader
    if seconds is None:
        assert 0.5 * IDLE_CHECKPOINT_INTERVAL <= held.save_at() - 7 <= IDLE_CHECKPOINT_INTERVAL == 300
    else:
        assert held.save_at() == 7 + seconds


async def test_progress_of_a_lease_that_has_ended_is_never_due(autojump_clock, holding, held):
    held.reader = Reader(6, acks=1)
    held.mark_lost("taken")
    assert held.save_at() == inf


async def test_after_a_save_only_further_acks_are_urgent(autojump_clock, holding, held):
    held.reader = Reader(6, acks=1)
    await held.save()
    held.reader.acked = Checkpoint("7")
    assert held.save_at() >= 150
    held.reader.acks = 2
    assert held.save_at() == 2.0


async def test_after_a_save_without_a_reader_the_first_ack_is_urgent(autojump_clock, running):
    held = running.held
    await held.checkpoint(Checkpoint("6"))
    held.renew_soon()
    await trio.testing.wait_all_tasks_blocked()
    held.reader = Reader(7, acks=1)
    assert held.save_at() == 2.0


async def test_the_next_look_for_progress_is_one_checkpoint_interval_after_the_last_save_or_now(
    autojump_clock, holding, held
):
    assert [held.next_save_check(now) for now in (0.0, 1.9, 2.0, 10.0)] == [2.0, 2.0, 4.0, 12.0]


# --- renewals ---


async def test_a_renewal_saves_progress_that_is_due_before_the_next_one(autojump_clock, running):
    held = running.held
    held.reader = Reader(6, acks=1)
    held.renew_soon()
    assert held.renew_at == inf
    await trio.testing.wait_all_tasks_blocked()
    assert (held.lease.checkpoint, held.lease.counter, held.reader.saves) == (Checkpoint("6"), 4, [1])
    held.reader.acked = Checkpoint("7")  # not due: idle
    held.renew_soon()
    await trio.testing.wait_all_tasks_blocked()
    assert (held.lease.checkpoint, held.lease.counter, held.reader.saves) == (Checkpoint("6"), 5, [1])
    assert held.renew_at == 3.0


async def test_progress_that_is_due_at_the_time_of_the_next_renewal_is_saved_by_this_one(autojump_clock, running):
    held = running.held
    held._timing = LeaseTiming(failover_seconds=9.0, checkpoint_seconds=3.0)
    held.reader = Reader(6, acks=1)
    held.renew_soon()
    await trio.testing.wait_all_tasks_blocked()
    assert held.lease.checkpoint == Checkpoint("6")


async def test_a_renewal_that_meets_another_write_is_tried_again_soon(autojump_clock, running):
    held = running.held
    running.store.faults["checkpoint"] = "slow"
    async with trio.open_nursery() as writing:
        writing.start_soon(held.checkpoint, Checkpoint("6"))
        await trio.sleep(0.25)
        held.renew_soon()
        assert held.renew_at == 0.25 + TIMING.retry_interval
        assert running.told[-1] == held.renew_at
    assert running.store.times("renew") == []


async def test_a_renewal_that_fails_is_tried_again_soon_and_the_trust_does_not_grow(autojump_clock, running):
    held = running.held
    trusted_until = held.trusted_until
    running.store.faults["renew"] = "down"
    held.renew_soon()
    await trio.sleep(1)
    assert (held.renew_at, held.trusted_until) == (TIMING.retry_interval, trusted_until)
    held.expire()
    assert running.of(LeaseLost) == [LeaseLost("s0", "store")]


async def test_a_store_that_answers_again_is_not_why_a_lease_expires_later(autojump_clock, running):
    held = running.held
    running.store.faults["renew"] = "down"
    held.renew_soon()
    await trio.testing.wait_all_tasks_blocked()
    running.store.faults.clear()
    held.renew_soon()
    await trio.testing.wait_all_tasks_blocked()
    held.expire()
    assert running.of(LeaseLost) == [LeaseLost("s0", "expired")]


async def test_renewals_and_confirmations_save_the_throughput_of_the_reader(autojump_clock, running):
    held = running.held
    await held.confirm()
    assert (await running.row()).throughput_kbps is None
    held.reader = Reader()
    await held.confirm()
    await trio.sleep(1)
    held.reader.bytes_received = 250_000
    held.renew_soon()
    await trio.testing.wait_all_tasks_blocked()
    assert (await running.row()).throughput_kbps == 250.0
    await trio.sleep(1)
    held.reader.bytes_received = 500_000
    await held.confirm()
    assert (await running.row()).throughput_kbps == pytest.approx(250.0)


async def test_a_withdrawn_renewal_changes_nothing_of_a_lease_that_has_ended(autojump_clock, running):
    held = running.held
    held.reader = Reader(6, acks=1)
    running.store.faults["checkpoint"] = "hang"
    held.renew_soon()
    await trio.testing.wait_all_tasks_blocked()
    held.mark_lost("taken")
    await trio.testing.wait_all_tasks_blocked()
    assert (held.reader.saves, running.told) == ([], ["end"])
    assert held.unresolved is None


async def test_a_lease_that_is_given_up_does_not_let_others_wait_for_its_batch(autojump_clock, running):
    other, results = Lease("s1", Checkpoint("5"), owner="ann"), []
    await running.rows.create(other)
    running.store.faults["renew"] = "hang"
    running.held.renew_soon()
    running.writer.put(RenewLease(other), results.append)
    await trio.sleep(1)
    running.held.expire()
    await trio.testing.wait_all_tasks_blocked()
    assert [type(result) for result in results] == [LeaseStoreUnavailableError]
    assert trio.current_time() == 1


# --- what others wrote ---


async def test_a_request_in_the_row_is_told_once(autojump_clock, holding, held):
    row = await holding.rows.request_handoff(await holding.row(), "bob")
    for one in (replace(row, counter=2), replace(row, checkpoint_owner="cid"), replace(row, checkpoint_owner=None)):
        held.observe_row(one)
    assert not held.handoff_requested.is_set()
    for _ in range(2):
        held.observe_row(row)
    assert held.handoff_requested.is_set()
    assert holding.told == ["requested"]


async def test_a_request_is_told_by_a_renewal_and_not_of_a_lease_that_has_ended(autojump_clock, holding, held):
    row = await holding.rows.request_handoff(await holding.row(), "bob")
    await held.confirm()
    assert held.handoff_requested.is_set()
    ended = Holding(replace(row, owner="ann", checkpoint_owner=None)).held
    ended.mark_lost("taken")
    ended.observe_row(row)
    assert not ended.handoff_requested.is_set()


async def take_away(rows):
    await rows.take(await rows.get("s0"), "bob")


async def take_again(rows):
    """Two writes of a second worker with the same id, although only one is in doubt."""
    await rows.take(await rows.take(await rows.get("s0"), "ann"), "ann")


async def delete(rows):
    await rows.delete("s0")


@pytest.mark.parametrize("change", [take_away, take_again, delete])
async def test_a_write_in_doubt_is_lost_if_the_row_is_not_what_it_would_have_written(
    autojump_clock, holding, held, change
):
    holding.store.faults["renew"] = "down"
    with pytest.raises(LeaseStoreUnavailableError):
        await held.confirm()
    holding.store.faults.clear()
    await change(holding.rows)
    row = await holding.row()
    with pytest.raises(LeaseLostError):
        await held.checkpoint(Checkpoint("6"))
    assert await holding.row() == row
    assert (holding.of(LeaseLost), holding.told[-1]) == ([LeaseLost("s0", "taken")], "end")


async def test_a_lease_that_another_worker_took_is_not_released_again(autojump_clock, holding, held):
    await take_away(holding.rows)
    await held.release()
    assert holding.of(LeaseLost) == [LeaseLost("s0", "taken")]
    await held.release()
    assert (await holding.row()).owner == "bob"


@pytest.mark.parametrize(("to", "reason"), [("bob", "handed_over"), (None, "released")])
async def test_a_release_is_told_with_what_became_of_the_lease(autojump_clock, holding, held, to, reason):
    if to is not None:
        await holding.rows.request_handoff(await holding.row(), to)
    await held.release()
    assert holding.of(LeaseLost) == [LeaseLost("s0", reason)]
    assert (await holding.row()).holder == to


async def test_a_loss_is_told_once_with_its_first_reason(autojump_clock, holding, held):
    held.mark_lost("taken")
    held.mark_lost("store")
    assert (held.lost_because, holding.told) == ("taken", ["end"])
    assert holding.of(LeaseLost) == [LeaseLost("s0", "taken")]


async def test_a_reader_that_has_left_is_told_nothing_more(autojump_clock, holding, held):
    told = []
    held.reader, held.unread_since = Reader(6, acks=1), lambda: 5.0
    held.watch(on_lost=lambda: told.append("lost"), on_handoff_requested=lambda: told.append("requested"))
    held.forget_reader()
    assert (held.reader, held.unread_since()) == (None, None)
    await holding.rows.request_handoff(await holding.row(), "bob")
    await held.confirm()
    held.mark_lost("taken")
    assert told == []


# --- reports ---


@pytest.mark.parametrize(
    ("error", "error_type", "detail"),
    [
        (None, None, ""),
        (LeaseStoreUnavailableError("no answer"), "lease_store_unavailable", "no answer"),
        (LeaseLostError("taken"), "lease_lost", ""),
        (KeyError("x"), "KeyError", ""),
    ],
)
async def test_a_call_of_the_store_is_reported_with_its_duration_and_its_error(
    autojump_clock, error, error_type, detail
):
    async def call():
        await trio.sleep(3)
        with report_store_call(events.append, "renew", "s0"):
            await trio.sleep(1.5)
            if error is not None:
                raise error

    events = []
    if error is None:
        await call()
    else:
        with pytest.raises(type(error)):
            await call()
    assert events == [LeaseStoreCalled("renew", "s0", 1.5, error_type, detail=detail)]


async def test_a_call_that_is_cancelled_is_reported_as_that(autojump_clock):
    events = []
    with trio.move_on_after(2), report_store_call(events.append, "list", ""):
        await trio.sleep(5)
    assert events == [LeaseStoreCalled("list", "", 2.0, "cancelled")]
