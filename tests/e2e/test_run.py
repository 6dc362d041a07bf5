"""`efo run` as an operator runs it: a process, signals, exit codes, HTTP and JSON lines, with FakeKinesis over TLS."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import stat
import sys

import httpx2
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from efo_service.exit_codes import Exit
from tests.e2e.running import Efo, Files, metrics_after, relayed, running

pytestmark = pytest.mark.e2e


async def test_efo_run_relays_records_serves_its_endpoints_and_drains(fake, files):
    fake.put_many("orders", [(f"key-{number}", b"%d" % number) for number in range(1000)])
    async with running(files) as efo:
        url = (await efo.logged("started"))["url"]
        async with httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            await efo.until(lambda: relayed(files) == 1000)
            ready = await client.get("/readyz")
            status = (await client.get("/status")).json()
            metrics = await metrics_after(client, records=1000)
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
    assert (ready.status_code, ready.json()["problems"]) == (200, [])
    assert (status["worker_id"], status["shard_counts"]["consuming"]) == ("w-1", 2)
    assert_metrics(metrics)
    names = [line["event"] for line in efo.lines]
    assert names[0] == "started"
    assert {line["worker_id"] for line in efo.lines} == {"w-1"}
    assert names[-1] == "stopped"
    assert {"consumer_ready", "shard_started", "draining", "shard_stopped"} <= set(names)
    assert [line for line in efo.lines if line["level"] not in {"debug", "info"}] == []
    assert efo.stderr == ""
    written = [path for place in ("log", "var") for path in files.directory.joinpath(place).rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in written if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in written if path.is_dir()} == {0o700}
    assert "hunter2" not in json.dumps(efo.lines)
    assert "key-1" not in json.dumps(efo.lines)


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


async def test_records_relayed_before_a_stop_are_not_relayed_again(fake, files):
    for count in (100, 200):
        fake.put_many("orders", [(f"key-{number}", b"x") for number in range(100)])
        async with running(files) as efo:
            await efo.until(lambda: relayed(files) >= count)  # noqa: B023 - called within this iteration
            efo.process.send_signal(signal.SIGINT)
            assert await efo.ended() == Exit.OK, efo.stderr
        assert relayed(files) == count


async def refused(files: Files, **environment: str) -> tuple[int, Efo]:
    async with running(files, **environment) as efo:
        code = await efo.ended()
    return code, efo


async def test_a_missing_stream_is_unavailable(files):
    code, efo = await refused(files, EFO_KINESIS__STREAM="ordres")
    assert code == Exit.UNAVAILABLE
    assert "ordres" in efo.stderr
    assert "check its name, the region (us-east-1) and whose credentials these are" in efo.stderr
    assert "Traceback" not in efo.stderr
    assert efo.lines[-1]["event"] == "failed"


async def test_a_port_in_use_is_unavailable(files):
    with socket.create_server(("127.0.0.1", 0)) as other:
        code, efo = await refused(files, EFO_SERVICE__PORT=str(other.getsockname()[1]))
    assert code == Exit.UNAVAILABLE
    assert "cannot listen on 127.0.0.1" in efo.stderr


async def test_a_lease_store_file_that_is_not_a_database_is_unavailable(files):
    (files.directory / "notes.txt").write_text("not a database " * 100)
    code, efo = await refused(files, EFO_LEASES__PATH="notes.txt")
    assert code == Exit.UNAVAILABLE
    assert "notes.txt" in efo.stderr


async def test_a_new_log_under_old_leases_is_refused_until_it_is_adopted(fake, files):
    fake.put_many("orders", [(f"key-{number}", b"x") for number in range(100)])
    async with running(files) as efo:
        await efo.until(lambda: relayed(files) == 100)
        efo.process.send_signal(signal.SIGINT)
        assert await efo.ended() == Exit.OK, efo.stderr
    shutil.rmtree(files.directory / "log")
    code, efo = await refused(files)
    assert code == Exit.UNAVAILABLE
    assert "what was read before is not in this log" in efo.stderr
    assert "Traceback" not in efo.stderr
    adopting = [sys.executable, "-m", "efo_service.cli", "log", "adopt", "--config", str(files.config), "--yes"]
    adopted = await trio.run_process(adopting, cwd=files.directory, capture_stdout=True)
    assert adopted.stdout.count(b"adopted as partition") == 2
    fake.put_many("orders", [(f"key-{number}", b"x") for number in range(50)])
    async with running(files) as efo:
        await efo.until(lambda: relayed(files) == 50)
        efo.process.send_signal(signal.SIGINT)
        assert await efo.ended() == Exit.OK, efo.stderr
