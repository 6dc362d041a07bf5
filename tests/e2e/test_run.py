"""`efo run` as its operator meets it: a process, signals, exit codes, HTTP, JSON lines; FakeKinesis over TLS."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from efo.testing import FakeKinesis
from service.exits import Exit

pytestmark = pytest.mark.e2e

PATIENCE = 180.0
"""Seconds after which a process that does not do what is waited for has failed."""


class Efo:
    """A running `efo run`; `lines` are those of its log so far."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.lines: list[dict] = []
        self.stderr = ""
        self._more = trio.Event()

    async def read(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_stderr)
            rest = b""
            async for chunk in self.process.stdout:
                *whole, rest = (rest + chunk).split(b"\n")
                self.lines += map(json.loads, whole)
                self._more.set()
                self._more = trio.Event()
            assert rest == b""

    async def _read_stderr(self) -> None:
        async for chunk in self.process.stderr:
            self.stderr += chunk.decode()

    async def logged(self, name: str) -> dict:
        """Wait for an event in the log."""
        while not (found := [line for line in self.lines if line["event"] == name]):
            await self._more.wait()
        return found[0]

    async def until(self, condition: Callable[[], object]) -> None:
        """Look until it is so: what the other process writes gives no event to wait for."""
        while not condition():
            assert self.process.poll() is None, self.stderr
            await trio.sleep(0.02)

    async def ended(self) -> int:
        return await self.process.wait()


class Files:
    """The configuration of a service in a directory of its own, against a fake."""

    def __init__(self, directory: Path, url: str, ca_file: Path | None) -> None:
        self.directory = directory
        self.config = directory / "efo.toml"
        self.config.write_text(f"""
            [kinesis]
            stream = "orders"
            region = "us-east-1"
            endpoint_url = "{url}"
            ca_file = "{ca_file}"
            [leases]
            path = "var/leases.sqlite"
            worker_id = "w-1"
            [relay]
            directory = "log"
            [service]
            port = 0
        """)


@pytest.fixture
async def fake():
    async with FakeKinesis(clock=time.time) as fake:
        fake.create_stream("orders", shards=2)
        yield fake


@pytest.fixture
async def files(fake, tmp_path):
    async with fake.serve() as address:
        yield Files(tmp_path, address.url, address.ca_file)


@asynccontextmanager
async def running(files: Files, **environment: str) -> AsyncIterator[Efo]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("EFO_", "AWS_", "OTEL_"))}
    credentials = {"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "hunter2"}
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "service.cli", "run", "--config", str(files.config)],
        cwd=files.directory,
        env={**own, **credentials, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    efo = Efo(process)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(efo.read)
            try:
                yield efo
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()


async def test_it_relays_answers_and_drains(fake, files):
    fake.put_many("orders", [(f"key-{number}", b"%d" % number) for number in range(1000)])
    async with running(files) as efo:
        url = (await efo.logged("started"))["url"]
        async with httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            await efo.until(lambda: sum(size_of(path) for path in files.directory.glob("log/**/*.arrow")) == 1000)
            ready = await client.get("/readyz")
            status = (await client.get("/status")).json()
            metrics = (await client.get("/metrics")).text
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
    assert (ready.status_code, ready.json()["problems"]) == (200, [])
    assert (status["worker_id"], status["shard_counts"]["consuming"]) == ("w-1", 2)
    assert_metrics(metrics)
    names = [line["event"] for line in efo.lines]
    assert names[0] == "started"
    assert names[-1] == "stopped"
    assert {"consumer_ready", "shard_started", "draining", "shard_stopped"} <= set(names)
    assert [line for line in efo.lines if line["level"] not in {"debug", "info"}] == []
    assert efo.stderr == ""
    assert "hunter2" not in json.dumps(efo.lines)
    assert "key-1" not in json.dumps(efo.lines)


def size_of(segment: Path) -> int:
    """Return a segment's number of records, by its name."""
    base, end = segment.name.split(".")[0].split("-")[:2]
    return int(end) - int(base)


def assert_metrics(text: str) -> None:
    samples = {
        (sample.name, sample.labels.get("messaging_destination_partition_id")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    shards = [shard for name, shard in samples if name == "messaging_client_consumed_messages_total"]
    assert len(shards) == 2
    assert sum(samples["messaging_client_consumed_messages_total", shard] for shard in shards) == 1000
    assert samples["messaging_client_sent_messages_total", None] == 1000
    assert samples["efo_subscription_active", None] == 2
    assert samples["efo_http2_connection_active", None] == 1
    assert all(samples["efo_subscription_io_bytes_total", shard] > 1000 for shard in shards)
    assert all(("efo_consumer_lag_seconds", shard) in samples for shard in shards)


async def test_what_was_relayed_before_a_stop_is_not_relayed_again(fake, files):
    for count in (100, 200):
        fake.put_many("orders", [(f"key-{number}", b"x") for number in range(100)])
        async with running(files) as efo:
            await efo.until(lambda: sum(map(size_of, files.directory.glob("log/**/*.arrow"))) >= count)  # noqa: B023 - within
            efo.process.send_signal(signal.SIGINT)
            assert await efo.ended() == Exit.OK, efo.stderr
        assert sum(map(size_of, files.directory.glob("log/**/*.arrow"))) == count


async def refused(files: Files, **environment: str) -> tuple[int, Efo]:
    async with running(files, **environment) as efo:
        code = await efo.ended()
    return code, efo


async def test_a_stream_that_is_not_there(files):
    code, efo = await refused(files, EFO_KINESIS__STREAM="ordres")
    assert code == Exit.UNAVAILABLE
    assert "ordres" in efo.stderr
    assert "Traceback" not in efo.stderr
    assert efo.lines[-1]["event"] == "failed"


async def test_a_port_in_use(files):
    with socket.create_server(("127.0.0.1", 0)) as other:
        code, efo = await refused(files, EFO_SERVICE__PORT=str(other.getsockname()[1]))
    assert code == Exit.UNAVAILABLE
    assert "cannot listen on 127.0.0.1" in efo.stderr


async def test_a_lease_store_that_is_not_one(files):
    (files.directory / "notes.txt").write_text("not a database " * 100)
    code, efo = await refused(files, EFO_LEASES__PATH="notes.txt")
    assert code == Exit.UNAVAILABLE
    assert "notes.txt" in efo.stderr
