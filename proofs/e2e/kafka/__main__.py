"""`python -m proofs.e2e.kafka`, or `make kafka-e2e`. The last line of stdout is JSON. Exits with 1 on failure."""

from __future__ import annotations

import sys

from proofs.e2e.command import execute, make_parser
from proofs.e2e.kafka.broker import missing
from proofs.e2e.kafka.output import KafkaOutput


def main() -> int:
    """Parse the command line, do the run and return the exit code."""
    parser = make_parser(
        "kafka",
        "Runs FakeKinesis over TLS, two `efo run`, a Kafka broker, and `efo pipeline` with Spark's Kafka source. Kills"
        " relays, broker and Spark at random (SIGKILL) while records flow and the stream is resharded. Then compares"
        " the rows written by Spark with the records sent. Half of the kills hit relays, a quarter the broker, and a"
        " quarter Spark.",
    )
    arguments = parser.parse_args()
    if reason := missing(connector=True):
        print(reason, file=sys.stderr)
        return 69
    quarter = max(1, arguments.kills // 4)
    kills = {"relay": max(1, arguments.kills - 2 * quarter), "broker": quarter, "spark": quarter}
    return execute(arguments, kills, KafkaOutput)


if __name__ == "__main__":
    sys.exit(main())
