"""`efo run --workers N`: processes that share the shards of a stream."""

from __future__ import annotations

import os
import signal

import httpx2
import pytest
import trio

from efo_service.exit_codes import Exit
from efo_service.workers.supervisor import SUPERVISED
from tests.e2e.running import TIMEOUT, metrics_after, relayed, running

pytestmark = pytest.mark.e2e


async def status_with(client, shards):
    """Return the status when these shards are read. While a worker hands a shard over, none of them reads it."""
    with trio.fail_after(TIMEOUT):
        while True:
            status = (await client.get("/status")).json()
            if sorted(shard["shard_id"] for shard in status["shards"]) == sorted(shards):
                return status
            await trio.sleep(0.1)


async def test_workers_share_the_shards_and_a_killed_worker_is_restarted(fake, files):
    fake.put_many("orders", [(f"key-{number}", b"x") for number in range(1000)])
    async with running(files, "--workers", "2", EFO_LEASES__FAILOVER_SECONDS="3") as efo:
        url = (await efo.logged("supervisor_started"))["url"]
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=TIMEOUT) as client:
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - the other process provides no event
                await trio.sleep(0.1)
            await efo.until(lambda: relayed(files) == 1000)
            status = await status_with(client, fake.open_shards("orders"))
            metrics = await metrics_after(client, records=1000)
        first, second = status["workers"]
        assert [first["worker_id"], second["worker_id"]] == ["w-1-1", "w-1-2"]
        assert {shard["worker_id"] for shard in status["shards"]} <= {"w-1-1", "w-1-2"}
        assert all(f'efo_worker_up{{worker="{worker}"}} 1.0' in metrics for worker in ("w-1-1", "w-1-2"))
        os.kill(first["pid"], signal.SIGKILL)
        await efo.until(lambda: sum(line["event"] == "worker_started" for line in efo.lines) == 3)
        fake.put_many("orders", [(f"key-{number}", b"y") for number in range(1000)])
        await efo.until(lambda: relayed(files) == 2000)
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
    assert relayed(files) == 2000
    assert [line["exit_code"] for line in efo.lines if line["event"] == "worker_ended"] == [-signal.SIGKILL]
    assert efo.lines[-1]["event"] == "supervisor_stopped"
    assert "stopped" in {line["event"] for line in efo.lines}


async def test_a_missing_stream_stops_all_workers(files):
    async with running(files, "--workers", "2", EFO_KINESIS__STREAM="ordres") as efo:
        assert await efo.ended() == Exit.UNAVAILABLE
    assert "ordres" in efo.stderr


async def test_a_worker_drains_when_its_supervisor_ends(files):
    async with running(files, **{SUPERVISED: "1"}) as efo:
        await efo.logged("shard_started")
        await efo.process.stdin.aclose()  # as the kernel does when the supervisor is killed
        assert await efo.ended() == Exit.OK, efo.stderr
    assert {"draining", "stopped"} <= {line["event"] for line in efo.lines}
