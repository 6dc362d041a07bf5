"""Many streams in one file, and SIGHUP, with real processes."""

from __future__ import annotations

import signal

import httpx2
import pytest
import trio

from efo_service.exit_codes import Exit
from tests.e2e.running import TIMEOUT, Efo, Files, relayed, running, size_of

pytestmark = pytest.mark.e2e


@pytest.fixture
def write(fake, files):
    """Write the configuration of some streams, with the keys of their [relay]."""
    head = files.config.read_text().replace('stream = "orders"', "")
    for name in ("clicks", "visits"):
        fake.create_stream(name, shards=1)

    def write(**streams: str) -> None:
        tables = "".join(f"\n[streams.{name}.relay]\n{keys}\n" for name, keys in streams.items())
        files.config.write_text(head + tables)

    return write


def topic_size(files: Files, topic: str) -> int:
    return sum(map(size_of, files.directory.glob(f"log/{topic}/**/*.arrow")))


async def get(url: str, path: str) -> tuple[int, dict]:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=TIMEOUT) as client:
        response = await client.get(path)
    return response.status_code, response.json()


async def ready(url: str) -> None:
    while (await get(url, "/readyz"))[0] != 200:  # noqa: ASYNC110 - the other process provides no event
        await trio.sleep(0.05)


async def shards_by_stream(url: str) -> list[tuple[str, int]]:
    return [(stream["name"], len(stream["shards"])) for stream in (await get(url, "/status"))[1]["streams"]]


async def count(efo: Efo, event: str, number: int) -> list[dict]:
    await efo.until(lambda: sum(line["event"] == event for line in efo.lines) >= number)
    return [line for line in efo.lines if line["event"] == event]


async def test_sighup_adds_changes_and_removes_streams_without_touching_the_others(fake, files, write):
    write(orders="", clicks="")
    for name in ("orders", "clicks", "visits"):
        fake.put_many(name, [(f"key-{number}", b"x") for number in range(100)])
    async with running(files) as efo:
        url = (await efo.logged("started"))["url"]
        await ready(url)
        await efo.until(lambda: relayed(files) == 200)
        assert await shards_by_stream(url) == [("orders", 2), ("clicks", 1)]
        status = (await get(url, "/status"))[1]
        assert (status["worker_id"], status["problems"]) == ("w-1", [])
        # One is added, one gets another setting.
        write(orders="", clicks="commit_records = 7", visits="")
        efo.process.send_signal(signal.SIGHUP)
        (line,) = await count(efo, "reloaded", 1)
        assert (line["added"], line["changed"], line["unchanged"]) == (["visits"], ["clicks"], ["orders"])
        await efo.until(lambda: topic_size(files, "visits") == 100)
        fake.put_many("clicks", [("key", b"y")] * 10)
        await efo.until(lambda: topic_size(files, "clicks") == 110)
        await ready(url)
        # A wrong file changes nothing.
        write(orders="commit_records = 0")
        efo.process.send_signal(signal.SIGHUP)
        (line,) = await count(efo, "reload_failed", 1)
        assert "[streams.orders.relay] commit_records" in line["message"]
        assert len((await get(url, "/status"))[1]["streams"]) == 3
        # Two are removed; the first one never noticed anything.
        write(orders="")
        efo.process.send_signal(signal.SIGHUP)
        await count(efo, "reloaded", 2)
        stopped = await count(efo, "shard_stopped", 3)  # that of clicks, before and after its change, and of visits
        assert sorted(line["stream"] for line in stopped) == ["clicks", "clicks", "visits"]
        fake.put_many("orders", [("key", b"z")] * 10)
        await efo.until(lambda: topic_size(files, "orders") == 110)
        assert [line["stream"] for line in efo.lines if line["event"] == "consumer_ready"].count("orders") == 1
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
    assert all("stream" in line for line in efo.lines if line["event"].startswith(("shard_", "consumer_")))


async def test_a_stream_that_fails_does_not_end_the_others(fake, files, write):
    write(orders="", missing="")
    fake.put_many("orders", [(f"key-{number}", b"x") for number in range(100)])
    async with running(files) as efo:
        url = (await efo.logged("started"))["url"]
        failed = (await count(efo, "stream_failed", 2))[0]
        assert failed["stream"] == "missing"
        await efo.until(lambda: relayed(files) == 100)
        code, body = await get(url, "/readyz")
        assert code == 503
        assert all(problem.startswith("missing: ") for problem in body["problems"])
        fake.create_stream("missing", shards=1)
        efo.process.send_signal(signal.SIGHUP)  # the operator has removed the cause
        await ready(url)
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr


@pytest.mark.parametrize("policy", ["stop", "isolate"])
async def test_a_stream_that_is_deleted_while_it_is_read_is_a_problem_of_its_own(fake, files, write, policy):
    write(orders="", clicks="")
    async with running(files, EFO_CONSUMER__ON_SERVICE_ERROR=policy) as efo:
        url = (await efo.logged("started"))["url"]
        await ready(url)
        fake.delete_stream("clicks")
        (line,) = await count(efo, {"stop": "stream_failed", "isolate": "shard_isolated"}[policy], 1)
        assert line["stream"] == "clicks"
        fake.put_many("orders", [("key", b"x")] * 100)
        await efo.until(lambda: topic_size(files, "orders") == 100)
        code, status = await get(url, "/status")
        assert code == 200
        assert status["problems"] != []
        assert all(problem.startswith("clicks: ") for problem in status["problems"])
        # The problem of an isolated shard names this event.
        assert "ResourceNotFoundException" in str([line, status["problems"]])
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr


async def test_workers_reload_when_their_supervisor_gets_the_signal(fake, files, write):
    write(orders="")
    fake.put_many("clicks", [("key", b"x")] * 50)
    async with running(files, "--workers", "2", EFO_LEASES__FAILOVER_SECONDS="3") as efo:
        url = (await efo.logged("supervisor_started"))["url"]
        await ready(url)
        write(orders="", clicks="")
        efo.process.send_signal(signal.SIGHUP)
        assert {line["worker_id"] for line in await count(efo, "reloaded", 2)} == {"w-1-1", "w-1-2"}
        await efo.until(lambda: topic_size(files, "clicks") == 50)
        await ready(url)
        # Leases may be on their way from one worker to the other.
        while await shards_by_stream(url) != [("orders", 2), ("clicks", 1)]:  # noqa: ASYNC110 - as in ready
            await trio.sleep(0.1)
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
