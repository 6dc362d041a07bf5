"""`python -m proofs.e2e.kafka`, or `make kafka-e2e`: the last line of stdout is JSON; exits with 1 unless it passed."""

from __future__ import annotations

import sys

from proofs.e2e.command import carry_out, make_parser
from proofs.e2e.kafka.broker import missing
from proofs.e2e.kafka.output import KafkaOutput


def main() -> int:
    """Run it with the options of the command line; return the exit code."""
    parser = make_parser(
        "kafka",
        "FakeKinesis over TLS, two `efo run`, a Kafka broker, `efo pipeline` with Spark's Kafka source; relays, broker"
        " and Spark are killed (SIGKILL) at random while records flow and the stream is resharded; then what landed is"
        " compared with what was sent. Half of the kills are of relays, a quarter each of the broker and of Spark.",
    )
    arguments = parser.parse_args()
    if reason := missing(connector=True):
        print(reason, file=sys.stderr)  # noqa: T201 - a command
        return 69
    quarter = max(1, arguments.kills // 4)
    kills = {"relay": max(1, arguments.kills - 2 * quarter), "broker": quarter, "spark": quarter}
    return carry_out(arguments, kills, KafkaOutput)


if __name__ == "__main__":
    sys.exit(main())
