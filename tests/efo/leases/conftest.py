"""Workers that share a lease store, in virtual time. The access of each worker to the store can be made to fail."""

from contextlib import suppress

import pytest
import trio

from efo.errors import LeaseLostError, LeaseStoreUnavailableError
from efo.events import LeaseLost, LeasesCounted, LeaseStoreCalled
from efo.exception_groups import collapse_groups
from efo.leases.coordinator import LeaseCoordinator
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.writes import write_each
from efo.model import Checkpoint, Lease


class FaultyStore:
    """One worker's access to a store.

    `faults`: a fault by operation name, or "*" for all operations. It applies until the entry is removed.
    "down": the call raises and has no effect.
    "response_lost": the call takes effect and then raises.
    "hang": the call never returns and has no effect.
    "slow": the call takes effect after one second and returns after two.
    """

    def __init__(self, store):
        self._store = store
        self.faults = {}
        self.calls = []

    def __getattr__(self, operation):
        call = getattr(self._store, operation)

        async def wrapped(*arguments):
            self.calls.append((operation, trio.current_time()))
            fault = self.faults.get(operation, self.faults.get("*"))
            if fault == "hang":
                await trio.sleep_forever()
            if fault == "down":
                await trio.lowlevel.checkpoint()
                raise LeaseStoreUnavailableError(f"{operation}: down (injected fault)")
            if fault == "slow":
                await trio.sleep(1)
            result = await call(*arguments)
            if fault == "slow":
                await trio.sleep(1)
            if fault == "response_lost":
                raise LeaseStoreUnavailableError(f"{operation}: response lost (injected fault)")
            return result

        return wrapped

    async def write_many(self, writes, settle):
        """Perform each write by the method for it, with the faults of that method."""
        await write_each(self, writes, settle)

    def times(self, operation):
        return [at for name, at in self.calls if name == operation]


class Worker:
    """A coordinator and a reader of its leases, which releases a lease `release_delay` seconds after a request.

    `release_delay` None: it never releases a lease.
    """

    def __init__(self, name, store, options, release_delay=0.0):
        self.release_delay = release_delay
        self.releasing = set()
        self.store = FaultyStore(store)
        self.events = []
        self.stolen_at = {}
        self.changes = 0
        self.changed = trio.Event()
        self.coordinator = LeaseCoordinator(self.store, name, observer=self._observe, on_change=self._count, **options)
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    def _observe(self, event):
        self.events.append(event)
        if isinstance(event, LeaseStoreCalled) and event.operation == "steal":
            self.stolen_at[event.shard_id] = trio.current_time()

    def _count(self):
        self.changes += 1
        self.changed.set()
        self.changed = trio.Event()

    async def run(self):
        with self._scope, collapse_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._release_requested, nursery)
                await self.coordinator.run()
        self._ended.set()

    async def _release_requested(self, nursery):
        started = set()
        while True:
            for held in list(self.coordinator.held.values()):
                if held.handoff_requested.is_set() and held not in started and self.release_delay is not None:
                    started.add(held)
                    nursery.start_soon(self._release, held)
            await self.changed.wait()

    async def _release(self, held):
        await trio.sleep(self.release_delay)
        self.releasing.add(held)  # the reader has stopped
        with suppress(LeaseLostError, LeaseStoreUnavailableError):
            await held.release()

    async def stop(self):
        self._scope.cancel()
        await self._ended.wait()

    def crash(self):
        """Stop without any further write, like kill -9."""
        self.store.faults = {"*": "hang"}
        self._scope.cancel()

    @property
    def keys(self):
        return set(self.coordinator.held)

    @property
    def reading(self):
        return {key for key, held in self.coordinator.held.items() if held not in self.releasing}

    @property
    def losses(self):
        return [(event.shard_id, event.reason) for event in self.events if isinstance(event, LeaseLost)]

    @property
    def last_count(self):
        return [event for event in self.events if isinstance(event, LeasesCounted)][-1]


class Fleet:
    """The workers of one application, and their lease store."""

    def __init__(self, nursery, store):
        self._nursery = nursery
        self.store = store

    async def create(self, count, *, owner=None):
        for number in range(count):
            await self.store.create(Lease(f"s{number}", Checkpoint.LATEST, owner=owner))

    def make_worker(self, name, store=None, **options):
        release_delay = options.pop("release_delay", 0.0)
        return Worker(name, store or self.store, options, release_delay)

    def start(self, name, store=None, **options):
        worker = self.make_worker(name, store, **options)
        self._nursery.start_soon(worker.run)
        return worker

    async def rows(self):
        return {lease.key: lease for lease in await self.store.list()}


@pytest.fixture
def fleet(nursery):
    return Fleet(nursery, MemoryLeaseStore())
