"""Records expire before they are read: the reader was stopped, slow or behind for longer than the stream keeps them."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio
import trio.testing

import efo
from efo import events
from efo.leases.stores.memory import MemoryLeaseStore
from efo.testing import FakeKinesis, FakeKinesisThread, When
from efo.testing.faults import Refuse
from efo.testing.faults.script import ALWAYS
from proofs.edges.cases.identity import READ, STREAM
from proofs.edges.cases.identity_reported import Served, configure, page_of, relay
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("expiry")

HOURS: Final = 0.2
"""The retention period of a world: a day of AWS would be long in virtual time."""
RETENTION: Final = HOURS * 3600.0


class World:
    """A stream of one shard whose records expire, and an application that reads it time after time.

    `pace`: seconds that it takes for a batch.
    """

    def __init__(self, fake: FakeKinesis, mode: str) -> None:
        self.fake = fake
        self.pace = 0.0
        self.log = io.StringIO()
        self.put_at: dict[bytes, float] = {}
        self.got: set[bytes] = set()
        self.reports: list[events.RecordsExpired] = []
        self._store = MemoryLeaseStore()
        self._settings = efo.ConsumerSettings(read_mode=mode, checkpoint_seconds=10.0, poll_seconds=5.0)  # type: ignore[arg-type] # of READ
        fake.create_stream(STREAM)
        fake.retain(STREAM, HOURS)

    def put(self) -> None:
        """Put a record."""
        data = f"{CANARY}{len(self.put_at)}".encode()
        self.put_at[data] = self.fake.clock()
        self.fake.put(STREAM, CANARY, data)

    async def put_slowly(self, count: int) -> None:
        """Put a record in each retention period."""
        for _ in range(count):
            self.put()
            await trio.sleep(RETENTION)

    async def run(self, seconds: float = 60.0, during: Callable[[], Awaitable[object]] | None = None) -> None:
        """Read, with the log of the library."""

        async def bill(record: efo.Record, _batch: efo.Batch) -> None:
            await trio.sleep(self.pace)
            self.got.add(record.data)

        def observe(event: events.Event) -> None:
            if isinstance(event, events.RecordsExpired):
                self.reports.append(event)
            reported(event)

        reported = efo.telemetry.LoggingObserver()
        run = partial(efo.consume, self.fake.kinesis(STREAM), record_handler=bill, application="billing")
        async with trio.open_nursery() as nursery:
            consumer = await nursery.start(partial(run, leases=self._store, settings=self._settings, observer=observe))
            if during is not None:
                await during()
            await trio.sleep(seconds)
            consumer.drain()

    def outcome(self, *, gone: bool) -> Outcome:
        """Judge: each record is read or in a time that is reported, and only if some may be `gone`, one is."""
        spans = [(report.since - 1, report.until + 1) for report in self.reports]
        unread = {data: at for data, at in self.put_at.items() if data not in self.got}
        silent = [data for data, at in unread.items() if not any(since <= at <= until for since, until in spans)]
        warned = self.log.getvalue().count("expired before they were read, if")
        did = f"{len(unread)} of {len(self.put_at)} unread, {len(self.reports)} reports, {warned} warnings"
        is_right = not silent and bool(self.reports) is gone and warned == len(self.reports) and bool(unread) is gone
        return Outcome(did, is_right, {"records_lost_silently": len(silent)})


Story = Callable[[World], Awaitable[None]]


def _reported(right: str, story: Story, *, gone: bool, denied: bool = False) -> None:
    """Register a story for each read mode."""
    for mode in READ[:2] if denied else READ:

        async def main(mode: str = mode) -> Outcome:
            async with FakeKinesis() as fake:
                world = World(fake, mode)
                handler = logging.StreamHandler(world.log)
                handler.setLevel(logging.WARNING)
                logging.getLogger("efo").addHandler(handler)
                if denied:
                    never = When(operation="DescribeStreamSummary", times=ALWAYS)
                    fake.faults.add(Refuse("AccessDeniedException"), never)
                await story(world)
                return world.outcome(gone=gone)

        def run(main: Callable[[], Awaitable[Outcome]] = main) -> Outcome:
            outcome: Outcome = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
            return outcome

        cases.case(right, name=f"{mode}: {story.__name__.replace('_', ' ')}")(run)


REPORTED: Final = "each record is read, or in a time that is reported as expired"
SILENT: Final = "all is read, and nothing is reported"


async def stopped_for_longer_than_the_retention(world: World) -> None:
    """Stop over a long weekend."""
    world.put()
    await world.run()
    await world.put_slowly(5)
    await world.run()


async def stopped_until_nothing_is_left(world: World) -> None:
    """Read a shard without records again; more come later."""
    world.put()
    await world.run()
    world.put()
    await trio.sleep(3 * RETENTION)
    await world.run()
    world.put()
    await world.run()


async def slower_than_the_retention(world: World) -> None:
    """Take longer than records are kept."""
    world.pace = 0.9 * RETENTION
    await world.run(4 * RETENTION, lambda: _steadily(world))
    world.pace = 0.0
    await world.run(2 * RETENTION)


async def _steadily(world: World) -> None:
    for _ in range(30):
        world.put()
        await trio.sleep(RETENTION / 6)


async def the_retention_is_decreased_while_nobody_reads(world: World) -> None:
    """Save costs."""
    world.fake.retain(STREAM, 10 * HOURS)
    world.put()
    await world.run()
    await world.put_slowly(5)
    world.fake.retain(STREAM, HOURS)
    await world.run()


async def a_closed_shard_expires_unread(world: World) -> None:
    """Split it, and read nothing for long: the parent is gone from the listing."""
    world.put()
    await world.run()
    world.put()
    world.fake.split(STREAM, "shardId-000000000000")
    await trio.sleep(3 * RETENTION)
    world.put()
    await world.run(600.0)


async def stopped_for_less_than_the_retention(world: World) -> None:
    """Stop for a deployment."""
    world.put()
    await world.run()
    world.put()
    await trio.sleep(0.8 * RETENTION)
    await world.run()


async def idle_for_longer_than_the_retention(world: World) -> None:
    """Read all the time; nothing comes."""
    world.put()
    await world.run(5 * RETENTION)
    world.put()
    await world.run()


async def the_retention_is_increased_before_it_is_over(world: World) -> None:
    """Do what the runbook says."""
    world.put()
    await world.run()
    world.fake.retain(STREAM, 10 * HOURS)
    await world.put_slowly(5)
    await world.run()


async def split_and_read_on(world: World) -> None:
    """Read the children of an old shard: they are young."""
    world.put()
    await world.run(3 * RETENTION)
    world.fake.split(STREAM, "shardId-000000000000")
    world.put()
    await world.run(3 * RETENTION)
    world.put()
    await world.run()


_reported(REPORTED, stopped_for_longer_than_the_retention, gone=True)
_reported(REPORTED, stopped_until_nothing_is_left, gone=True)
_reported(REPORTED, slower_than_the_retention, gone=True)
_reported(REPORTED, the_retention_is_decreased_while_nobody_reads, gone=True)
_reported(REPORTED, a_closed_shard_expires_unread, gone=True)
_reported(SILENT, stopped_for_less_than_the_retention, gone=False)
_reported(SILENT, idle_for_longer_than_the_retention, gone=False)
_reported(SILENT, the_retention_is_increased_before_it_is_over, gone=False)
_reported(SILENT, split_and_read_on, gone=False)


@cases.case("a line, a metric and a sentence of /status", seconds=120)
def the_service_was_stopped_for_longer_than_the_retention() -> Outcome:
    """Relay into the log, in real time: records are kept for four seconds."""
    with FakeKinesisThread() as fake:
        served = Served(fake)
        fake.call(lambda inner: inner.retain(STREAM, 4 / 3600))
        configure(served)
        relay(lambda printed: "records_processed" in printed or "segment" in printed, seconds=15)
        served.put("gone")
        time.sleep(6)
        seen: dict[str, str] = {}

        def until(printed: str) -> bool:
            if "records_expired" not in printed:
                return False
            seen.update((page, page_of(printed, page)) for page in ("status", "metrics"))
            return True

        code, lines = relay(until)
    reported = [line for line in lines if line.get("event") == "records_expired"]
    is_counted = "efo_record_expired_time_seconds_total{" in seen.get("metrics", "")
    is_reported = "expired before they were read" in seen.get("status", "")
    did = f"exit {code}, {len(reported)} lines, status {is_reported}, metrics {is_counted}"
    return Outcome(did, bool(reported) and is_counted and is_reported, {"records_lost_silently": 0 if reported else 1})
