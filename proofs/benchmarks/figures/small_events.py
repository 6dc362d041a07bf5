"""Events of one record: what they cost, and how long they take from the put to the handler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from statistics import quantiles

from proofs.benchmarks.figures.results import NotMeasured, Value, of_windows
from proofs.benchmarks.readers.running import EFO, ClientError, Timing, client, measure
from proofs.benchmarks.readers.samples import Window

SHARDS, RATE, CONSUMER = 50, 1000, "bench"
ENOUGH = 0.9
"""Share of the rate below which records are late because of the server, not of efo."""
PUT_SERVER = "proofs.benchmarks.readers.put_server"


def small_events(timing: Timing) -> Mapping[str, Value]:
    """Put 1,000 records/s into 50 shards. The server is a process of its own, on the same machine."""
    arguments = [str(SHARDS), str(RATE), CONSUMER]
    with client(PUT_SERVER, arguments, 120 + 2 * timing.total) as server:
        assert server.stdout is not None
        if not (line := server.stdout.readline()):
            raise ClientError("it served nothing")
        once = replace(timing, warm_up=timing.warm_up + 2)
        served = json.loads(line)
        costs = measure(EFO, served, CONSUMER, once)  # of a process that does not note delays
        windows = measure(EFO, served, CONSUMER, once, options=["--delays"])
    cost: dict[str, Value] = {
        "event_cpu_ms": of_windows(costs, lambda window: window.cpu_seconds * 1000 / window.events)
    }
    slowest = min(window.records_per_second for window in windows)
    if slowest < RATE * ENOUGH:
        why = f"only {slowest:.0f} of {RATE} records/s arrived: the machine is too busy"
        return cost | dict.fromkeys(("latency_p50_ms", "latency_p99_ms"), NotMeasured(why))
    return cost | {
        "latency_p50_ms": of_windows(windows, lambda window: percentile(window, 50)),
        "latency_p99_ms": of_windows(windows, lambda window: percentile(window, 99)),
    }


def percentile(window: Window, percent: int) -> float:
    """Return a percentile of the delays of a window."""
    return quantiles(window.delays_ms, n=100)[percent - 1]
