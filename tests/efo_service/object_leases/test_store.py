"""Leases on an object store: lost and late answers, contention, outages, and what they cost."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
import trio
import trio.testing

from efo.errors import LeaseLostError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases.writes import RenewLease, TakeLease
from efo.model import Checkpoint, Lease
from efo_service.object_leases.document import FORMAT_VERSION, KEPT_WRITES, key_of
from efo_service.object_leases.store import ObjectLeaseStore
from efo_service.object_store.memory import MemoryStore
from efo_service.relay.errors import StoreDeniedError

KEY = key_of("billing", "orders")
LONG = 60.0
"""Seconds that no test waits for, if it passes."""


class Requests(Counter):
    """Counts the requests of a store that were made, by operation."""

    def watch(self, store: MemoryStore) -> None:
        def count(step) -> None:
            if not step.is_done:
                self[step.operation] += 1

        store.on_step = count


@pytest.fixture
def objects() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def open_store(objects):
    def open_store(client: MemoryStore | None = None, timeout: float = LONG) -> ObjectLeaseStore:
        return ObjectLeaseStore(client or objects.client(), "billing", "orders", timeout=timeout)

    return open_store


@pytest.fixture
async def other(open_store):
    async with open_store() as store:
        yield store


async def held(store, *keys, owner="ann"):
    for key in keys:
        await store.create(Lease(key, Checkpoint.LATEST, owner=owner))
    return list(await store.list())


async def renew_all(store, leases):
    results = {}
    await store.write_many([RenewLease(lease) for lease in leases], results.__setitem__)
    return [results[index] for index in range(len(leases))]


def once(client, operations, fault):
    """Let a fault happen to the next of these requests."""
    faults = [fault]

    def happen(operation, _key):
        return faults.pop() if operation in operations and faults else None

    client.fault = happen


# --- lost answers ---


@pytest.mark.parametrize("fault", ["lost", "refused"])
@pytest.mark.scenario("G28")
async def test_a_write_without_an_answer_is_looked_up_and_is_no_loss(objects, open_store, other, fault) -> None:
    client = objects.client()
    async with open_store(client) as store:
        once(client, {"create"}, fault)
        assert await store.create(Lease("s", Checkpoint.LATEST)) is True
        lease = await other.get("s")
        for write in (partial(store.take, owner="ann"), store.renew, store.release):
            once(client, {"replace"}, fault)
            lease = await write(lease)
            assert await other.get("s") == lease
        assert lease.counter == 3
        once(client, {"replace"}, fault)
        await store.delete("s")
        assert await other.list() == []


async def test_a_lost_answer_is_recognized_after_the_writes_of_others(objects, open_store, other) -> None:
    client = objects.client()
    async with open_store(client) as store:
        mine, theirs = await held(store, "mine", "theirs")
        lost = threading.Event()
        looked = threading.Event()

        def fault(operation, _key):
            if operation == "replace" and not lost.is_set():
                lost.set()
                return "lost"
            if lost.is_set():
                looked.wait()  # the others are faster
            return None

        client.fault = fault
        async with trio.open_nursery() as nursery:
            results = []

            async def renew() -> None:
                results.append(await store.renew(mine))

            nursery.start_soon(renew)
            await trio.to_thread.run_sync(lost.wait)
            for _ in range(KEPT_WRITES - 2):  # and the request: the document still names the write
                theirs = await other.renew(theirs)
            requested = await other.request_handoff(await other.get("mine"), "bob")
            looked.set()
        assert results == [Lease("mine", Checkpoint.LATEST, owner="ann", counter=1)]
        assert await store.get("mine") == requested
        assert (await store.renew(results[0])).owner == "bob"


async def test_after_too_many_other_writes_the_effect_is_unknown_and_said_to_be(objects, open_store, other) -> None:
    client = objects.client()
    async with open_store(client) as store:
        mine, theirs = await held(store, "mine", "theirs")
        lost, looked = threading.Event(), threading.Event()

        def fault(operation, _key):
            if operation == "replace" and not lost.is_set():
                lost.set()
                return "lost"
            if lost.is_set():
                looked.wait()
            return None

        client.fault = fault

        async def renew() -> None:
            with pytest.raises(LeaseStoreUnavailableError, match="had no answer, and after too many others"):
                await store.renew(mine)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(renew)
            await trio.to_thread.run_sync(lost.wait)
            for _ in range(KEPT_WRITES):
                theirs = await other.renew(theirs)
            looked.set()
        assert (await store.get("mine")).counter == 1


async def test_a_write_that_arrives_late_and_its_repetition_have_one_effect(objects, open_store, other) -> None:
    client = objects.client()
    async with open_store(client) as store:
        [lease] = await held(store, "s")
        once(client, {"replace"}, "late")
        renewed = await store.renew(lease)  # the request was made again, since nothing was there
        client.arrive()
        assert renewed.counter == 1
        assert await other.get("s") == renewed


async def test_a_write_that_arrives_late_before_its_repetition_is_found(objects, open_store, other) -> None:
    client = objects.client()
    async with open_store(client) as store:
        [lease] = await held(store, "s")
        once(client, {"replace"}, "late")
        replaced = []

        def step(step) -> None:
            if step.operation == "replace" and not step.is_done:
                replaced.append(step)
                if len(replaced) == 2:
                    client.on_step = lambda _step: None
                    client.arrive()  # between the look and the repetition

        client.on_step = step
        renewed = await store.renew(lease)
        assert len(replaced) == 2
        assert renewed.counter == 1
        assert await other.get("s") == renewed


async def test_a_lease_that_was_really_lost_is_lost_even_without_an_answer(objects, open_store, other) -> None:
    client = objects.client()
    async with open_store(client) as store:
        [lease] = await held(store, "s")
        taken = await other.take(lease, "bob")
        once(client, {"replace"}, "lost")
        with pytest.raises(LeaseLostError):
            await store.renew(lease)
        assert await other.get("s") == taken


# --- several workers ---


async def test_workers_that_write_at_the_same_time_all_get_their_turn(open_store) -> None:
    """Each of six workers renews its own lease ten times: no renewal is lost, and none fails."""
    workers, renewals = 6, 10

    async def work(number: int) -> None:
        async with open_store() as store:
            await store.create(Lease(f"s{number}", Checkpoint.LATEST))
            lease = await store.take(await store.get(f"s{number}"), f"w{number}")
            for _ in range(renewals):
                lease = await store.renew(lease)

    async with trio.open_nursery() as nursery:
        for number in range(workers):
            nursery.start_soon(work, number)
    async with open_store() as store:
        rows = {lease.key: (lease.owner, lease.counter) for lease in await store.list()}
    assert rows == {f"s{number}": (f"w{number}", renewals + 1) for number in range(workers)}


async def test_a_stale_copy_never_decides_that_a_lease_is_lost_or_exists(open_store, other) -> None:
    async with open_store() as store:
        assert await store.list() == []
        [lease] = await held(other, "s")
        assert await store.renew(lease) == await other.get("s")  # the store has not read it yet
        await other.delete("s")
        assert await store.create(lease) is True
        assert await other.create(lease) is False


# --- what it costs ---


async def test_one_request_renews_all_leases_of_a_worker_and_one_reads_all(objects, open_store) -> None:
    client, requests = objects.client(), Requests()
    async with open_store(client) as store:
        leases = await held(store, *(f"s{number:03}" for number in range(100)))
        requests.watch(client)
        for _ in range(3):
            leases = await renew_all(store, leases)
        assert requests == {"replace": 3}
        await store.list()
        assert requests == {"replace": 3, "get": 1}


async def test_writes_that_wait_together_share_a_request(objects, open_store, other) -> None:
    client, requests = objects.client(), Requests()
    async with open_store(client) as store:
        requests.watch(client)
        created = []

        async def create(number: int) -> None:
            created.append(await store.create(Lease(f"s{number % 100}", Checkpoint.LATEST)))

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(create, number)
        assert Counter(created) == {True: 100, False: 100}
        assert len(await other.list()) == 100
        assert requests.total() <= 4


async def test_a_lost_lease_of_a_batch_costs_a_look_and_fails_alone(objects, open_store, other) -> None:
    client, requests = objects.client(), Requests()
    async with open_store(client) as store:
        leases = await held(store, "s0", "s1", "s2")
        await other.take(leases[1], "bob")
        await store.list()
        requests.watch(client)
        renewed = await renew_all(store, leases)
        assert [type(result) for result in renewed] == [Lease, LeaseLostError, Lease]
        assert requests == {"get": 1, "replace": 1}


async def test_beside_other_workers_a_look_comes_before_a_write(objects, open_store, other) -> None:
    client, requests = objects.client(), Requests()
    async with open_store(client) as store:
        mine, theirs = await held(store, "mine", "theirs")
        await other.renew(theirs)
        await store.list()
        await other.renew(await other.get("theirs"))
        requests.watch(client)
        mine = await store.renew(mine)
        assert requests == {"get": 1, "replace": 1}
        mine = await store.renew(mine)  # it looks once more, and finds itself alone
        mine = await store.renew(mine)
        mine = await store.renew(mine)
        assert requests == {"get": 2, "replace": 4}


@pytest.mark.parametrize("fault", ["refused", "lost"])
async def test_a_read_without_an_answer_is_tried_again(objects, open_store, other, fault) -> None:
    client = objects.client()
    async with open_store(client) as store:
        await held(other, "s")
        for call in (store.list, partial(store.get, "s")):
            once(client, {"get"}, fault)
            assert await call()


# --- what does not work ---


async def test_a_store_without_an_answer_is_unavailable(objects, open_store) -> None:
    client = objects.client()
    async with open_store(client, timeout=LONG) as store:
        [lease] = await held(store, "s")
        client.fault = lambda _operation, _key: "refused"
        with pytest.raises(LeaseStoreUnavailableError, match="503 Slow Down"):
            await store.list()
        with pytest.raises(LeaseStoreUnavailableError, match="503 Slow Down"):
            await store.get("s")
    client.fault = lambda _operation, _key: "refused"
    with pytest.raises(LeaseStoreUnavailableError, match="503 Slow Down"):
        async with open_store(client):
            pytest.fail("it opened")
    client.fault = lambda _operation, _key: None
    async with open_store(client, timeout=1.0) as store:
        client.fault = lambda _operation, _key: "refused"
        with pytest.raises(LeaseStoreUnavailableError, match="no result within 1 s"):
            await store.renew(lease)


async def test_missing_rights_are_reported_at_once(objects, open_store) -> None:
    client = objects.client()
    async with open_store(client) as store:
        [lease] = await held(store, "s")

        def deny(_operation, _key):
            raise StoreDeniedError("cannot write s3://logs: 403 Forbidden; check the credentials")

        client.fault = deny
        for call in (lambda: store.renew(lease), store.list):
            with pytest.raises(LeaseStoreUnavailableError, match="403 Forbidden; check the credentials"):
                await call()


async def test_a_request_that_hangs_holds_up_no_other_write(objects, open_store, other) -> None:
    client = objects.client()
    goes_on = threading.Event()
    hangs = threading.Event()
    try:
        async with open_store(client, timeout=6.0) as store:
            mine, theirs = await held(store, "mine", "theirs")

            def step(step) -> None:
                if step.operation == "replace" and not step.is_done and not hangs.is_set():
                    hangs.set()
                    goes_on.wait()

            client.on_step = step
            async with trio.open_nursery() as nursery:

                async def renew_mine() -> None:
                    with suppress(LeaseStoreUnavailableError):
                        await store.renew(mine)

                nursery.start_soon(renew_mine)
                await trio.to_thread.run_sync(hangs.wait)
                theirs = await store.renew(theirs)
                goes_on.set()
            assert await other.get("theirs") == theirs
    finally:
        goes_on.set()


async def test_a_damaged_or_newer_document_is_refused_and_never_overwritten(objects, open_store, other) -> None:
    await held(other, "s")
    document = json.loads(objects.get(KEY).content)
    for changed, message in (
        (b"{", r"memory://log/\.efo-leases/application=billing/stream=orders\.json is damaged"),
        (json.dumps(document | {"format": 3}).encode(), "format version 3, this efo supports 1 to 2"),
    ):
        objects.replace(KEY, changed, objects.get(KEY).version)
        with pytest.raises(LeaseStoreCorruptError, match=message):
            async with open_store():
                pytest.fail("it opened")
        for call in (lambda: other.create(Lease("t", Checkpoint.LATEST)), other.list, lambda: other.get("s")):
            with pytest.raises(LeaseStoreCorruptError, match=message):
                await call()
        assert objects.get(KEY).content == changed


async def test_a_damaged_row_stops_what_reads_it_and_keeps_its_content(objects, open_store, other) -> None:
    [good, _] = await held(other, "good", "bad")
    document = json.loads(objects.get(KEY).content)
    document["leases"]["bad"]["checkpoint"] = "seven"
    objects.replace(KEY, json.dumps(document).encode(), objects.get(KEY).version)
    with pytest.raises(LeaseStoreCorruptError, match="lease 'bad' is damaged"):
        await other.list()
    for call in (lambda: other.create(Lease("bad", Checkpoint.LATEST)), lambda: other.get("bad")):
        with pytest.raises(LeaseStoreCorruptError, match="lease 'bad' is damaged"):
            await call()
    assert (await other.renew(good)).counter == 1
    assert json.loads(objects.get(KEY).content)["leases"]["bad"] == document["leases"]["bad"]


async def test_a_document_that_was_deleted_begins_anew_and_its_leases_are_lost(objects, other) -> None:
    [lease] = await held(other, "s")
    objects.delete([KEY])
    with pytest.raises(LeaseLostError):
        await other.renew(lease)
    assert await other.create(lease) is True
    objects.delete([KEY])
    assert await other.list() == []


async def test_an_earlier_version_that_was_restored_is_gone_on_with(objects, other) -> None:
    [lease] = await held(other, "s")
    earlier = objects.get(KEY).content
    for _ in range(3):
        lease = await other.renew(lease)
    objects.replace(KEY, earlier, objects.get(KEY).version)
    with pytest.raises(LeaseLostError):
        await other.renew(lease)
    assert (await other.take(await other.get("s"), "bob")).counter == 1


async def test_a_closed_store_says_so_and_waits_for_no_request(objects, open_store) -> None:
    store = open_store()
    with pytest.raises(LeaseStoreUnavailableError, match="is not open: use `async with`"):
        await store.list()
    async with store:
        await held(store, "s")
    with pytest.raises(LeaseStoreUnavailableError, match="is not open"):
        await store.create(Lease("t", Checkpoint.LATEST))
    async with store:  # again
        assert len(await store.list()) == 1


async def test_what_is_not_open_can_be_inspected(objects, open_store, other) -> None:
    found = await open_store().inspect()
    assert (found.exists, found.leases, found.version, found.denied) == (False, 0, None, None)
    assert objects.get(KEY) is None
    await held(other, "s", "t")
    found = await open_store().inspect()
    assert (found.exists, found.leases, found.version, found.denied) == (True, 2, FORMAT_VERSION, None)


async def test_a_document_of_the_first_format_is_read_and_written_in_the_present_one(
    objects, open_store, other
) -> None:
    await held(other, "s")
    document = json.loads(objects.get(KEY).content)
    for row in document["leases"].values():
        del row["stream_created_at"], row["unread_since"]
    objects.replace(KEY, json.dumps(document | {"format": 1}).encode(), objects.get(KEY).version)
    async with open_store() as store:
        (lease,) = await store.list()
        assert (lease.stream_created_at, lease.unread_since) == (None, None)
        await store.renew(replace(lease, stream_created_at=1000.0))
    found = await open_store().inspect()
    assert (found.version, found.created_at) == (FORMAT_VERSION, (1000.0,))
    assert json.loads(objects.get(KEY).content)["format"] == FORMAT_VERSION


async def test_applications_and_streams_on_one_log_are_separate(objects, other) -> None:
    await held(other, "s")
    for application, stream in (("payroll", "orders"), ("billing", "clicks")):
        async with ObjectLeaseStore(objects.client(), application, stream) as store:
            assert await store.list() == []
            await store.create(Lease("s", Checkpoint.TRIM_HORIZON))
    assert [lease.checkpoint for lease in await other.list()] == [Checkpoint.LATEST]


async def test_the_leases_of_a_worker_are_taken_by_one_request(objects, open_store, other) -> None:
    await held(other, *(f"s{number}" for number in range(20)), owner=None)
    client, requests = objects.client(), Requests()
    async with open_store(client) as store:
        leases = list(await store.list())
        requests.watch(client)
        taken = {}
        await store.write_many([TakeLease(lease, "ann") for lease in leases], taken.__setitem__)
        assert requests == {"replace": 1}
    assert {lease.owner for lease in taken.values()} == {"ann"}


async def test_a_shielded_clean_up_still_writes_when_everything_is_cancelled(open_store, other) -> None:
    """A worker that is cancelled saves its progress and releases its leases: others need not wait until they expire."""
    with trio.CancelScope() as everything:
        async with open_store() as store:
            [lease] = await held(store, "s")
            everything.cancel()
            try:
                await trio.sleep_forever()
            finally:
                with trio.fail_after(LONG, shield=True):
                    await trio.testing.wait_all_tasks_blocked()  # what the cancellation ends has ended
                    await store.release(lease)
    assert (await other.get("s")).owner is None
