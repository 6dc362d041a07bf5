"""efo with the native step and with the Python step, in turn: `make bench-native`, some minutes.

The figure is user records per CPU-second of the whole consumer, with leases, checkpoints and metrics, or of `efo run`
into the embedded log. With `arrow` in its name, the handler takes batches as columns; else it looks at each record. The
ratio is that of two windows that follow each other, so that what else the machine does weighs on both. The last line of
stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from statistics import median

from efo.protocol.native import DECODER
from proofs.benchmarks.fake import Server
from proofs.benchmarks.figures.baseline import ratio_of
from proofs.benchmarks.figures.throughput import SHAPES
from proofs.benchmarks.machine import machine
from proofs.benchmarks.page_cache import page_cache
from proofs.benchmarks.readers.running import EFO, Timing, measure
from proofs.benchmarks.readers.service import LOG, measure_service

UNAVAILABLE = 69
STEPS = {"native": "1", "python": "0"}
INTO_LOG = {"log-1kb": ("1kb", 1000), "log-200b": ("200b", 200)}
"""`efo run`: the shape, and the bytes of a record."""
TO_ARROW = {"arrow-1kb": "1kb", "arrow-200b": "200b"}
ALL = {
    **SHAPES,
    **{name: SHAPES[shape] for name, shape in TO_ARROW.items()},
    "single": ["--record-bytes", "200", "--records-per-event", "1"],
    **{name: SHAPES[shape] for name, (shape, _) in INTO_LOG.items()},
}


def measure_shape(shape: str, rounds: int, timing: Timing) -> dict[str, list[float]]:
    """Return the records per CPU-second of each round, by step."""
    rates: dict[str, list[float]] = {step: [] for step in STEPS}
    with Server(ALL[shape]) as server, page_cache() if shape in INTO_LOG else nullcontext() as cache:
        for number in range(rounds):
            for step in list(STEPS)[:: 1 if number % 2 else -1]:
                variables, consumer = {"EFO_NATIVE": STEPS[step]}, server.next_consumer()
                if cache is None:
                    options = ["--columns"] if shape in TO_ARROW else []
                    (window,) = measure(EFO, server.served, consumer, timing, options=options, variables=variables)
                else:
                    cache.fill()
                    (window,) = measure_service(
                        LOG, server.served, consumer, INTO_LOG[shape][1], timing, variables=variables
                    )
                rates[step].append(window.records_per_cpu_second)
    return rates


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-native", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(ALL), default=list(ALL), help="shapes (default: all)")
    parser.add_argument("--rounds", type=int, default=6, help="pairs of windows of each shape (default: 6)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a window (default: 2)")
    options = parser.parse_args()
    if DECODER.step is None:
        print(f"{DECODER.detail}: make native", file=sys.stderr)
        return UNAVAILABLE
    found = {}
    for shape in options.only:
        rates = measure_shape(shape, options.rounds, Timing(options.seconds, windows=1, warm_up=0.7))
        ratio = ratio_of(rates["native"], rates["python"])
        k_records = {step: round(median(values) / 1000, 1) for step, values in rates.items()}
        found[shape] = {key: round(value, 2) for key, value in asdict(ratio).items()} | {"k_records": k_records}
        print(f"{shape}: {found[shape]}", file=sys.stderr, flush=True)
    print(
        json.dumps({"native_to_python": found, "rounds": options.rounds, "machine": machine(seconds=options.seconds)})
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
