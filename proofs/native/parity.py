"""`make native-parity`: both steps read the same inputs; tests pass, and worlds tell one story, with either.

The parser's own tests run with the address sanitizer.

Prints, last, one JSON object. Exit status: 0 if nothing differed, 1 if something did, 69 if efo-native is not there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Final

from efo.protocol.native import DECODER
from proofs.fuzz import aggregates, events
from proofs.native.build import passes_with_sanitizer
from proofs.native.cases import cases
from proofs.native.compare import AGGREGATE, EVENT, PAGE, CountedStep, compare
from proofs.paths import ROOT

UNAVAILABLE: Final = 69
SUITE: Final = (
    "tests/efo/protocol", "tests/efo/kinesis/test_subscribe_call.py", "tests/efo/consumer/test_deaggregator.py",
    "tests/efo/consumer/test_step_times.py", "tests/proofs/native",
)  # fmt: skip
_STEPS: Final = ("native", "python")
_MAX_SHOWN: Final = 5
_WORLDS: Final = """
import sys
from proofs.simulation.run import run
for seed in range(int(sys.argv[1])):
    print(run(seed, digest=True).digest)
"""
_UNSAFE: Final = re.compile(r"\bunsafe\s*(?:\{|fn\b|impl\b|extern\b)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("make native-parity", description=__doc__)
    parser.add_argument("--cases", type=int, default=400_000, help="how many inputs; default: 400,000")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs; default: 1")
    parser.add_argument("--worlds", type=int, default=20, help="how many worlds of the simulation; default: 20")
    parser.add_argument("--no-suite", action="store_true", help="compare inputs, and run no tests")
    options = parser.parse_args(arguments)
    if DECODER.step is None:
        print(f"{DECODER.detail}: make native", file=sys.stderr)
        return UNAVAILABLE
    counted = CountedStep(DECODER.step)
    differences = 0
    for data in islice(chain(seeds(), cases(options.seed)), options.cases):
        try:
            compare(data, counted)
        except AssertionError as error:
            differences += 1
            if differences <= _MAX_SHOWN:
                print(f"case: {error}")
    failed = [] if options.no_suite else [step for step in _STEPS if not _passes(step)]
    sanitized = None if options.no_suite else passes_with_sanitizer()
    stories = [_stories(step, options.worlds) for step in _STEPS]
    changed = [seed for seed, reported in enumerate(zip(*stories, strict=True)) if len({*reported}) > 1]
    result = {
        "cases": options.cases,
        "differences": differences,
        "read_by_native": counted.read,
        "left_to_python": counted.asked - counted.read,
        "suites_failed": failed,
        "address_sanitizer_passed": sanitized,
        "worlds": options.worlds,
        "worlds_with_other_stories": changed,
        "unsafe_blocks": unsafe_blocks(),
    }
    print(json.dumps(result))
    return 1 if differences or failed or changed or sanitized is False else 0


def seeds() -> Iterator[bytes]:
    """Yield the seeds of the fuzz targets that read the same, as inputs of `compare`."""
    for seed in events.seeds():
        yield bytes([EVENT, 0]) + seed[1:]
        yield bytes([PAGE, 0]) + seed[1:]
    for seed in aggregates.seeds():
        yield bytes([AGGREGATE]) + seed[1:]


def unsafe_blocks(folder: Path = ROOT / "native") -> Mapping[str, int]:
    """Return how many unsafe blocks and functions each file of Rust has."""
    files = sorted(path for path in folder.glob("**/*.rs") if "target" not in path.relative_to(folder).parts)
    return {str(path.relative_to(folder.parent)): len(_UNSAFE.findall(path.read_text())) for path in files}


def _passes(step: str) -> bool:
    """Run the suite with one of the steps."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *SUITE]
    print(f"the suite, {step} step:", flush=True)
    return subprocess.run(command, check=False, cwd=ROOT, env=_environment(step)).returncode == 0


def _stories(step: str, worlds: int) -> list[str]:
    """Return a digest of the story of each world, as it is with one of the steps."""
    command = [sys.executable, "-c", _WORLDS, str(worlds)]
    reported = subprocess.run(command, check=True, cwd=ROOT, env=_environment(step), capture_output=True, text=True)
    return reported.stdout.split()


def _environment(step: str) -> dict[str, str]:
    return os.environ | {"EFO_NATIVE": "1" if step == "native" else "0"}


if __name__ == "__main__":
    sys.exit(main())
