"""A service meets a record that its sink cannot take: the shard is isolated, the others go on, nothing is lost."""

from __future__ import annotations

import json
import signal

import httpx2
import pytest

from efo.protocol.aggregation import AggregateEntry, aggregate
from efo_service.exit_codes import Exit
from tests.e2e.running import relayed, running

pytestmark = pytest.mark.e2e

POISON = aggregate([AggregateEntry("p" * 100_000, b"")] * 25_000)
UTF8 = {"EFO_RELAY__SINK": "jsonl", "EFO_RELAY__JSONL_FILE": "lines", "EFO_RELAY__JSONL_ENCODING": "utf-8"}


def put_poison(fake) -> None:
    """Put 100 good records into both shards, and poison with good ones around it into one."""
    fake.put_many("orders", [(f"key-{number}", b"%d" % number) for number in range(100)])
    fake.put("orders", "poisoned", b"before")
    fake.put("orders", "poisoned", POISON)
    fake.put("orders", "poisoned", b"after")


def lines_of(files) -> list[dict]:
    path = files.directory / "lines"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_poison_record_isolates_its_shard_and_the_others_go_on(fake, files):
    put_poison(fake)
    async with running(files, **UTF8, EFO_CONSUMER__SHARD_COOLDOWN_SECONDS="3") as efo:
        url = (await efo.logged("started"))["url"]
        isolated = await efo.logged("shard_isolated")
        shard_id = isolated["shard_id"]
        async with httpx2.AsyncClient(base_url=url) as client:
            status = (await client.get("/status")).json()
            metrics = (await client.get("/metrics")).text
        fake.put_many("orders", [(f"late-{number}", b"late") for number in range(100)])
        await efo.until(lambda: "late" in [line["value"] for line in lines_of(files)])
        await efo.until(lambda: [line["event"] for line in efo.lines].count("shard_isolated") >= 2)
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
    [reported, *_] = status["isolated"]
    assert (reported["shard_id"], reported["error_type"]) == (shard_id, "record_refused")
    assert "efo_shard_isolations_total" in metrics
    assert (isolated["error_type"], "its value is not UTF-8" in isolated["detail"]) == ("record_refused", True)
    assert (await efo.logged("aggregate_damaged"))["shard_id"] == shard_id
    values = [line["value"] for line in lines_of(files)]
    assert set(map(str, range(100))) | {"before"} <= set(values)
    assert "after" not in values


async def test_a_poison_record_is_a_dead_letter_if_there_is_a_topic_for_it(fake, files):
    put_poison(fake)
    async with running(files, **UTF8, EFO_RELAY__DEAD_LETTERS="refused") as efo:
        await efo.until(lambda: "after" in [line["value"] for line in lines_of(files)])
        refused = await efo.logged("record_dead_lettered")
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
    assert (refused["error_type"], "not UTF-8" in refused["detail"]) == ("record_refused", True)
    assert list(files.directory.glob("log/refused/*/*.arrow"))


async def test_the_log_takes_a_poison_record_whole(fake, files):
    put_poison(fake)
    async with running(files) as efo:
        await efo.until(lambda: relayed(files) == 103)
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
