"""The core, measured: renewal at scale and back-pressure in virtual time, and what a CPU-second takes from the wire.

Prints tables and, last, one JSON line. `python -m proofs.benchmarks.bench_core --help` for smaller runs.
"""

import argparse
import json
import sys
import time

import trio
import trio.testing

from efo.settings import STREAM_WINDOW
from proofs.benchmarks.data_path import data_path
from proofs.benchmarks.subscribed import open_subscribed

SHARD_RATE = 2 * 2**20
RECORD, RECORDS = 10_000, 20


def main():
    parser = argparse.ArgumentParser(prog="bench_core", description=__doc__.partition("\n")[0])
    parser.add_argument("--shards", type=int, default=1000, help="of the renewal's stream (default: 1000)")
    parser.add_argument("--budget", type=float, default=20.0, help="subscribes per second (default: 20)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="virtual time of the renewal (default: 3600)")
    options = parser.parse_args()
    renewal = virtually(renewals, options.shards, options.budget, options.seconds)
    table("Renewal over HTTP/2 (virtual time)", [renewal])
    pressure = [virtually(back_pressure, rate) for rate in (0.1, 1.0, 100.0)]
    table("Back-pressure: a shard at 2 MiB/s beside one whose reader keeps up (virtual time)", pressure)
    path = [row for size in (200, 1000) for row in data_path(size)]
    table("The data path, one core", path)
    print(json.dumps({"renewal": renewal, "back_pressure": pressure, "data_path": path}))
    return int(bool(renewal["longest_gap_s"] > 1.0 or renewal["shards_wrong"] or renewal["repeated"]))


def virtually(function, *arguments):
    return trio.run(function, *arguments, clock=trio.testing.MockClock(autojump_threshold=0))


async def renewals(shards, budget, seconds):
    """Each shard gets a record a minute; all are read until the end."""
    began = time.process_time()
    async with open_subscribed(shards, budget, max_concurrent_streams=100) as many:
        many.subscribe_all()
        await many.put_for(seconds, every=60.0)
        await trio.sleep(60)
        wrong, repeated = many.unread()
        started = shards / budget + 60
        return {
            "shards": shards,
            "budget_per_s": budget,
            "connections": many.watch.connections,
            "longest_gap_s": round(many.watch.longest_gap, 3),
            "repeated": repeated,
            "shards_wrong": wrong,
            "longest_delay_s": many.reading.delays_after(started),
            "subscribes": many.watch.accepted.total(),
            "virtual_s": seconds,
            "cpu_s": round(time.process_time() - began, 1),
        }


async def back_pressure(rate, seconds=200.0):
    """One shard is read at `rate` records per second, its neighbour as it comes; before either is due for renewal."""
    slow, neighbour = "shardId-000000000000", "shardId-000000000001"
    load = {"record_bytes": RECORD, "records_per_event": RECORDS, "rate": SHARD_RATE / RECORD}
    async with open_subscribed(2, 20.0, load=load) as both:
        both.subscribe(0, slow, pause=1 / rate)
        both.subscribe(1, neighbour)
        peak = 0
        for _ in range(int(seconds * 10)):
            await trio.sleep(0.1)
            peak = max(peak, both.caller.answers[slow].held)
        return {
            "reader_records_per_s": rate,
            "records_taken": len(both.reading.numbers[slow]),
            "peak_bytes": peak,
            "bound_bytes": STREAM_WINDOW + RECORDS * RECORD * 3 // 2,
            "silences": both.watch.ended["silence"],
            "neighbour_mib_per_s": round(len(both.reading.numbers[neighbour]) * RECORD / seconds / 2**20, 2),
        }


def table(title, rows):
    names = list(rows[0])
    cells = [names, *([str(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[n]) for line in cells) for n in range(len(names))]
    print(f"\n{title}\n")
    for line in cells:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
