"""`python -m e2e.log`, or `make log-e2e`: the last line of stdout is one JSON object; exits with 1 unless it passed."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import trio

from e2e.log.run import E2eOptions, run
from efo.errors import EfoError


def main() -> int:
    """Run it with the options of the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.log",
        description="FakeKinesis over TLS, two `efo run`, `efo pipeline`; relays and Spark are killed (SIGKILL) at"
        " random while records flow and the stream is resharded; then what landed is compared with what was sent.",
        epilog="example: make log-e2e ARGS='--kills 30 --seed 7'",
    )
    parser.add_argument("--kills", type=int, default=20, help="how many in all (20)")
    parser.add_argument("--spark-kills", type=int, help="how many of these are Spark's (every fourth)")
    parser.add_argument("--seed", type=int, default=1, help="of the dice that say when, and which relay (1)")
    parser.add_argument("--records", type=int, default=200_000, help="how many are put (200000)")
    parser.add_argument("--rate", type=float, default=4_000, help="how many a second, at most (4000)")
    parser.add_argument("--keep", type=Path, help="keep logs, log and Parquet in this new directory")
    arguments = parser.parse_args()
    spark = max(1, arguments.kills // 4) if arguments.spark_kills is None else arguments.spark_kills
    started = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", file=sys.stderr, flush=True)  # noqa: T201 - a command

    with _directory(arguments.keep) as directory:
        options = E2eOptions(
            records=arguments.records,
            rate=arguments.rate,
            relay_kills=max(1, arguments.kills - spark),
            spark_kills=spark,
            seed=arguments.seed,
            directory=Path(directory).resolve(),
        )
        try:
            result = trio.run(run, options, tell)
        except EfoError as error:
            print(error, file=sys.stderr)  # noqa: T201 - the same
            return 1
    print(json.dumps(result.summary))  # noqa: T201 - the same
    return 0 if result.passed else 1


def _directory(keep: Path | None) -> AbstractContextManager[str]:
    return tempfile.TemporaryDirectory(prefix="efo-e2e-") if keep is None else nullcontext(str(keep))


if __name__ == "__main__":
    sys.exit(main())
