"""The surfaces inside of applications: FastAPI under uvicorn, with asyncio and uvloop, and a Jupyter kernel."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest

from efo.testing import FakeKinesisThread, FakeSettings
from tests.paths import ROOT

CELLS = """
import efo.sync
got = []
with efo.sync.open_consumer("orders", application="notebook", leases=efo.leases.MemoryLeaseStore()) as consumer:
    for batch in consumer:
        got += [record.partition_key for record in batch]
        consumer.ack(batch)
        if len(got) == 3:
            break
import asyncio
print(sorted(got), asyncio.get_running_loop().is_running())
"""


@pytest.fixture
def fake():
    with FakeKinesisThread(settings=FakeSettings(consumer_creating=0.0)) as fake:
        fake.create_stream("orders", shards=2)
        fake.put_many("orders", [(f"customer-{n}", b'{"customer": "c%d", "cents": 5}' % n) for n in range(3)])
        yield fake


@pytest.fixture
def environment(fake):
    return {**os.environ, **fake.environment}


@contextmanager
def serving(loop, environment, tmp_path):
    """Serve the example, as its reader does; yield the process and its address."""
    for module in ("fastapi", "uvicorn", loop):
        pytest.importorskip(module)
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT / "examples/fastapi"), "orders_api:app"]
    command += ["--port", "0", "--loop", loop, "--no-access-log"]  # nobody reads the pipe while requests are made
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        try:
            running = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")
            yield process, next(found[1] for line in process.stderr if (found := running.search(line)))
        finally:
            process.kill()


def asked(url):
    with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310 - of the server above
        return json.load(response)


@pytest.mark.e2e
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_fastapi_reads_in_its_lifespan(loop, environment, tmp_path):
    with serving(loop, environment, tmp_path) as (process, address):
        while len(totals := asked(f"{address}/totals")) < 3:
            pass
        health = asked(f"{address}/healthz")
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    assert totals == {"c0": 5, "c1": 5, "c2": 5}
    assert health == {"failure": None, "shards": 2}
    assert "Application shutdown complete" in error
    assert "Traceback" not in error


@pytest.mark.e2e
def test_a_consumer_that_fails_ends_the_application(fake, environment, tmp_path):
    fake.put("orders", "customer-9", b"no order")
    with serving("asyncio", environment, tmp_path) as (process, _):
        _, error = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "JSONDecodeError" in error


@pytest.mark.e2e
def test_a_notebook_cell_reads_without_await(environment):
    manager = pytest.importorskip("jupyter_client.manager").KernelManager()
    pytest.importorskip("ipykernel")
    command = [sys.executable, "-m", "ipykernel", "-f", "{connection_file}"]
    manager._kernel_spec = pytest.importorskip("jupyter_client.kernelspec").KernelSpec(argv=command, language="python")
    manager.start_kernel(env=environment)
    client = manager.client()
    client.start_channels()
    printed: list[str] = []
    try:
        client.wait_for_ready(timeout=120)
        client.execute_interactive(
            CELLS,
            timeout=120,
            output_hook=lambda message: printed.append(str(message["content"].get("text") or message["content"])),
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert "['customer-0', 'customer-1', 'customer-2'] True\n" in printed
