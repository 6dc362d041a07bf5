"""The whole service, `efo run`: into the embedded log beside the consumer alone, and into Kafka."""

from __future__ import annotations

from dataclasses import replace

from proofs.benchmarks.fake import Server
from proofs.benchmarks.figures.results import Measured, NotMeasured, Value, measured, of_windows
from proofs.benchmarks.figures.throughput import ROUNDS, SHAPES, k_records_per_cpu_second
from proofs.benchmarks.page_cache import page_cache
from proofs.benchmarks.readers.running import EFO, Timing, measure
from proofs.benchmarks.readers.service import KAFKA, LOG, measure_service


def relay(timing: Timing) -> dict[str, Value]:
    """Relay records of 200 B and 1 KB into the log, and of 200 B into Kafka."""
    return {
        "relay_log_200b_share": _share_of_consumer("200b", 200, timing),
        "relay_log_1kb_share": _share_of_consumer("1kb", 1000, timing),
        "relay_kafka_200b_k_records_per_cpu_s": _into_kafka(timing),
    }


def _share_of_consumer(shape: str, record_bytes: int, timing: Timing) -> Measured:
    """Let the consumer and the service read in turn; compare records per CPU-second of a round.

    The log of a round is deleted, and a virtual machine's host may take back its memory: so each round fills it anew.
    """
    once = replace(timing, windows=1)
    shares = []
    with Server(SHAPES[shape]) as server, page_cache() as cache:
        for _ in range(ROUNDS):
            cache.fill()
            (alone,) = measure(EFO, server.served, server.next_consumer(), once)
            (relayed,) = measure_service(LOG, server.served, server.next_consumer(), record_bytes, once)
            shares.append(relayed.records_per_cpu_second / alone.records_per_cpu_second)
    return measured(shares)


def _into_kafka(timing: Timing) -> Value:
    try:
        from proofs.benchmarks.mock_kafka import mock_kafka  # noqa: PLC0415 - needs an extra
    except ImportError as error:
        return NotMeasured(f"needs the extra kafka ({error})")
    with Server(SHAPES["200b"]) as server, mock_kafka() as brokers:
        settings = {"sink": "kafka", "kafka__bootstrap_servers": brokers}
        windows = measure_service(KAFKA, server.served, server.next_consumer(), 200, timing, relay=settings)
    return of_windows(windows, k_records_per_cpu_second)
