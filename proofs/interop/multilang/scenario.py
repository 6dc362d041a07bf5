"""The stories: a split, a merge and every kind of death; a rolling change from Java to efo and back; what it costs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from efo.exception_groups import collapse_groups
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.model import Checkpoint
from efo.testing import FakeKinesis, FakeSettings
from proofs.interop.clients.runner import InteropError
from proofs.interop.kcl.comparison import Comparison, Moves, compare
from proofs.interop.kcl.streams import Streams
from proofs.interop.multilang.clients import Client
from proofs.interop.multilang.daemons import Bench, Daemon, reported
from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local

STREAM: Final = "orders"
SHARDS: Final = 4
IDLE_SHARDS: Final = 100
RECORDS: Final = 400_000
IDLE_SECONDS: Final = 30.0
_LIFE: Final = 60.0
_TIMEOUT: Final = 300.0
"""Timeout of each step in seconds: KCL first elects a leader, and assigns leases slowly."""
_CHUNK: Final = 10
_PAUSE: Final = 0.2
_POLL: Final = 0.2
_LINGER: Final = 3.0
_START_SECONDS: Final = 60.0
"""How long workers of KCL may take until they look for leases."""

Progress = Callable[[str], None]


class Story:
    """One run: the fake, the daemons and what becomes of them."""

    def __init__(self, bench: Bench, streams: Streams, progress: Progress) -> None:
        self._bench = bench
        self._streams = streams
        self._progress = progress
        self._moves = Moves()
        self._holders: dict[str, str] = {}
        self._running: dict[str, Daemon] = {}
        self._load = trio.CancelScope()

    async def lives(self, kind: str) -> Comparison:
        """Read with workers of one kind, "efo" or "kcl", through a split, a merge, and all ways to die."""
        one, two, three = f"{kind}-1", f"{kind}-2", f"{kind}-3"
        await self._start(one)
        await self._until(f"{one} holds every lease", lambda: self._holds_all(one))
        await self._start(two)
        await self._until(f"{two} holds some leases", lambda: self._held_by(two) > 0)
        self._progress(self._streams.reshard())
        await self._until("the children are read", self._are_children_read)
        await self._end(one, "kill_child", "lost a child, and ended")
        await self._start(one)
        await self._until(f"{one} and {two} hold every lease", lambda: self._hold_all(one, two))
        await self._end(two, "kill", "is killed")
        await self._until(f"{one} holds every lease", lambda: self._holds_all(one))
        await self._start(three)
        await self._until(f"{three} holds some leases", lambda: self._held_by(three) > 0)
        await self._end(three, "kill_machine", "is killed with its children")
        await self._until(f"{one} holds every lease", lambda: self._holds_all(one))
        return await self._finish(one)

    async def rolling(self, *kinds: str) -> Comparison:
        """Replace both workers by those of the next kind, one after the other, and reshard in between."""
        names = [f"{kinds[0]}-1", f"{kinds[0]}-2"]
        for name in names:
            await self._start(name)
        await self._until("both hold leases", lambda: self._hold_all(*names) and all(map(self._held_by, names)))
        for turn, kind in enumerate(kinds[1:], 1):
            new = [f"{kind}-{2 * turn + 1}", f"{kind}-{2 * turn + 2}"]
            if kind.startswith("efo"):
                await self._replace_each(names, new)
            else:
                await self._replace_all(names, new)
            names = new
            self._progress(self._streams.reshard())
            await self._until("the children are read", self._are_children_read)
        await self._end(names[1], "stop", "is stopped")
        await self._until(f"{names[0]} holds every lease", lambda: self._holds_all(names[0]))
        return await self._finish(names[0])

    async def _replace_each(self, old: Sequence[str], new: Sequence[str]) -> None:
        """Replace one by one: each new one asks for its share, and then an old one stops."""
        running = [*old]
        for before, after in zip(old, new, strict=True):
            await self._start(after)
            await self._until(f"{after} holds some leases", partial(self._holds_some, after))
            await self._end(before, "stop", "is stopped")
            running = [*running[1:], after]
            await self._until(f"{' and '.join(running)} hold every lease", partial(self._hold_all, *running))

    async def _replace_all(self, old: Sequence[str], new: Sequence[str]) -> None:
        """Start the new ones, then stop the old ones: KCL 3 asks workers for no lease whose load it does not know."""
        for name in new:
            await self._start(name)
        await trio.sleep(_START_SECONDS)
        for name in old:
            await self._end(name, "stop", "is stopped")
        await self._until(f"{' and '.join(new)} hold every lease", partial(self._hold_all, *new))

    async def cost(self, kind: str) -> dict[str, Any]:
        """Read what was put before; return the CPU time of the daemon alone for each record of the second half."""
        name = f"{kind}-1"
        self._load.cancel()
        self._streams.put(range(RECORDS))
        total = sum(map(len, self._streams.records().values()))
        await self._start(name)
        await self._until(f"{name} has read the first half", lambda: self._count() >= total // 2)
        before, (since, _) = self._count(), self._running[name].usage()
        await self._until(f"{name} has read all", lambda: self._count() >= total)
        own, whole = self._running[name].usage()
        spent = (own.cpu_seconds - since.cpu_seconds) / (total - before)
        await self._end(name, "stop", "is stopped")
        return {
            "records": total - before,
            "cpu_us_per_record": round(spent * 1e6, 2),
            "cpu_seconds_with_start": round(own.cpu_seconds, 2),
            "memory_mb": own.rss_bytes // 2**20,
            "memory_with_children_mb": whole.rss_bytes // 2**20,
        }

    async def idle(self, kind: str) -> dict[str, Any]:
        """Hold the leases of a stream without records; return memory and CPU time of the daemon alone."""
        name = f"{kind}-1"
        self._load.cancel()
        began = trio.current_time()
        await self._start(name)
        await self._until(f"{name} reads every shard", lambda: self._holds_all(name) and self._streams.all_subscribed())
        started = trio.current_time() - began
        await trio.sleep(IDLE_SECONDS)
        since, _ = self._running[name].usage()
        await trio.sleep(IDLE_SECONDS)
        own, whole = self._running[name].usage()
        await self._end(name, "stop", "is stopped")
        return {
            "shards": len(self._streams.open_shards()),
            "start_seconds": round(started, 1),
            "memory_mb": own.rss_bytes // 2**20,
            "memory_with_children_mb": whole.rss_bytes // 2**20,
            "cpu_percent": round((own.cpu_seconds - since.cpu_seconds) / IDLE_SECONDS * 100, 1),
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Put records and scan the leases meanwhile; kill what still runs at the end."""
        with collapse_groups():
            async with self._streams.open_stores(), trio.open_nursery() as nursery:
                nursery.start_soon(self._put)
                nursery.start_soon(self._scan)
                try:
                    yield
                finally:
                    with trio.CancelScope(shield=True):
                        for daemon in self._running.values():
                            await daemon.kill_machine()
                nursery.cancel_scope.cancel()

    # --- actions ---------------------------------------------------------------------------------------------

    async def _start(self, name: str) -> None:
        self._running[name] = await Daemon.start(name, self._bench)

    async def _end(self, name: str, how: str, reported: str) -> None:
        end: Callable[[], Awaitable[None]] = getattr(self._running.pop(name), how)
        await end()
        self._progress(f"{name} {reported}; {self._count()} records are noted")

    async def _finish(self, last: str) -> Comparison:
        self._load.cancel()
        await self._until("every record is noted", lambda: self._missing() == 0)
        await trio.sleep(_LINGER)  # duplicates arrive in this time
        await self._end(last, "stop", "is stopped")
        expected = self._streams.records()
        return compare(reported(self._bench.records, expected), expected, self._moves)

    async def _put(self) -> None:
        number = 0
        with self._load:
            while True:
                self._streams.put(range(number, number + _CHUNK))
                number += _CHUNK
                await trio.sleep(_PAUSE)

    async def _scan(self) -> None:
        while True:
            at = time.time_ns() // 1000
            leases = [lease for lease in await self._streams.leases() if lease.key.startswith("shardId")]
            self._moves.add_scan(leases, at)
            self._holders = {
                lease.key: lease.holder or "" for lease in leases if lease.checkpoint != Checkpoint.SHARD_END
            }
            await trio.sleep(0.5)

    # --- conditions ------------------------------------------------------------------------------------------

    async def _until(self, what: str, condition: Callable[[], bool]) -> None:
        started = trio.current_time()
        while not condition():
            for daemon in self._running.values():
                daemon.check()
            if trio.current_time() > started + _TIMEOUT:
                raise InteropError(f"not within {_TIMEOUT:.0f} s: {what}; holders: {self._holders}")
            await trio.sleep(_POLL)
        self._progress(f"{what}, after {trio.current_time() - started:.0f} s")

    def _held_by(self, name: str) -> int:
        return sum(holder == name for holder in self._holders.values())

    def _holds_some(self, name: str) -> bool:
        return self._held_by(name) > 0

    def _hold_all(self, *names: str) -> bool:
        return self._holders.keys() >= set(self._streams.open_shards()) and set(self._holders.values()) <= {*names}

    def _holds_all(self, name: str) -> bool:
        return self._hold_all(name)

    def _are_children_read(self) -> bool:
        return self._holders.keys() == set(self._streams.open_shards()) and self._streams.all_subscribed()

    def _count(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in self._bench.records.iterdir() if path.suffix != ".stderr")

    def _missing(self) -> int:
        expected = self._streams.records()
        noted = {one.sequence for found in reported(self._bench.records, expected).values() for one in found}
        return sum(record.sequence_number not in noted for found in expected.values() for record in found)


async def run(client: Client, directory: Path, progress: Progress, how: str, *kinds: str) -> dict[str, Any]:
    """Tell one story, a method of `Story`, and return its figures. Raises InteropError and NotInstalledError."""
    await trio.Path(directory).mkdir(parents=True)
    serving = serve_dynamodb_local()
    dynamodb = await trio.to_thread.run_sync(serving.__enter__)
    try:
        settings = FakeSettings(subscription_life=_LIFE)
        async with FakeKinesis(settings=settings, clock=time.time) as fake, fake.serve() as address:
            fake.create_stream(STREAM, IDLE_SHARDS if how == "idle" else SHARDS)
            bench = Bench(client, address, dynamodb, directory, STREAM, "sharing", is_tapped=how != "idle")
            await trio.Path(bench.records).mkdir()
            with credentials():
                store = DynamoDbLeaseStore(bench.application, endpoint_url=dynamodb, timeout=30.0)
                story = Story(bench, Streams(fake, {STREAM: store}), progress)
                async with story.running():
                    found = await getattr(story, how)(*kinds)
        if isinstance(found, Comparison):
            found = asdict(found)
        return {"client": client.name, "story": how, "workers": list(kinds), **found}
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(serving.__exit__, None, None, None)
