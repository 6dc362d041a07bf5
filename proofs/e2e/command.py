"""The common part of the commands: options, progress on stderr, and the result as one line of JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

import trio

from efo.errors import EfoError
from proofs.e2e.output import Output
from proofs.e2e.run import E2eOptions, run


def make_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the common options. `name`: of the package."""
    parser = argparse.ArgumentParser(
        prog=f"python -m proofs.e2e.{name}",
        description=description,
        epilog=f"example: make {name}-e2e ARGS='--kills 30 --seed 7'",
    )
    parser.add_argument("--kills", type=int, default=20, help="total number of kills (20)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random times and choices of the kills (1)")
    parser.add_argument("--records", type=int, default=200_000, help="number of records to produce (200000)")
    parser.add_argument("--rate", type=float, default=4_000, help="most records per second (4000)")
    parser.add_argument(
        "--keep", type=Path, help="keep the logs, the output and the Parquet files in this new directory"
    )
    return parser


def execute(arguments: argparse.Namespace, kills: Mapping[str, int], make_output: Callable[[Path], Output]) -> int:
    """Do the run and print its result; return the exit code, which is 1 unless the run passed.

    `kills`: how many, by target. `make_output`: creates the output in the run's directory.
    """
    report = progress()
    with run_directory(arguments.keep) as directory:
        options = E2eOptions(
            records=arguments.records, rate=arguments.rate, kills=kills, seed=arguments.seed, directory=directory
        )
        try:
            result = trio.run(run, options, make_output(directory), report)
        except EfoError as error:
            print(error, file=sys.stderr)  # noqa: T201 - the same
            return 1
    print(json.dumps(result.summary))  # noqa: T201 - the same
    return 0 if result.passed else 1


def progress() -> Callable[[str], None]:
    """Return a function that writes a line of progress to stderr, with the seconds since now."""
    started = time.monotonic()

    def report(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", file=sys.stderr, flush=True)  # noqa: T201 - a command

    return report


@contextmanager
def run_directory(keep: Path | None = None) -> Iterator[Path]:
    """Make the directory of a run, a temporary one if none is to be kept, for the duration of the context."""
    with tempfile.TemporaryDirectory(prefix="efo-e2e-") if keep is None else nullcontext(keep) as name:
        directory = Path(name).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
