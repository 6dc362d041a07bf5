"""The faults: for each alert a job that suffers what the alert is for, by the means that cause it in production."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio
import trio.lowlevel

from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.testing import ALWAYS
from efo.testing.faults import EndStream, Refuse, Reset, Stall
from efo_service.log.disk import DiskFiles
from efo_service.log.reader_offsets import commit_reader
from proofs.dashboards.service import DISK_MEGABYTES, Service
from proofs.dashboards.verdict import Expectation

Inject = Callable[[Service], Awaitable[None]]

BACKLOG_HOURS: Final = 13
BACKLOG_RECORDS: Final = 100_000
_NOT_READ: Final = frozenset({"EfoNotReady", "EfoLagHigh", "EfoCheckpointAgeHigh"})
"""What follows for shards that are not read, if it lasts."""
_SLOW: Final = _NOT_READ | {"EfoBackpressure", "EfoShardsUnread", "EfoShardsUncommitted", "EfoUnackedAgeHigh"}
"""What follows from a sink that is slow, or takes nothing."""
_LEASES: Final = frozenset({"EfoLeaseStoreFailing", "EfoShardsWithoutLease", "EfoLeasesFlapping"}) | _NOT_READ
_UTF8: Final = {"EFO_RELAY__SINK": "jsonl", "EFO_RELAY__JSONL_FILE": "lines", "EFO_RELAY__JSONL_ENCODING": "utf-8"}
_PIPE: Final = {"EFO_RELAY__SINK": "jsonl", "EFO_RELAY__JSONL_FILE": "-", "EFO_RELAY__COMMIT_RECORDS": "100"}


_PROPERTIES: Final = f"""executableName = {sys.executable} child.py
streamName = efo-child-stuck-stream
applicationName = efo-child-stuck
initialPositionInStream = TRIM_HORIZON
regionName = us-east-1
"""
_CHILD: Final = """import json, pathlib, sys, time
def tell(**message):
    print(json.dumps(message), flush=True)
for line in sys.stdin:
    action = json.loads(line)["action"]
    if action == "processRecords":
        while pathlib.Path("stuck").exists():
            time.sleep(1)
        tell(action="checkpoint", sequenceNumber=None)
        sys.stdin.readline()
    tell(action="status", responseFor=action)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job with its fault. `must`: the alerts that it is for; `may`: those that may follow from it.

    `backlog`: whether the stream has old records from the start. `pace`, `output`: see Service. `seconds`: the scrape
    interval. `command`: instead of `efo run`. `files`: what the directory of the service has. `disk_megabytes`: of the
    disk of the log.
    """

    job: str
    fault: str
    inject: Inject
    must: frozenset[str]
    may: frozenset[str] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: int = 1
    backlog: bool = False
    pace: float | None = None
    output: Path | None = None
    seconds: int = 2
    command: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    disk_megabytes: int = DISK_MEGABYTES

    @property
    def is_faulty_from_the_start(self) -> bool:
        """Whether there is no time before the fault."""
        return self.backlog or self.output is not None

    @property
    def expectation(self) -> Expectation:
        """What the fault must and may bring about."""
        return Expectation(self.job, self.must, self.may)


async def _kill(service: Service) -> None:
    service.program.signal(signal.SIGKILL)
    await trio.lowlevel.checkpoint()


async def _stop_workers(service: Service) -> None:
    """Suspend one worker, later all: the supervisor lives and gets no answers."""
    first, *others = await service.workers()
    service.program.signal(signal.SIGSTOP, first)
    await trio.sleep(40)
    service.program.signal(signal.SIGSTOP, *others)


async def _kill_workers(service: Service) -> None:
    """Kill a worker four times, as the kernel does if memory is short."""
    for _ in range(4):
        service.program.signal(signal.SIGKILL, (await service.workers())[0])
        await trio.sleep(12)


async def _stall(service: Service) -> None:
    service.fault(Stall(), ALWAYS)
    await trio.lowlevel.checkpoint()


async def _refuse(service: Service) -> None:
    """Reset each subscription twice: the first time, a call that follows succeeds, so that none is missed."""
    service.fault(Reset())
    await trio.sleep(10)
    service.fault(Refuse("InternalFailure", status=500), ALWAYS)
    service.fault(Reset())


async def _throttle(service: Service) -> None:
    service.fault(Refuse("LimitExceededException"), ALWAYS)
    service.fault(EndStream())
    await trio.lowlevel.checkpoint()


async def _lock_leases(service: Service) -> None:
    await service.locked_leases(3600)


async def _lock_leases_often(service: Service) -> None:
    """Lock the lease store again and again for longer than a lease lives."""
    while True:
        await service.locked_leases(8)
        await trio.sleep(12)


async def _stop_reading(service: Service) -> None:
    service.pace = 0
    await trio.lowlevel.checkpoint()


async def _stick(service: Service) -> None:
    service.directory.joinpath("stuck").touch()
    await trio.lowlevel.checkpoint()


async def _nothing(_service: Service) -> None:
    """Do nothing: the fault is there from the start."""
    await trio.lowlevel.checkpoint()


async def _poison(service: Service) -> None:
    """Put a record that the sink refuses, and some more, since a counter's first step may be missed."""
    while True:
        service.put_one(b"\xff\xfe not UTF-8")
        await trio.sleep(20)


