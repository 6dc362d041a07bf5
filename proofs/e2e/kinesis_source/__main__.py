"""`python -m proofs.e2e.kinesis_source`, or `make kinesis-source-e2e`. The last line of stdout is JSON."""

from __future__ import annotations

import json
import sys

import trio

from efo.errors import EfoError
from efo_service.exit_codes import Exit
from efo_service.spark.errors import JavaMissingError
from efo_service.spark.java import find_java
from proofs.e2e.command import make_parser, progress, run_directory
from proofs.e2e.kinesis_source.run import Options, run


def main() -> int:
    """Parse the command line, do the run and return the exit code."""
    parser = make_parser(
        "kinesis-source",
        "Runs FakeKinesis over TLS, and a Spark application with two queries by format('kinesis') on one log. Kills the"
        " application's process group, and single planners, at random (SIGKILL) while records flow and the stream is"
        " resharded; then reads over another reshard by AvailableNow, and kills that too. Compares the rows written by"
        " Spark with the records sent.",
    )
    parser.set_defaults(kills=10, records=60_000, rate=2_000)
    parser.add_argument("--planner-kills", type=int, help="how many of the kills hit a single planner (a quarter)")
    arguments = parser.parse_args()
    planner = arguments.kills // 4 if arguments.planner_kills is None else arguments.planner_kills
    report = progress()
    try:
        find_java()
    except JavaMissingError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return Exit.UNAVAILABLE
    with run_directory(arguments.keep) as directory:
        options = Options(
            records=arguments.records,
            rate=arguments.rate,
            driver_kills=arguments.kills - planner - 1,  # one is for AvailableNow
            planner_kills=planner,
            seed=arguments.seed,
            directory=directory,
        )
        try:
            passed, summary = trio.run(run, options, report)
        except EfoError as error:
            print(error, file=sys.stderr)
            return 1
    print(json.dumps(summary))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
