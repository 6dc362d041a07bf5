"""The run: FakeKinesis, a Spark application with two queries on one log, a load that reshards, and a killer."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis, FakeSettings
from efo_service.demo.demo import DemoProcess, ended
from efo_service.demo.load import CHUNK, Comparison, DemoLoad, compare, number_of, parquet_rows, partition_key, value
from proofs.e2e.kills import POLL_SECONDS, STALLED_SECONDS, Killer, Target, pace_load, wait_for_records
from proofs.e2e.landed import LandedRows

STREAM: Final = "orders"
SHARDS: Final = 4
QUERIES: Final = ("a", "b")
_CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "e2e", "AWS_SECRET_ACCESS_KEY": "e2e", "AWS_EC2_METADATA_DISABLED": "true"}
_PLANNER: Final = b"python_streaming_source_runner"
_LATER: Final = 50
"""Records that are put every POLL_SECONDS while a run of AvailableNow reads: they arrive after its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the run. `kills`: of the driver, and of single planners. `share`: of the records for AvailableNow."""

    records: int
    rate: float
    driver_kills: int
    planner_kills: int
    seed: int
    directory: Path


class Application(DemoProcess):
    """The Spark application, in a process group of its own."""

    def __init__(self, directory: Path, url: str, ca_file: str, *, queries: tuple[str, ...], name: str) -> None:
        super().__init__(name, [], directory, _CREDENTIALS)
        where = ["--directory", str(directory), "--stream", STREAM, "--endpoint", url, "--ca-file", ca_file]
        self._arguments = [sys.executable, "-m", "proofs.e2e.kinesis_source.driver", *where]
        self._arguments += ["--queries", ",".join(queries)]
        if name == "available-now":
            self._arguments.append("--available-now")
        root = Path(__file__).parents[3]
        self._environment["PYTHONPATH"] = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])

    @property
    def pid(self) -> int:
        """The process id, which is that of the process group and the session."""
        return self._running.pid

    def planners(self) -> list[int]:
        """Return the ids of the processes that plan its queries."""
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_planner(path, self.pid)]

    async def finished(self) -> bool:
        """Return whether it has ended by itself. Raises ChildFailedError if it failed."""
        code = self._running.poll()
        if code:
            self.check()
        return code == 0


def _is_planner(path: Path, session: int) -> bool:
    try:
        return _PLANNER in path.joinpath("cmdline").read_bytes() and os.getsid(int(path.name)) == session
    except OSError:  # it has ended
        return False


class Planner(DemoProcess):
    """One planner of the application, to be killed alone."""

    def __init__(self, application: Application, rng: random.Random) -> None:
        super().__init__("planner", [], application.log.parent, {})
        self._application = application
        self._random = rng

    async def start(self) -> None:
        """Do nothing: the application starts a query again, and with it its planner."""

    def check(self) -> None:
        """Leave it to the application."""

    async def kill(self) -> None:
        """Kill one planner (SIGKILL)."""
        while not (planners := self._application.planners()):  # noqa: ASYNC110 - nothing reports it
            await trio.sleep(POLL_SECONDS)
        os.kill(self._random.choice(planners), signal.SIGKILL)


async def run(options: Options, report: Callable[[str], None]) -> tuple[bool, dict[str, Any]]:
    """Do the run; return whether it passed, and the summary. Raises EfoError if a process makes no progress."""
    started = time.monotonic()
    directory = options.directory
    outputs = [directory / f"parquet-{name}" for name in QUERIES]
    async with FakeKinesis(settings=FakeSettings(subscription_life=20.0), clock=time.time) as fake:
        fake.create_stream(STREAM, shards=SHARDS)
        async with fake.serve() as address:
            application = Application(directory, address.url, str(address.ca_file), queries=QUERIES, name="application")
            targets = await _stream(options, fake, application, outputs, report)
            second = await trio.to_thread.run_sync(_compared, outputs[1], options.records)
            later = Application(directory, address.url, str(address.ca_file), queries=QUERIES[:1], name="available-now")
            available_now = await _available_now(options, fake, later, outputs[0], report)
    produced = available_now.pop("produced")
    first = await trio.to_thread.run_sync(_compared, outputs[0], produced)
    kills = sum(target.kills_done for target in targets) + available_now["kills"]
    summary = {
        "produced": produced,
        **first.counts,
        "kills": kills,
        "seconds": round(time.monotonic() - started, 1),
        "kills_of": {target.name: target.kills_done for target in targets},
        "second_query": {
            "produced": options.records,
            **second.counts,
        },
        "available_now": available_now,
        "restarts": {target.name: target.restarts for target in targets},
        "seed": options.seed,
    }
    return first.is_exact and second.is_exact and not available_now["lost_of_before"], summary


def _compared(output: Path, produced: int) -> Comparison:
    return compare(parquet_rows(output), produced)


async def _stream(
    options: Options, fake: FakeKinesis, application: Application, outputs: list[Path], report: Callable[[str], None]
) -> list[Target]:
    """Produce records and reshard, while the application and its planners are killed; wait for the rest."""
    landed = [LandedRows(output) for output in outputs]

    async def least() -> int:
        return min([await rows.count() for rows in landed])

    driver = Target("driver", [application], least, options.driver_kills, max_delay=3.0, max_restarts=20)
    planner = Planner(application, random.Random(options.seed))  # noqa: S311 - must be repeatable; not a secret
    planners = Target("planner", [planner], least, options.planner_kills, max_delay=3.0)
    targets = [driver, planners]
    load = DemoLoad(
        fake,
        STREAM,
        options.records,
        seconds=options.records / options.rate,
        split_at=0.3,
        merge_at=0.6,
        before_next_chunk=pace_load(targets, options.records),
    )
    async with ended(application):
        await application.start()
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                await Killer(options.seed, report).run(targets)
        report("all kills are done, waiting for the remaining records")
        await wait_for_records(driver, options.records, report)
        await application.stop(120)
    return targets


async def _available_now(
    options: Options, fake: FakeKinesis, application: Application, output: Path, report: Callable[[str], None]
) -> dict[str, Any]:
    """Put records over a reshard, and read them by runs of AvailableNow, of which the first is killed."""
    landed = LandedRows(output)
    put = options.records

    def produce(count: int) -> None:
        nonlocal put
        for first in range(put, put + count, CHUNK):
            numbers = range(first, min(first + CHUNK, put + count))
            fake.put_many(STREAM, [(partition_key(number), value(number)) for number in numbers])
        put += count

    share = options.records // 4
    produce(share)
    shards = fake.open_shards(STREAM)
    fake.split(STREAM, shards[0])
    produce(share)
    before = put
    report(f"{2 * share} records are put over a reshard, AvailableNow starts")
    async with ended(application):
        await application.start()
        await _grows(landed, produce, application)
        await application.kill()
        report("AvailableNow was killed when it had read a part")
        shards = fake.open_shards(STREAM)
        fake.merge(STREAM, shards[-2], shards[-1])
        await application.start()
        before = put  # also what arrived meanwhile
        await _ends(application, produce)
        rows = await trio.to_thread.run_sync(parquet_rows, output)
        found = {number for row in rows if (number := number_of(row.data)) is not None}
        at_end = put
        report(
            f"AvailableNow has ended with {len(found)} of {before} records, and {at_end - before} came after its start"
        )
        await application.start()
        await _ends(application, lambda _count: None)
    return {
        "produced": put,
        "before_start": before,
        "lost_of_before": sum(number not in found for number in range(before)),
        "came_after_start": at_end - before,
        "read_of_these": sum(number >= before for number in found),
        "kills": 1,
    }


async def _grows(landed: LandedRows, produce: Callable[[int], None], application: Application) -> None:
    """Put records until a run has read some. A fast run may have ended by then."""
    before = await landed.count()
    deadline = trio.current_time() + STALLED_SECONDS
    while await landed.count() == before and not await application.finished():
        _check(deadline)
        produce(_LATER)
        await trio.sleep(POLL_SECONDS)


async def _ends(application: Application, produce: Callable[[int], None]) -> None:
    """Put records until a run has ended."""
    deadline = trio.current_time() + STALLED_SECONDS
    while not await application.finished():
        _check(deadline)
        produce(_LATER)
        await trio.sleep(POLL_SECONDS)


def _check(deadline: float) -> None:
    if trio.current_time() > deadline:
        raise EfoError(f"AvailableNow makes no progress for {STALLED_SECONDS:g} s")
