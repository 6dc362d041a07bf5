"""Every example that is the body of a function, as in docs/consuming.md, run as it stands there, in virtual time."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from functools import partial

import pytest
import trio

import efo
from efo.testing import FakeKinesis
from tools.docs import ledger
from tools.docs.examples import examples
from tools.docs.pages import read_pages

BODIES = [one.block for one in examples(read_pages()) if one.kind == "body"]
RECORDS = [b"order %d" % n for n in range(100)]
POISON = b"poison"


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in BODIES])
async def test_the_example_does_what_the_page_says(block, autojump_clock, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # leases are in a file of the working directory, unless an example says otherwise
    code, poison = block.text, block.mark == "example: poison"
    billed, archived = [], []
    if "in_thread" in code:  # a clock that jumps does not wait for threads
        autojump_clock.autojump_threshold, autojump_clock.rate = math.inf, 1.0

    async def bill(record: efo.Record, batch: efo.Batch) -> None:
        assert isinstance(batch, efo.Batch)
        await trio.lowlevel.checkpoint()
        if record.data == POISON:
            raise ValueError("no order")
        billed.append(record.data)
        if "in_thread" in code and len(billed) == len(RECORDS):
            running.cancel()

    async def archive(*what: object) -> None:
        await trio.lowlevel.checkpoint()
        archived.append(what)

    async with FakeKinesis() as fake:
        fake.create_stream("orders", shards=2)
        fake.create_stream("clicks")
        fake.put_many("orders", [(f"customer-{n % 9}", data) for n, data in enumerate(RECORDS)])
        if poison:
            fake.put("orders", "customer-1", POISON)
        names = {
            "efo": efo,
            "trio": trio,
            "partial": partial,
            "Sequence": Sequence,
            "stream": fake.kinesis("orders"),
            "clicks": fake.kinesis("clicks"),
            "leases": efo.leases.MemoryLeaseStore(),
            "bill": bill,
            "archive": archive,
        }
        exec(f"async def example():\n{textwrap.indent(code, '    ')}", names)  # noqa: S102 - it is our own page
        with trio.move_on_after(60) as running:
            await names["example"]()
    remaining = [data for data in RECORDS if data not in billed]
    if "HOLD" in code:
        assert len(remaining) < 2 * 25  # less than what is gathered, of each of the two shards
    else:
        assert remaining == []
    assert len(billed) == len(set(billed))
    if "archive" in code:
        ((shard_id, record, error),) = archived
        assert (shard_id[:8], record.data, error) == ("shardId-", POISON, "ValueError('no order')")
    if "print" in code:
        assert ("orders of" if "to_arrow" in code else "ValueError") in capsys.readouterr().out
    ledger.note(block.place)
