"""`python -m proofs.simulation --seeds 200`: run the worlds of seeds, print a table and, last, one line of JSON.

For a failing seed it prints the broken guarantees, the end of the story, and the command that repeats the seed.

Exit status: 0 if no seed failed, 1 if one did, or if a run of 2,000 seeds did not reach every coverage mark.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from proofs.simulation.marks import MARKS, REQUIRED_SEEDS, count, never_reached
from proofs.simulation.run import Outcome, run

PROGRESS_INTERVAL = 5.0
MAX_DETAILED_FAILURES = 5
"""How many failing seeds are printed with all problems and the story. The others: the first problem only."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _options(arguments)
    if options.seed is not None:
        return _run_one(options.seed, options.lines)
    started_at = time.monotonic()
    outcomes: list[Outcome] = []
    failed: list[int] = []
    progress_at = started_at
    for outcome in _run_all(range(options.first, options.first + options.seeds), options.jobs):
        outcomes.append(outcome)
        if outcome.problems:
            failed.append(outcome.seed)
            _print_failure(outcome, detailed=len(failed) <= MAX_DETAILED_FAILURES)
        if time.monotonic() - progress_at > PROGRESS_INTERVAL:
            progress_at = time.monotonic()
            print(f"{len(outcomes)} of {options.seeds} seeds, {len(failed)} failed", file=sys.stderr, flush=True)
    summary = _summary(outcomes, time.monotonic() - started_at)
    if not options.json:
        _print_table(summary, outcomes, failed)
    misses = bool(summary["marks_never_reached"]) and len(outcomes) >= REQUIRED_SEEDS
    if misses:
        names = ", ".join(summary["marks_never_reached"])
        print(f"{len(outcomes)} seeds did not reach: {names}", file=sys.stderr, flush=True)
    print(json.dumps(summary), flush=True)
    return 1 if failed or misses else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m proofs.simulation",
        description="Run whole consumers on a fake Kinesis under virtual time. Each seed is one simulation world.",
        epilog="example: make sim SEEDS=500; make sim ARGS='--seed 17' repeats one world and prints its story",
    )
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default: 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--seed", type=int, help="run only this seed, and print its story")
    parser.add_argument(
        "--lines", type=int, default=60, help="how many lines of the story to print, from the end (default: 60)"
    )
    parser.add_argument("--json", action="store_true", help="print only the line of JSON")
    options = parser.parse_args(arguments)
    for name in ("seeds", "jobs", "lines"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: expected 1 or more")
    return options


def _run_all(seeds: Sequence[int], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(run, seeds)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the child processes too
    with ProcessPoolExecutor(min(jobs, len(seeds)), mp_context=get_context("spawn")) as processes:
        try:
            yield from processes.map(run, seeds, chunksize=5)
        except BaseException:
            processes.shutdown(wait=False, cancel_futures=True)
            raise


def _run_one(seed: int, lines: int) -> int:
    outcome = run(seed, lines=lines, digest=True, keep_story=True)
    print(outcome.story)
    print(f"digest {outcome.digest}")
    if outcome.problems:
        _print_failure(outcome, detailed=False)
    print(json.dumps(_summary([outcome], outcome.seconds)), flush=True)
    return 1 if outcome.problems else 0


def _print_failure(outcome: Outcome, *, detailed: bool) -> None:
    """Print the problems, the end of the story, and the command that repeats the seed."""
    print(f"\nseed {outcome.seed} failed:")
    for problem in outcome.problems if detailed else outcome.problems[:1]:
        print(f"  - {problem}")
    if detailed:
        print("the end of its story, with virtual seconds:")
        print(outcome.story)
    print(f"repeat it: make sim ARGS='--seed {outcome.seed}'", flush=True)


def _summary(outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    tallies = [outcome.tally for outcome in outcomes]
    marks = count(outcome.marks for outcome in outcomes)
    return {
        "seeds": len(outcomes),
        "failures": sum(bool(outcome.problems) for outcome in outcomes),
        "records": sum(outcome.records for outcome in outcomes),
        "splits": sum(tally.splits for tally in tallies),
        "merges": sum(tally.merges for tally in tallies),
        "faults": sum(tally.faults for tally in tallies),
        "crashes": sum(tally.crashes for tally in tallies),
        "duplicates_unexplained": sum(outcome.unexplained for outcome in outcomes),
        "virtual_hours": round(sum(tally.virtual_seconds for tally in tallies) / 3600, 1),
        "seconds": round(seconds, 1),
        "marks_never_reached": never_reached(marks),
        "marks": marks,
    }


def _print_table(summary: dict[str, Any], outcomes: Sequence[Outcome], failed: Sequence[int]) -> None:
    cpu = sum(outcome.seconds for outcome in outcomes)
    marks: dict[str, int] = summary["marks"]
    rows = {name: value for name, value in summary.items() if not name.startswith("marks")} | {
        "duplicates explained": sum(outcome.duplicates - outcome.unexplained for outcome in outcomes),
        "peak bytes in one stream": max(outcome.tally.peak_buffered for outcome in outcomes),
        "CPU seconds": round(cpu, 1),
        "seeds per CPU minute": round(60 * len(outcomes) / max(cpu, 1e-9)),
        "coverage marks reached": sum(map(bool, marks.values())),
        "coverage marks": len(marks),
    }
    print()
    for name, value in rows.items():
        print(f"  {name:28} {value:>12,}")
    if failed:
        print(f"  failing seeds: {', '.join(map(str, sorted(failed)))}")
    if missing := summary["marks_never_reached"]:
        print(f"\n  coverage marks never reached (a failure from {REQUIRED_SEEDS:,} seeds on):")
        for name in missing:
            print(f"  {name:28} {MARKS[name]}")
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
