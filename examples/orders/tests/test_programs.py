"""The programs, as a user runs them, with a fake Kinesis."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from orders.ledger import Ledger

DOORS = ("with_trio", "with_asyncio", "with_sync", "with_processor")
COUNT = 500
BILLS = Counter[str]()
for number in range(COUNT):
    BILLS[f"customer-{number % 10}"] += 100 + number % 7


def read_until_billed(process: subprocess.Popen[str], count: int) -> None:
    billed = 0
    for line in process.stdout:
        billed += int(re.match(r"billed (\d+) orders", line)[1])
        if billed >= count:
            return
    raise AssertionError(f"it ended after {billed} orders")


@pytest.mark.parametrize("door", DOORS)
def test_every_door_bills_what_was_put_and_ends_well_at_ctrl_c(door, start, tmp_path):
    producer = start("orders.produce", str(COUNT))
    assert producer.communicate(timeout=120) == (f"put {COUNT} orders\n", None)
    assert producer.returncode == 0
    consumer = start(f"orders.{door}")
    read_until_billed(consumer, COUNT)
    consumer.send_signal(signal.SIGINT)
    consumer.communicate(timeout=120)
    assert consumer.returncode == 0
    assert Ledger(tmp_path / "bills.sqlite").bills() == BILLS


def test_another_door_continues_where_the_first_one_stopped(start, tmp_path):
    for door in DOORS[:2]:
        start("orders.produce", str(COUNT)).communicate(timeout=120)
        consumer = start(f"orders.{door}")
        read_until_billed(consumer, COUNT)
        consumer.send_signal(signal.SIGINT)
        rest, _ = consumer.communicate(timeout=120)
        assert rest == ""  # nothing was billed twice
    assert Ledger(tmp_path / "bills.sqlite").bills() == BILLS + BILLS


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_spark_computes_the_same_bills_from_the_log_of_the_service(start, tmp_path):
    shutil.copy(Path(__file__).parents[1] / "efo.toml", tmp_path)
    start("orders.produce", str(COUNT)).communicate(timeout=120)
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