async def _damage(service: Service) -> None:
    """Put KPL aggregates with a partition key that is longer than Kinesis allows."""
    while True:
        service.put_one(aggregate([AggregateEntry("p" * 300, b"")] * 3))
        await trio.sleep(20)


async def _forget_reader(service: Service) -> None:
    """Let a reader commit once, and never again; and put more than superseded segments have."""
    await trio.to_thread.run_sync(commit_reader, DiskFiles(service.log), service.stream, "audit", {0: 0}, time.time())
    for _ in range(800):
        service.put_one(os.urandom(10_000))


async def _fill_disk(service: Service) -> None:
    """Fill the disk of the log, but for 4 %."""
    disk = os.statvfs(service.log)
    size = int(disk.f_frsize * (disk.f_bavail - 0.04 * disk.f_blocks))
    await trio.to_thread.run_sync((service.log / "filler").write_bytes, bytes(max(0, size)))


async def _empty_token(service: Service) -> None:
    (service.directory / "token").write_text("")
    await trio.lowlevel.checkpoint()


async def _mix(service: Service) -> None:
    """Put aggregates with keys of all shards, as producers do that do not know the shards."""
    while True:
        service.put_one(aggregate([AggregateEntry(f"key-{number}", b"") for number in range(20)]))
        await trio.sleep(20)


async def _expire(service: Service) -> None:
    """Decrease the retention period, and kill the process for longer."""
    service.retain(20 / 3600)
    await service.program.end()
    await trio.sleep(60)
    await service.program.start()


def _set(*names: str) -> frozenset[str]:
    return frozenset(f"Efo{name}" for name in names)


