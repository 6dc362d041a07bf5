"""Workers that share a lease store, each over a way to it that can be broken, to be run under virtual time."""

from contextlib import suppress

import pytest
import trio

from efo.errors import LeaseLostError, LeaseStoreUnavailableError
from efo.events import LeaseLost, LeasesCounted, LeaseStoreCalled
from efo.exception_groups import collapse_groups
from efo.leases.keeper import LeaseKeeper
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import LATEST, Lease


class FaultyStore:
    """One worker's way to a sound store.

    `faults`: operation name, or "*" for all, to what goes wrong with it until the entry is removed. "down": refused,
    nothing is done. "unanswered": done, but the answer is lost. "hang": nothing, for ever. "slow": a second to get
    there, and one to get back.
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
                raise LeaseStoreUnavailableError(f"{operation}: down, as the test wants it")
            if fault == "slow":
                await trio.sleep(1)
            result = await call(*arguments)
            if fault == "slow":
                await trio.sleep(1)
            if fault == "unanswered":
                raise LeaseStoreUnavailableError(f"{operation}: answer lost, as the test wants it")
            return result

        return wrapped

    def times(self, operation):
        return [at for name, at in self.calls if name == operation]


class Worker:
    """A keeper, and a reader of all its leases who lets go `pace` seconds after a lease is asked for (None: never)."""

    def __init__(self, name, store, options, pace=0.0):
        self.pace = pace
        self.letting_go = set()
        self.store = FaultyStore(store)
        self.events = []
        self.stolen_at = {}
        self.changes = 0
        self.changed = trio.Event()
        self.keeper = LeaseKeeper(self.store, name, observer=self._observe, on_change=self._count, **options)
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
                nursery.start_soon(self._make_way, nursery)
                await self.keeper.run()
        self._ended.set()

    async def _make_way(self, nursery):
        asked = set()
        while True:
            for held in list(self.keeper.held.values()):
                if held.wanted.is_set() and held not in asked and self.pace is not None:
                    asked.add(held)
                    nursery.start_soon(self._let_go, held)
            await self.changed.wait()

    async def _let_go(self, held):
        await trio.sleep(self.pace)
        self.letting_go.add(held)  # it does not read any more
        with suppress(LeaseLostError, LeaseStoreUnavailableError):
            await held.release()

    async def stop(self):
        self._scope.cancel()
        await self._ended.wait()

    def crash(self):
        """Like kill -9: nothing is written any more."""
        self.store.faults = {"*": "hang"}
        self._scope.cancel()

    @property
    def keys(self):
        return set(self.keeper.held)

    @property
    def reading(self):
        return {key for key, held in self.keeper.held.items() if held not in self.letting_go}

    @property
    def losses(self):
        return [(event.shard_id, event.reason) for event in self.events if isinstance(event, LeaseLost)]

    @property
    def counted(self):
        return [event for event in self.events if isinstance(event, LeasesCounted)][-1]


class Team:
    def __init__(self, nursery, store):
        self._nursery = nursery
        self.store = store

    async def create(self, count, *, owner=None):
        for number in range(count):
            await self.store.create(Lease(f"s{number}", LATEST, owner=owner))

    def hire(self, name, store=None, **options):
        pace = options.pop("pace", 0.0)
        return Worker(name, store or self.store, options, pace)

    def start(self, name, store=None, **options):
        worker = self.hire(name, store, **options)
        self._nursery.start_soon(worker.run)
        return worker

    async def rows(self):
        return {lease.key: lease for lease in await self.store.list()}


@pytest.fixture
def team(nursery):
    return Team(nursery, MemoryLeaseStore())
