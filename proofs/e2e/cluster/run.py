"""The run: FakeKinesis, a relay, an object store, a cluster whose Pythons have no efo, jobs of all kinds, and kills."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pyarrow.parquet as pq
import trio

from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis, FakeSettings
from efo_service.demo.demo import DemoProcess, ended
from efo_service.demo.load import Comparison, DemoLoad, FoundRecord, compare, parquet_rows
from efo_service.spark.pipeline.pipeline import MAX_RETRIES
from proofs.e2e.cluster import environments
from proofs.e2e.cluster.cluster import PYTHON, Cluster, Program
from proofs.e2e.cluster.environments import BARE, CLIENT, NAME, WITHOUT_EFO, Environments
from proofs.e2e.cluster.verdict import is_slow, refusal, summarize
from proofs.e2e.config import efo_config, object_log
from proofs.e2e.kills import STALLED_SECONDS
from proofs.e2e.landed import LandedRows
from proofs.local_servers.object_stores import BUCKET, ENVIRONMENT, Running, running, serve_versitygw

STREAM: Final = "orders"
SHARDS: Final = 3
JOBS: Final = Path(__file__).with_name("jobs")
WAYS: Final = ("pipeline", "available now", "Connect batch", "Connect stream", "Connect batch, registered")
"""How the log is read. Each way must land every record once."""
_BATCHES: Final = 8
"""Least number of micro-batches of the AvailableNow run, so that there is a middle to kill a worker in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the run. `rate`: most records per second."""

    records: int
    rate: float
    directory: Path


@dataclass(slots=True)
class _Run:
    options: Options
    report: Callable[[str], None]
    store: Running
    made: Environments
    cluster: Cluster
    read: dict[str, Comparison] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    killed: list[str] = field(default_factory=list)
    restarts: int = 0

    @property
    def config(self) -> Path:
        return self.options.directory / "efo.toml"

    @property
    def log(self) -> list[str]:
        """The log and its options, as arguments of a job."""
        limit = {"maxOffsetsPerTrigger": str(self.options.records // _BATCHES)}
        return [_url(self.store), json.dumps(self._query), json.dumps(self._query | limit)]

    @property
    def _query(self) -> dict[str, str]:
        return {"subscribe": STREAM, "storeOptions": json.dumps(dict(self.store.options()))}

    async def pipeline(self, load: DemoLoad) -> None:
        """Run efo's pipeline while the relay writes, and kill a worker in the middle."""
        output = self.options.directory / "parquet" / "records"
        job = self.made.packages / "efo_service" / "spark_job.py"
        pipeline = self._submit("pipeline", [job, "--config", self.config])
        async with ended(pipeline):
            await pipeline.start()
            with collapse_groups():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(load.run)
                    await self._land(pipeline, output, kill=0, share=0)
            await pipeline.kill()  # what is compared is what Spark has committed
        self.read["pipeline"] = await self._compare(parquet_rows, output)

    async def available_now(self) -> None:
        """Copy the log in several micro-batches, with the source registered explicitly, and kill the other worker."""
        output = self.options.directory / "copy"
        url, _, limited = self.log
        checkpoint = self.options.directory / "copy-checkpoint"
        job = self._submit("available-now", [JOBS / "stream.py", url, limited, output, checkpoint])
        async with ended(job):
            await job.start()
            await self._land(job, output, kill=1, share=0.25)
            if (code := await job.end_of()) != 0:
                raise EfoError(f"{job.name} ended with {code}:\n{job.text()[-4000:]}")
        self.read["available now"] = await self._compare(parquet_rows, output)

    async def _land(self, job: Program, output: Path, *, kill: int, share: float) -> None:
        """Wait until all records have landed.

        `kill`: the worker that is killed, with its executor, when more than `share` of them have; it is started again
        when more have landed without it.
        """
        landed, worker, records = LandedRows(output), self.cluster.workers[kill], self.options.records
        before, moved_at, killed_at = 0, trio.current_time(), -1
        while True:
            is_running = job.is_running  # asked first: a job that ends after the count has landed the rest
            if (now := await landed.count()) >= records:
                break
            if now > before:
                self.report(f"{job.name}: {now} records have landed")
                before, moved_at = now, trio.current_time()
            if killed_at < 0 and now > share * records:
                await worker.kill()
                self.killed.append(job.name)
                self.report(f"{worker.name} killed, with its executor")
                killed_at = now
            elif 0 <= killed_at < now and not worker.is_running:
                await worker.start()
                self.report(f"{worker.name} started again")
            if trio.current_time() - moved_at > STALLED_SECONDS:
                raise EfoError(f"{job.name}: {now} of {records} records, and no more for {STALLED_SECONDS:g} s")
            if not is_running:
                await self._again(job)
            await trio.sleep(0.1)
        if not worker.is_running:
            await worker.start()
        await worker.wait_for("Successfully registered with master")

    async def _again(self, job: Program) -> None:
        """Start a job again that ended because its machine was busy. Raises ChildFailedError for any other end."""
        self.restarts += 1
        if self.restarts > MAX_RETRIES or not is_slow(job.text()):
            job.check()
        self.report(f"{job.name} is started again: Spark's Python workers started too slowly")
        await job.start()

    async def _end(self, job: Program, server: Program | None = None) -> int:
        """Start a job, and the server of Spark Connect that it needs; return its exit code."""
        while True:
            if server is not None and not server.is_running:
                await server.start()
                await server.wait_for_port(self.cluster.connect_port)
            await job.start()
            code = await job.end_of()
            text = job.text() + ("" if server is None else server.text())
            if code == 0 or self.restarts == MAX_RETRIES or not is_slow(text):
                return code
            self.restarts += 1
            self.report(f"{job.name} is started again: Spark's Python workers started too slowly")
            if server is not None:
                await server.end()

    async def wrong_environments(self) -> None:
        """Submit jobs whose Pythons do not fit together. Each must say so."""
        wrong = {  # Python of the driver, and the one that executors find at its path
            "executors without efo": (PYTHON, WITHOUT_EFO),
            "executors with another version": (PYTHON, self.made.other),
            "planner without efo": (str(WITHOUT_EFO), None),
        }
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                for name, (python, executors) in wrong.items():
                    archive = None if executors is None else environments.pack_link(self.options.directory, executors)
                    nursery.start_soon(self._refused, name, python, archive)

    async def _refused(self, name: str, python: str, archive: Path | None) -> None:
        job = self.cluster.submit(
            name.replace(" ", "-"),
            [JOBS / "batch.py", *self.log[:2]],
            directory=self.made.driver,
            python=python,
            archive=archive,
            environment=ENVIRONMENT,
            settings={"spark.cores.max": "1"},
        )
        async with ended(job):
            if await self._end(job) == 0:
                raise EfoError(f"{name}: the job succeeded\n{job.text()[-2000:]}")
        self._note(name, job)

    def _note(self, name: str, job: Program) -> None:
        self.refusals[name] = refusal(job.text())
        self.report(f"{name}: {self.refusals[name] or job.text()[-2000:]}")

    async def connect(self) -> None:
        """Read through Spark Connect: by name from a client without efo, and registered by one that has it."""
        server = self.cluster.connect_server(
            directory=self.options.directory,
            python=self.made.driver / NAME / "bin" / "python",
            environment=ENVIRONMENT,
        )
        output, checkpoint = self.options.directory / "connect", self.options.directory / "connect-checkpoint"
        by_name, registered = self.options.directory / "by-name.parquet", self.options.directory / "registered.parquet"
        plain = self._client("client", [by_name, "--stream", output, checkpoint], {})
        own = self._client("own", [registered, "--register"], {"PYTHONPATH": str(self.made.packages)})
        async with ended(server, plain, own):
            for client in (plain, own):
                if (code := await self._end(client, server)) != 0:
                    raise EfoError(f"{client.name} ended with {code}:\n{client.text()[-4000:]}")
        self.read["Connect batch"] = await self._compare(_rows_of, by_name)
        self.read["Connect stream"] = await self._compare(parquet_rows, output)
        self.read["Connect batch, registered"] = await self._compare(_rows_of, registered)

    def _client(self, name: str, arguments: list[str | Path], environment: Mapping[str, str]) -> Program:
        server = f"sc://127.0.0.1:{self.cluster.connect_port}"
        return self.cluster.client(
            name, [CLIENT, "-W", "ignore", JOBS / "client.py", server, *self.log[:2], *arguments], environment
        )

    def _submit(self, name: str, job: list[str | Path]) -> Program:
        return self.cluster.submit(
            name, job, directory=self.made.driver, archive=self.made.archive, environment=ENVIRONMENT
        )

    async def _compare(self, rows: Callable[[Path], list[FoundRecord]], path: Path) -> Comparison:
        found = await trio.to_thread.run_sync(rows, path)
        self.report(f"{path.name}: {len(found)} records")
        return compare(found, self.options.records)


