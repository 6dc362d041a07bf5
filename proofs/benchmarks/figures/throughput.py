"""The data path on one core, through leases, checkpoints and metrics; and how it grows with the number of shards."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from proofs.benchmarks.fake import Server
from proofs.benchmarks.figures.results import Measured, measured, of_windows
from proofs.benchmarks.readers.running import EFO, Timing, measure
from proofs.benchmarks.readers.samples import Window

SHAPES: Final[Mapping[str, list[str]]] = {
    "1kb": ["--record-bytes", "1000", "--records-per-event", "500"],
    "200b": ["--record-bytes", "200", "--records-per-event", "500"],
    "kpl": ["--record-bytes", "100", "--records-per-event", "50", "--aggregated", "100"],
}
"""Options of the load server. Events of 500, 100 and 500 kB of payload."""
ROUNDS: Final = 3
SHARDS: Final = (1, 100, 1000)
SMALL_EVENTS: Final = ["--record-bytes", "200", "--records-per-event", "100"]
PERIOD: Final = 5.0
"""Seconds between two checkpoints, and between two exports of metrics: a window has one of each, or more."""


def data_path(timing: Timing) -> dict[str, Measured]:
    """Read each shape at full speed."""
    windows = {}
    for shape, options in SHAPES.items():
        with Server(options) as server:
            windows[shape] = measure(EFO, server.served, server.next_consumer(), timing)
    return {
        "data_path_1kb_mb_per_cpu_s": of_windows(windows["1kb"], lambda window: window.mb_per_cpu_second),
        "data_path_200b_k_records_per_cpu_s": of_windows(windows["200b"], k_records_per_cpu_second),
        "data_path_kpl_k_records_per_cpu_s": of_windows(windows["kpl"], k_records_per_cpu_second),
    }


def k_records_per_cpu_second(window: Window) -> float:
    """Thousands of user records per second of CPU time."""
    return window.records_per_cpu_second / 1000


def linearity(timing: Timing) -> dict[str, Measured]:
    """Read the same events over 1, 100 and 1,000 shards, in turn; compare CPU times of a round.

    A window begins when all shards are read: before, the first of a thousand have the processor for themselves.
    """
    costs: dict[int, list[float]] = {shards: [] for shards in SHARDS}
    with ExitStack() as stack:
        servers = {shards: stack.enter_context(Server([*SMALL_EVENTS, "--shards", str(shards)])) for shards in SHARDS}
        for _ in range(ROUNDS):
            for shards, server in servers.items():
                once = replace(timing, windows=1, seconds=max(timing.seconds, PERIOD), shards=shards)
                (window,) = measure(EFO, server.served, server.next_consumer(), once)
                costs[shards].append(1 / window.records_per_cpu_second)
    return {
        f"linearity_{shards}_shards": measured(
            [cost / of_one for cost, of_one in zip(costs[shards], costs[1], strict=True)]
        )
        for shards in SHARDS[1:]
    }
