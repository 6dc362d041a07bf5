"""Shows where the CPU time of efo's data path goes, by module: `python -m proofs.benchmarks.where [SHAPE]`.

A timer of the process's own CPU time interrupts it every few milliseconds and counts the function that runs. C code
counts for the Python function that called it: the JSON decoder for `efo/protocol/messages.py`.
Unlike a tracing profiler, it does not make small functions look expensive.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from proofs.benchmarks.fake import Server
from proofs.benchmarks.figures.throughput import SHAPES
from proofs.benchmarks.readers.running import EFO
from proofs.paths import ROOT

EVERY = 0.001
"""Seconds of CPU time between two samples, if the system's timer is as fine as that. On Linux it is often 4 ms."""
WARM_UP = 3.0
"""Seconds of CPU time before the counting starts: imports, connections, the first checkpoints."""


def profiled(arguments: list[str], seconds: float) -> None:
    """Run efo's reader in this process for some seconds of CPU time; print the counts as JSON on stderr."""
    counts: collections.Counter[str] = collections.Counter()

    def count(_signal: int, frame: FrameType | None) -> None:
        now = time.process_time()
        if now > WARM_UP and frame is not None:
            counts[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1
        if now > WARM_UP + seconds:
            sys.stderr.write(json.dumps(counts) + "\n")
            os._exit(0)

    signal.signal(signal.SIGPROF, count)
    signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
    sys.argv = [EFO, *arguments]
    runpy.run_module(EFO, run_name="__main__", alter_sys=True)


def module_of(place: str) -> str:
    """Return the module of this project, or the package, that a file belongs to."""
    path = Path(place)
    if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
        return str(path.relative_to(ROOT))
    if "site-packages" in path.parts:
        return path.parts[path.parts.index("site-packages") + 1]
    return "Python"


def lines_of(counts: Mapping[str, int], functions: int = 4) -> list[str]:
    """Return the share of each module, and those of its largest functions."""
    total = sum(counts.values())
    modules: dict[str, collections.Counter[str]] = {}
    for place, number in counts.items():
        file, _, function = place.rpartition(":")
        modules.setdefault(module_of(file), collections.Counter())[function] += number
    lines = []
    for module, found in sorted(modules.items(), key=lambda item: -item[1].total()):
        share = found.total() / total
        if share >= 0.01:  # noqa: PLR2004 - less is noise
            largest = ", ".join(f"{name} {number / total:.0%}" for name, number in found.most_common(functions))
            lines.append(f"{share:5.0%}  {module:<44} {largest}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proofs.benchmarks.where", description="Show where CPU time goes.")
    parser.add_argument("shape", nargs="?", choices=list(SHAPES), default="1kb")
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU time that is sampled (default: 10)")
    parser.add_argument("--as-reader", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_reader:
        profiled(options.as_reader, options.seconds)
        return
    with Server(SHAPES[options.shape]) as server, tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "proofs.benchmarks.where", "--seconds", str(options.seconds)]
        command += ["--as-reader", json.dumps(server.served), server.next_consumer()]
        environment = os.environ | {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(  # noqa: S603 - this module
            command, cwd=directory, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True
        )
    print("\n".join(lines_of(json.loads(done.stderr.splitlines()[-1]))))


if __name__ == "__main__":
    main()
