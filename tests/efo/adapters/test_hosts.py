"""The surfaces inside of applications: FastAPI under uvicorn, with asyncio and uvloop, and a Jupyter kernel."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from efo.testing import FakeKinesisThread, FakeSettings

APPLICATION = """
import asyncio
from contextlib import asynccontextmanager

import efo
import efo.aio
from fastapi import FastAPI, Request

orders = []


async def bill(record: efo.Record, _batch: efo.Batch) -> None:
    await asyncio.sleep(0)
    orders.append(record.data.decode())


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with efo.aio.open_consumer("orders", application="billing") as consumer:
        billing = asyncio.create_task(consumer.run(efo.aio.Handler(record_handler=bill)))
        yield {"consumer": consumer}
        consumer.drain()
        await billing
    print("drained", flush=True)


app = FastAPI(lifespan=lifespan)


@app.get("/orders")
async def get_orders(request: Request):
    consumer = request.state.consumer
    return {"orders": sorted(orders), "loop": type(asyncio.get_running_loop()).__module__,
            "shards": len(consumer.status().shards)}
"""
CELLS = """
import efo.sync
got = []
with efo.sync.open_consumer("orders", application="notebook", leases=efo.leases.MemoryLeaseStore()) as consumer:
    for batch in consumer:
        got += [record.data.decode() for record in batch]
        consumer.ack(batch)
        if len(got) == 3:
            break
import asyncio
print(sorted(got), asyncio.get_running_loop().is_running())
"""


@pytest.fixture(scope="module")
def environment():
    with FakeKinesisThread(settings=FakeSettings(consumer_creating=0.0)) as fake:
        fake.create_stream("orders", shards=2)
        fake.put_many("orders", [(f"customer-{n}", b"%d" % n) for n in range(3)])
        yield {**os.environ, **fake.environment}


@pytest.mark.e2e
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_fastapi_reads_in_its_lifespan(loop, environment, tmp_path):
    for module in ("fastapi", "uvicorn", loop):
        pytest.importorskip(module)
    (tmp_path / "billing.py").write_text(APPLICATION)
    command = [sys.executable, "-m", "uvicorn", "billing:app", "--port", "0", "--loop", loop]
    command += ["--no-access-log"]  # nobody reads the pipe while the requests are made
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        try:
            running = re.compile(r"Uvicorn running on http://127\.0\.0\.1:(\d+)")
            port = next(found[1] for line in process.stderr if (found := running.search(line)))
            answer = {"orders": []}
            while len(answer["orders"]) < 3:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/orders", timeout=30) as response:
                    answer = json.load(response)
            process.send_signal(signal.SIGTERM)
            output, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert answer["orders"] == ["0", "1", "2"]
    assert answer["loop"].partition(".")[0] == loop
    assert answer["shards"] == 2
    assert output.endswith("drained\n"), error
    assert "Traceback" not in error


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
    assert "['0', '1', '2'] True\n" in printed
