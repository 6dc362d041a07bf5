"""Several processes of one consumer: how much faster they read than one, and at what cost per record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from efo.consumer.processes import usable_cores
from proofs.benchmarks.fake import Server
from proofs.benchmarks.figures.results import NotMeasured, Value, measured
from proofs.benchmarks.figures.throughput import ROUNDS, SHAPES
from proofs.benchmarks.readers.running import EFO, Timing, measure
from proofs.benchmarks.readers.samples import Window

SHARDS = 8
BALANCED = 3.0
"""More seconds of warm-up: until the processes share the shards evenly."""


def cores(timing: Timing) -> dict[str, Value]:
    """Read in 1, 2 and, if there are cores, 4 processes, in turn; compare windows of a round."""
    usable = usable_cores()
    counts = [1, 2, *([4] if usable > 4 else [])]  # noqa: PLR2004 - the load server needs a core, too
    windows: dict[int, list[Window]] = {count: [] for count in counts}
    once = replace(timing, windows=1, warm_up=timing.warm_up + BALANCED)
    with Server([*SHAPES["1kb"], "--shards", str(SHARDS)]) as server:
        for _ in range(ROUNDS):
            for count in counts:
                options = ["--processes", str(count)]
                consumer = server.next_consumer()
                windows[count] += measure(EFO, server.served, consumer, once, options=options, processes=count)
    costs = [one.records_per_cpu_second / two.records_per_cpu_second for one, two in _pairs(windows[1], windows[2])]
    return {
        "cores_2_speedup": _speed_up(windows, 2, usable),
        "cores_4_speedup": _speed_up(windows, 4, usable),
        "cores_2_cpu_per_record": measured(costs),
    }


def _speed_up(windows: dict[int, list[Window]], processes: int, usable: int) -> Value:
    if usable < processes + 1:
        return NotMeasured(f"needs {processes + 1} cores, one for the server; this machine has {usable}")
    pairs = _pairs(windows[1], windows[processes])
    return measured([several.records_per_second / one.records_per_second for one, several in pairs])


def _pairs(ones: Sequence[Window], others: Sequence[Window]) -> list[tuple[Window, Window]]:
    return list(zip(ones, others, strict=True))
