"""What the commands have in common: options, progress on stderr, and the result as one line of JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import trio

from efo.errors import EfoError
from proofs.e2e.output import Output
from proofs.e2e.run import E2eOptions, run


def make_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser of the options that each run has. `name`: of the package."""
    parser = argparse.ArgumentParser(
        prog=f"python -m proofs.e2e.{name}",
        description=description,
        epilog=f"example: make {name}-e2e ARGS='--kills 30 --seed 7'",
    )
    parser.add_argument("--kills", type=int, default=20, help="how many in all (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the dice that say when, and which relay (1)")
    parser.add_argument("--records", type=int, default=200_000, help="how many are put (200000)")
    parser.add_argument("--rate", type=float, default=4_000, help="how many a second, at most (4000)")
    parser.add_argument("--keep", type=Path, help="keep logs, what was written and Parquet in this new directory")
    return parser


def carry_out(arguments: argparse.Namespace, kills: Mapping[str, int], make: Callable[[Path], Output]) -> int:
    """Run it; return the exit code: 1 unless it passed. `make`: makes the output in the run's directory."""
    started = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", file=sys.stderr, flush=True)  # noqa: T201 - a command

    with _directory(arguments.keep) as name:
        directory = Path(name).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        options = E2eOptions(
            records=arguments.records, rate=arguments.rate, kills=kills, seed=arguments.seed, directory=directory
        )
        try:
            result = trio.run(run, options, make(directory), tell)
        except EfoError as error:
            print(error, file=sys.stderr)  # noqa: T201 - the same
            return 1
    print(json.dumps(result.summary))  # noqa: T201 - the same
    return 0 if result.passed else 1


def _directory(keep: Path | None) -> AbstractContextManager[str]:
    return tempfile.TemporaryDirectory(prefix="efo-e2e-") if keep is None else nullcontext(str(keep))
