"""A Kafka that costs next to nothing: the client library's mock cluster, in a process of its own.

It answers and keeps nothing, so what is measured against it is the client: what a relay gives where brokers have
machines of their own. Good for speed only; what is right is tested against real brokers.

    python -m proofs.benchmarks.mock_kafka        prints its address and lives until it is killed
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
    """Run a mock cluster; give its address."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - this very module
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
