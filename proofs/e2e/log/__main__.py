"""`python -m proofs.e2e.log`, or `make log-e2e`. The last line of stdout is JSON. Exits with 1 on failure."""

from __future__ import annotations

import sys

from proofs.e2e.command import execute, make_parser
from proofs.e2e.log.output import LogOutput


def main() -> int:
    """Parse the command line, do the run and return the exit code."""
    parser = make_parser(
        "log",
        "Runs FakeKinesis over TLS, two `efo run`, and `efo pipeline`. Kills relays and Spark at random (SIGKILL) while"
        " records flow and the stream is resharded. Then compares the rows written by Spark with the records sent.",
    )
    parser.add_argument("--spark-kills", type=int, help="how many of the kills hit Spark (a quarter)")
    arguments = parser.parse_args()
    spark = max(1, arguments.kills // 4) if arguments.spark_kills is None else arguments.spark_kills
    return execute(arguments, {"relay": max(1, arguments.kills - spark), "spark": spark}, LogOutput)


if __name__ == "__main__":
    sys.exit(main())
