"""`efo run --workers N`: processes that share the shards of a stream."""

from __future__ import annotations

import os
import signal

import httpx2
import pytest
import trio

from efo_service.exit_codes import Exit
from efo_service.workers.supervisor import SUPERVISED
from tests.e2e.running import PATIENCE, relayed, running

pytestmark = pytest.mark.e2e


async def test_workers_share_the_shards_and_one_that_is_killed_comes_back(fake, files):
    fake.put_many("orders", [(f"key-{number}", b"x") for number in range(1000)])
    async with running(files, "--workers", "2", EFO_LEASES__FAILOVER_SECONDS="3") as efo:
        url = (await efo.logged("supervising"))["url"]
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE) as client:
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - no event comes from over there
                await trio.sleep(0.1)
            await efo.until(lambda: relayed(files) == 1000)
            status = (await client.get("/status")).json()
        first, second = status["workers"]
        assert [first["worker_id"], second["worker_id"]] == ["w-1-1", "w-1-2"]
        os.kill(first["pid"], signal.SIGKILL)
        await efo.until(lambda: sum(line["event"] == "worker_started" for line in efo.lines) == 3)
        fake.put_many("orders", [(f"key-{number}", b"y") for number in range(1000)])
        await efo.until(lambda: relayed(files) == 2000)
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
    assert relayed(files) == 2000
    assert [line["exit_code"] for line in efo.lines if line["event"] == "worker_ended"] == [-signal.SIGKILL]
    assert efo.lines[-1]["event"] == "supervised"
    assert "stopped" in {line["event"] for line in efo.lines}


async def test_a_stream_that_is_not_there_ends_all(files):
    async with running(files, "--workers", "2", EFO_KINESIS__STREAM="ordres") as efo:
        assert await efo.ended() == Exit.UNAVAILABLE
    assert "ordres" in efo.stderr


async def test_a_worker_whose_supervisor_is_gone_drains(files):
    async with running(files, **{SUPERVISED: "1"}) as efo:
        await efo.logged("shard_started")
        await efo.process.stdin.aclose()  # as the kernel does for a process that is killed
        assert await efo.ended() == Exit.OK, efo.stderr
    assert {"draining", "stopped"} <= {line["event"] for line in efo.lines}
