"""Ctrl-C and SIGTERM in each surface: a process ends, what was acked is saved, and its leases are released."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from unittest.mock import patch

import pytest
import trio

import efo
from efo.testing import FakeKinesisThread, FakeSettings

SIGNAL_THEN_EXIT = {"SIGINT": 130, "SIGTERM": 0}
PRELUDE = """
import asyncio, signal, sys, time
import trio, efo, efo.aio, efo.sync
def observe(event):
    if isinstance(event, efo.events.RecordsProcessed):
        print("acked", flush=True)
options = dict(application="app", worker_id="worker", observer=observe)
"""
PROGRAMS = {
    "trio": """
async def handle(batch):
    pass
async def main():
    async with efo.open_consumer("orders", **options) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: token.run_sync_soon(consumer.drain))
        token = trio.lowlevel.current_trio_token()
        await consumer.run(efo.Handler(handle))
run = lambda: trio.run(main)
""",
    "asyncio": """
async def handle(batch):
    pass
async def main():
    async with efo.aio.open_consumer("orders", **options) as consumer:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.drain)
        await consumer.run(efo.aio.Handler(handle))
run = lambda: asyncio.run(main())
""",
    "sync iteration": """
def run():
    with efo.sync.open_consumer("orders", **options) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.drain())
        for batch in consumer:
            consumer.ack(batch)
            pass
""",
    "sync handler": """
def handle(batch):
    pass
def run():
    with efo.sync.open_consumer("orders", **options) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.drain())
        consumer.run(efo.sync.Handler(handle))
""",
    "sync threads": """
def handle(batch):
    pass
def run():
    with efo.sync.open_consumer("orders", **options) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.drain())
        consumer.run(efo.sync.Handler(handle, threads=2))
""",
}
END = """
try:
    run()
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture(scope="module")
def kinesis():
    with FakeKinesisThread(settings=FakeSettings(consumer_creating=0.0, takeover_after=0.0)) as fake:
        fake.create_stream("orders")
        fake.put("orders", "key", b"1")
        yield fake


@pytest.mark.e2e
@pytest.mark.parametrize("name", SIGNAL_THEN_EXIT)
@pytest.mark.parametrize("surface", PROGRAMS)
def test_a_signal_ends_the_program_and_nothing_is_lost(surface, name, kinesis, tmp_path):
    environment = {**os.environ, **kinesis.environment}
    command = [sys.executable, "-c", PRELUDE + PROGRAMS[surface] + END]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        try:
            assert process.stdout.readline() == b"acked\n", process.stderr.read()
            process.send_signal(getattr(signal, name))
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == SIGNAL_THEN_EXIT[name], error.decode()
    assert b"Traceback" not in error
    lease = trio.run(read_lease, tmp_path / "efo-leases.sqlite")
    assert lease.owner is None
    assert not lease.checkpoint.is_sentinel


@pytest.mark.e2e
@pytest.mark.parametrize("surface", ["trio", "sync iteration"])
def test_ctrl_c_deregisters_an_ephemeral_consumer(surface, kinesis, tmp_path):
    options = 'options = {**options, "settings": efo.ConsumerSettings(ephemeral=True)}\n'
    command = [sys.executable, "-c", PRELUDE + options + PROGRAMS[surface] + END]
    environment = {**os.environ, **kinesis.environment}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"acked\n"
            assert [name for name in registered(kinesis) if name.startswith("app-")] != []
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert [name for name in registered(kinesis) if name.startswith("app-")] == []


def registered(kinesis):
    """Return the names of the consumers that are registered and not being deleted."""

    async def read():
        async with efo.open_kinesis("orders") as client:
            described = await client.control_plane.describe_stream()
            return await client.control_plane.list_consumers(described.arn)

    with patch.dict(os.environ, kinesis.environment):
        return [consumer.name for consumer in trio.run(read) if consumer.status != "DELETING"]


async def read_lease(path):
    async with efo.leases.SqliteLeaseStore(path, "app", "orders") as store:
        (lease,) = await store.list()
        return lease
