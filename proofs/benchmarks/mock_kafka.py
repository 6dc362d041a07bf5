"""A Kafka cluster that takes almost no CPU time: the client library's mock cluster, in a separate process.

It responds but stores nothing. A benchmark with it measures the client, as if the brokers had their own machines.
It is for benchmarks only: correctness is tested with real brokers.

    python -m proofs.benchmarks.mock_kafka        prints its address and runs until it is killed
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer


@contextmanager
def mock_kafka() -> Iterator[str]:
    """Run a mock cluster; yield its address."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - runs this module
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def main() -> None:
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    brokers = producer.list_topics(timeout=10).brokers.values()
    print(",".join(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
