"""`make log-e2e`: the last line of stdout is one JSON object; exits with 1 unless it passed."""

from __future__ import annotations

import sys

from proofs.e2e.command import carry_out, make_parser
from proofs.e2e.log.output import LogOutput


def main() -> int:
    """Run it with the options of the command line; return the exit code."""
    parser = make_parser(
        "log",
        "FakeKinesis over TLS, two `efo run`, `efo pipeline`; relays and Spark are killed (SIGKILL) at random while"
        " records flow and the stream is resharded; then what landed is compared with what was sent.",
    )
    parser.add_argument("--spark-kills", type=int, help="how many of the kills are Spark's (every fourth)")
    arguments = parser.parse_args()
    spark = max(1, arguments.kills // 4) if arguments.spark_kills is None else arguments.spark_kills
    return carry_out(arguments, {"relay": max(1, arguments.kills - spark), "spark": spark}, LogOutput)


if __name__ == "__main__":
    sys.exit(main())
