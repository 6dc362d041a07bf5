"""Measures the core: renewal at scale and back-pressure in virtual time, and the data path's throughput per CPU-second.

Prints tables; the last line is JSON. `python -m proofs.benchmarks.core --help` shows options for smaller runs.
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
RECORD_BYTES, RECORDS_PER_EVENT = 10_000, 20


def main():
    parser = argparse.ArgumentParser(prog="make bench-core", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--shards", type=int, default=1000, help="shards of the stream in the renewal benchmark (default: 1000)"
    )
    parser.add_argument("--budget", type=float, default=20.0, help="subscribe budget, calls per second (default: 20)")
    parser.add_argument(
        "--seconds", type=float, default=3600.0, help="virtual duration of the renewal benchmark (default: 3600)"
    )
    options = parser.parse_args()
    renewal = run_virtual(renewals, options.shards, options.budget, options.seconds)
    table("Renewal over HTTP/2 (virtual time)", [renewal])
    pressure = [run_virtual(back_pressure, rate) for rate in (0.1, 1.0, 100.0)]
    table(
        "Back-pressure: a shard at 2 MiB/s with a slow reader, beside one whose reader keeps up (virtual time)",
        pressure,
    )
    path = [row for size in (200, 1000) for row in data_path(size)]
    table("Data path, one core", path)
    print(json.dumps({"renewal": renewal, "back_pressure": pressure, "data_path": path}))
    return int(bool(renewal["longest_gap_s"] > 1.0 or renewal["shards_wrong"] or renewal["repeated"]))


def run_virtual(function, *arguments):
    return trio.run(function, *arguments, clock=trio.testing.MockClock(autojump_threshold=0))


async def renewals(shards, budget, seconds):
    """Put a record per minute into each shard, read all of them, and return the gaps in subscriptions."""
    began = time.process_time()
    async with open_subscribed(shards, budget, max_concurrent_streams=100) as subscribed:
        subscribed.subscribe_all()
        await subscribed.put_for(seconds, every=60.0)
        await trio.sleep(60)
        wrong, repeated = subscribed.unread()
        started = shards / budget + 60
        return {
            "shards": shards,
            "budget_per_s": budget,
            "connections": subscribed.watch.connections,
            "longest_gap_s": round(subscribed.watch.longest_gap, 3),
            "repeated": repeated,
            "shards_wrong": wrong,
            "longest_delay_s": subscribed.reading.delays_after(started),
            "subscribes": subscribed.watch.accepted.total(),
            "virtual_s": seconds,
            "cpu_s": round(time.process_time() - began, 1),
        }


async def back_pressure(rate, seconds=200.0):
    """Read one shard at `rate` records per second and its neighbour at full speed.

    The run ends before a subscription is due for renewal.
    """
    slow, neighbour = "shardId-000000000000", "shardId-000000000001"
    load = {"record_bytes": RECORD_BYTES, "records_per_event": RECORDS_PER_EVENT, "rate": SHARD_RATE / RECORD_BYTES}
    async with open_subscribed(2, 20.0, load=load) as subscribed:
        subscribed.subscribe(0, slow, pause=1 / rate)
        subscribed.subscribe(1, neighbour)
        peak = 0
        for _ in range(int(seconds * 10)):
            await trio.sleep(0.1)
            peak = max(peak, subscribed.caller.event_streams[slow].held)
        return {
            "reader_records_per_s": rate,
            "records_taken": len(subscribed.reading.numbers[slow]),
            "peak_bytes": peak,
            "bound_bytes": STREAM_WINDOW + RECORDS_PER_EVENT * RECORD_BYTES * 3 // 2,
            "silences": subscribed.watch.ended["silence"],
            "neighbour_mib_per_s": round(
                len(subscribed.reading.numbers[neighbour]) * RECORD_BYTES / seconds / 2**20, 2
            ),
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
