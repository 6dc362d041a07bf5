"""Every example of docs/producing.md, run as it stands there, in virtual time."""

from __future__ import annotations

import textwrap

import pytest

import efo
from efo.producer.settings import ProducerSettings
from efo.testing import FakeKinesis
from tests.paths import ROOT
from tools.docs import ledger
from tools.docs.examples import examples
from tools.docs.pages import read_pages

BODIES = [one.block for one in examples(read_pages()) if one.kind == "producer"]
ORDERS = [(f"customer-{n % 9}", b"order %d" % n) for n in range(50)]


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in BODIES])
async def test_the_example_does_what_the_page_says(block, autojump_clock, capsys):
    async with FakeKinesis() as fake:
        fake.create_stream("orders", shards=2, distribution="AUTO" if ".put(payload)" in block.text else None)
        names = {"efo": efo, "stream": fake.kinesis("orders"), "orders": ORDERS}
        exec(f"async def example():\n{textwrap.indent(block.text, '    ')}", names)  # noqa: S102 - it is our own page
        await names["example"]()
        stored = sorted(record.data for records in fake.records("orders").values() for record in records)
    assert stored == ([b"order 7"] if "order 7" in block.text else sorted(data for _, data in ORDERS))
    if "print(result" in block.text:
        shard_id, number, attempts, latency = capsys.readouterr().out.split()
        assert (shard_id[:8], number.isdigit(), attempts, round(float(latency), 1)) == ("shardId-", True, "1", 0.1)
    ledger.note(block.place)


def test_the_page_names_the_defaults():
    page = (ROOT / "docs/producing.md").read_text()
    settings = ProducerSettings()
    assert f"`linger_seconds` ({settings.linger_seconds:g} s)" in page
    assert f"Up to {settings.max_in_flight} requests are in flight" in page
    assert f"`max_buffered_bytes`, {settings.max_buffered_bytes // 2**20} MiB" in page
    assert f"`aggregate_bytes` ({settings.aggregate_bytes:,})" in page
    assert (settings.delivery_timeout_seconds, settings.close_timeout_seconds, settings.max_request_bytes) == (
        120.0,
        5.0,
        2**20,
    )