async def run(options: Options, report: Callable[[str], None]) -> dict[str, Any]:
    """Do the run, and return its counts. Raises EfoError, NotInstalledError."""
    started = time.monotonic()
    if not environments.lacks_efo(BARE):
        raise EfoError(f"{BARE} has efo: the proof would show nothing")
    report("building the wheel, and packing the environment")
    made = await trio.to_thread.run_sync(environments.make, options.directory)
    with serve_versitygw() as text, mock.patch.dict("os.environ", ENVIRONMENT):
        store = running(text)
        one = _Run(options, report, store, made, Cluster(options.directory, ENVIRONMENT))
        await _read_in_all_ways(one)
    return {
        **summarize(options.records, one.read, one.refusals, one.killed),
        "restarts": one.restarts,
        "seconds": round(time.monotonic() - started, 1),
    }


async def _read_in_all_ways(one: _Run) -> None:
    options, cluster = one.options, one.cluster
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(
            FakeKinesis(settings=FakeSettings(subscription_life=20.0), clock=time.time)
        )
        fake.create_stream(STREAM, shards=SHARDS)
        address = await stack.enter_async_context(fake.serve())
        one.config.write_text(efo_config(STREAM, address.url, str(address.ca_file), *_tables(one)))
        relay = DemoProcess("relay", ["run", "--config", str(one.config)], options.directory, ENVIRONMENT)
        await stack.enter_async_context(ended(cluster.master, *cluster.workers, relay))
        await relay.start()
        await cluster.start()

        async def wait_for_the_kill(produced: int) -> None:
            while produced > options.records // 2 and not one.killed:  # noqa: ASYNC110 - polls a list
                await trio.sleep(0.1)

        one.report("a master and two workers run; their Python has no efo")
        seconds = options.records / options.rate
        load = DemoLoad(
            fake,
            STREAM,
            options.records,
            seconds=seconds,
            split_at=0.3,
            merge_at=0.6,
            before_next_chunk=wait_for_the_kill,
        )
        await one.pipeline(load)
        await relay.stop(60)
        await one.available_now()
        await one.connect()
        await one.wrong_environments()


def _rows_of(path: Path) -> list[FoundRecord]:
    rows = pq.read_table(path).to_pylist()
    return [FoundRecord((0.0, row["partition"], row["offset"]), row["key"].decode(), row["value"]) for row in rows]


def _url(server: Running) -> str:
    return f"{server.scheme}://{BUCKET}/e2e/log"


def _tables(one: _Run) -> tuple[str, str]:
    """Return the tables of the log and of the pipeline."""
    pipeline = f"""\
[pipeline]
output = "{(one.options.directory / "parquet").as_uri()}"
checkpoint = "{(one.options.directory / "checkpoint").as_uri()}"
trigger_seconds = 1
"""
    return object_log(_url(one.store), one.store.options()), pipeline