CASES: Final = (
    Case(job="efo-killed", fault="the process is killed", inject=_kill, must=_set("TargetDown")),
    Case(
        job="efo-workers-stopped",
        fault="one of two workers is suspended, then the other",
        inject=_stop_workers,
        workers=2,
        seconds=5,
        must=_set("WorkerDown", "NoWorkerUp"),
        # A suspended worker keeps the locks of its partitions of the log: the other waits for them, and commits nothing
        # there.
        may=_SLOW | _set("LeasesFlapping", "WorkerRestarts"),
    ),
    Case(
        job="efo-workers-killed",
        fault="a worker is killed again and again",
        inject=_kill_workers,
        workers=2,
        must=_set("WorkerRestarts"),
        may=_set("WorkerDown"),
    ),
    Case(
        job="efo-frozen",
        fault="subscriptions are open, and Kinesis sends nothing on them",
        inject=_stall,
        must=_set("ShardsFrozen"),
        may=_NOT_READ | _set("ShardsDisconnected"),
    ),
    Case(
        job="efo-refused",
        fault="Kinesis resets the subscriptions, and answers each SubscribeToShard with an internal failure",
        inject=_refuse,
        must=_set("ShardsDisconnected", "SubscriptionsFailing", "NotReady", "LagHigh"),
        may=_set("CheckpointAgeHigh"),
    ),
    Case(
        job="efo-throttled",
        fault="Kinesis throttles each SubscribeToShard",
        inject=_throttle,
        must=_set("SubscriptionsThrottled"),
        may=_NOT_READ | _set("ShardsDisconnected", "SubscriptionsFailing"),
    ),
    Case(
        job="efo-leases-locked",
        fault="another program holds the lock of the lease store's file",
        inject=_lock_leases,
        must=_set("LeaseStoreFailing", "ShardsWithoutLease"),
        may=_LEASES,
    ),
    Case(
        job="efo-leases-flapping",
        fault="the lock is held for 8 s three times a minute, and leases live 5 s",
        inject=_lock_leases_often,
        environment={"EFO_LEASES__FAILOVER_SECONDS": "5"},
        must=_set("LeasesFlapping"),
        may=_LEASES,
    ),
    Case(
        job="efo-sink-stuck",
        fault="nobody reads the pipe that the sink writes to",
        inject=_stop_reading,
        environment=_PIPE,
        must=_set("ShardsUncommitted", "UnackedAgeHigh", "CheckpointAgeHigh"),
        may=_SLOW,
    ),
    Case(
        job="efo-child-stuck",
        fault="a child process of `efo kcl` takes a batch and answers nothing",
        inject=_stick,
        command=("kcl", "--properties", "app.properties"),
        files={"app.properties": _PROPERTIES, "child.py": _CHILD},
        environment={"EFO_LEASES__STORE": "sqlite"},
        must=_set("ShardsUnread"),
        may=_SLOW,
    ),
    Case(
        job="efo-sink-full",
        fault="no space is left where the sink writes",
        inject=_nothing,
        environment=_PIPE,
        output=Path("/dev/full"),
        must=_set("ShardsUncommitted", "SinkRetries"),
        may=_SLOW,
    ),
    Case(
        job="efo-sink-slow",
        fault=f"a backlog of {BACKLOG_HOURS} hours, and a sink of 60 KB/s",
        inject=_nothing,
        environment=_PIPE,
        backlog=True,
        pace=60_000,
        must=_set("LagHigh", "LagCritical", "RetentionAtRisk", "Backpressure"),
        # A subscription that ends while the sink is busy looks frozen until the sink takes more: for some seconds,
        # which are a large part of these short waiting times only.
        may=_SLOW | _set("ShardsFrozen"),
    ),
    Case(
        job="efo-expired",
        fault="the process is away for 60 s, and the stream keeps records for 20 s",
        inject=_expire,
        must=_set("RecordsExpired"),
        may=_NOT_READ | _set("TargetDown"),
    ),
    Case(
        job="efo-isolated",
        fault="records that the sink refuses isolate their shard",
        inject=_poison,
        environment=_UTF8,
        must=_set("ShardsIsolated"),
        may=_NOT_READ,
    ),
    Case(
        job="efo-skipped",
        fault="records that the sink refuses are skipped",
        inject=_poison,
        environment={**_UTF8, "EFO_RELAY__ON_REFUSED_RECORD": "skip"},
        must=_set("RecordsSkipped"),
    ),
    Case(
        job="efo-dead-lettered",
        fault="records that the sink refuses go to a topic of their own",
        inject=_poison,
        environment={**_UTF8, "EFO_RELAY__DEAD_LETTERS": "refused"},
        must=_set("RecordsDeadLettered"),
    ),
    Case(
        job="efo-log-held",
        fault="a reader of the log does not come back, and all has expired",
        inject=_forget_reader,
        environment={"EFO_RELAY__RETENTION_BYTES": "10000", "EFO_RELAY__MAINTENANCE_SECONDS": "2"},
        must=_set("LogHeldByReader"),
    ),
    Case(
        job="efo-log-disk",
        fault="another program fills the disk of the log, but for 4 %",
        inject=_fill_disk,
        environment={"EFO_RELAY__MAINTENANCE_SECONDS": "2", "EFO_RELAY__RETENTION_BYTES": "1000000"},
        disk_megabytes=64,
        must=_set("LogDiskFilling"),
    ),
    Case(
        job="efo-reload-refused",
        fault="the file of the token is emptied, so that the reload is refused",
        inject=_empty_token,
        environment={"EFO_SERVICE__READ_TOKEN_FILE": "token"},
        files={"token": "0123456789abcdef0123"},
        must=_set("ProcessProblem"),
    ),
    Case(
        job="efo-too-old",
        fault=f"a backlog of {BACKLOG_HOURS} hours, of which limits of age drop all",
        inject=_nothing,
        environment={"EFO_RELAY__MAX_RECORD_AGE_SECONDS": "0.001", "EFO_RELAY__SKIP_WHEN_BEHIND_SECONDS": "600"},
        backlog=True,
        must=frozenset(),
        may=_SLOW,
    ),
    Case(
        job="efo-damaged",
        fault="a producer puts damaged KPL aggregates",
        inject=_damage,
        must=_set("DecodeErrors"),
    ),
    Case(
        job="efo-filtered",
        fault="a producer puts aggregates of all keys, and those of other shards are filtered out",
        inject=_mix,
        environment={"EFO_CONSUMER__AGGREGATES": "filter"},
        must=_set("RecordsFiltered"),
    ),
)
"""The jobs with a fault of the service. Those of the pipeline, and of a Prometheus that finds nothing, are in `run`."""
