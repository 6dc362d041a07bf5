"""The programs, as a user runs them, with a fake Kinesis."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from orders.ledger import Ledger

SURFACES = ("with_trio", "with_asyncio", "with_sync", "with_processor")
COUNT = 500
BILLS = Counter[str]()
for number in range(COUNT):
    BILLS[f"customer-{number % 10}"] += 100 + number % 7


def batches_of(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield each batch that was billed, as its shard and the number of its orders."""
    for line in lines:
        count, shard_id = re.match(r"billed (\d+) orders of (\S+)", line).groups()
        yield shard_id, int(count)


def read_until_billed(process: subprocess.Popen[str], ledger: Ledger, bills: Counter[str]) -> list[tuple[str, int]]:
    """Return the batches until these bills are in the ledger."""
    batches = []
    for batch in batches_of(process.stdout):
        batches.append(batch)
        if ledger.bills() == bills:
            return batches
    raise AssertionError(f"it ended after {batches}")


def stop(process: subprocess.Popen[str]) -> list[tuple[str, int]]:
    """Stop a consumer by Ctrl-C; return the batches since `read_until_billed`."""
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return [*batches_of(rest.splitlines())]


def put(start) -> Counter[str]:
    """Put the orders once more, and return their bills."""
    producer = start("orders.produce", str(COUNT))
    assert producer.communicate(timeout=120) == (f"put {COUNT} orders\n", None)
    assert producer.returncode == 0
    return BILLS


@pytest.mark.parametrize("surface", SURFACES)
def test_every_surface_bills_what_was_put_and_ends_well_at_ctrl_c(surface, start, tmp_path):
    put(start)
    consumer = start(f"orders.{surface}")
    ledger = Ledger(tmp_path / "bills.sqlite")
    read_until_billed(consumer, ledger, BILLS)
    stop(consumer)
    assert ledger.bills() == BILLS


def test_another_surface_continues_where_the_first_one_stopped(start, tmp_path):
    """Ctrl-C may come between billing and the ack: the next surface gets this batch again, and no other."""
    ledger, bills = Ledger(tmp_path / "bills.sqlite"), Counter[str]()
    consumer = start(f"orders.{SURFACES[0]}")
    for _ in range(2):
        bills += put(start)
        batches = read_until_billed(consumer, ledger, bills)
    batches += stop(consumer)
    bills += put(start)
    consumer = start(f"orders.{SURFACES[1]}")
    of_next_door = read_until_billed(consumer, ledger, bills) + stop(consumer)
    assert sum(count for _, count in of_next_door) <= COUNT + sum(dict(batches).values())
    assert ledger.bills() == bills


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_spark_computes_the_same_bills_from_the_log_of_the_service(start, tmp_path):
    shutil.copy(Path(__file__).parents[1] / "efo.toml", tmp_path)
    put(start)
    service = start("efo_service", "run", "--config", "efo.toml", stdout=subprocess.DEVNULL)
    while relayed(start) < COUNT:
        assert service.poll() is None
    service.send_signal(signal.SIGTERM)
    assert service.wait(timeout=120) == 0
    table, _ = start("orders.spark_job", "var/log").communicate(timeout=300)
    assert dict(re.findall(r"\| *(customer-\d) *\| *(\d+) *\|", table)) == {
        customer: str(cents) for customer, cents in BILLS.items()
    }


def relayed(start) -> int:
    found, _ = start("efo_service", "log", "inspect", "--config", "efo.toml", "--json").communicate(timeout=120)
    topics = json.loads(found)["topics"] if found else []  # there is no log at first
    return sum(partition["end"] for topic in topics for partition in topic["partitions"])
