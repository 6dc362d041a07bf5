"""Runs `efo run` on a server, and returns the windows that its /metrics show."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from proofs.benchmarks.readers.running import ClientError, Timing, client
from proofs.benchmarks.readers.samples import Sample, Window, window
from proofs.ports import free_port

LOG = "efo_service.cli"
KAFKA = "proofs.benchmarks.readers.kafka_service"
CONSUMED = "messaging_client_consumed_messages"
CPU = "process_cpu_seconds_total"
START_TIMEOUT = 60.0
_POLL = 0.25


def measure_service(
    program: str,
    served: dict[str, Any],
    consumer: str,
    record_bytes: int,
    timing: Timing,
    *,
    variables: Mapping[str, str] | None = None,
    relay: Mapping[str, str] | None = None,
) -> list[Window]:
    """Relay a load into a sink; return the windows. `relay`: settings of that section. `variables`: of the
    environment. Raises ClientError."""
    port = free_port()
    (stream,) = served["streams"]
    environment = {
        "EFO_KINESIS__STREAM": stream,
        "EFO_KINESIS__REGION": "us-east-1",
        "EFO_KINESIS__ENDPOINT_URL": served["url"],
        "EFO_KINESIS__CA_FILE": served["ca_file"],
        "EFO_CONSUMER__APPLICATION": consumer,
        "EFO_LEASES__PATH": "leases.sqlite",
        "EFO_SERVICE__PORT": str(port),
        **{f"EFO_RELAY__{name.upper()}": value for name, value in (relay or {}).items()},
        **(variables or {}),
    }
    with client(program, ["run"], START_TIMEOUT + timing.total + 60, environment) as process:
        url = f"http://127.0.0.1:{port}/metrics"
        first = _first_records(url, process.pid, record_bytes)
        starts = [first.at + timing.warm_up + n * timing.seconds for n in range(timing.windows + 1)]
        samples = []
        for at in starts:
            time.sleep(max(0.0, at - time.monotonic()))
            samples.append(scrape(url, process.pid, record_bytes))
        return [window(samples, start.at, end.at) for start, end in pairwise(samples)]


def _first_records(url: str, process: int, record_bytes: int) -> Sample:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        try:
            sample = scrape(url, process, record_bytes)
        except OSError:  # it does not serve yet
            sample = None
        if sample is not None and sample.records:
            return sample
        time.sleep(_POLL)
    raise ClientError(f"it relayed no record in {START_TIMEOUT:g} s")


def scrape(url: str, process: int, record_bytes: int) -> Sample:
    """Return what a service has relayed so far."""
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - of this machine
        return sample_of(response.read().decode(), process, record_bytes)


def sample_of(metrics: str, process: int, record_bytes: int) -> Sample:
    """Return a sample of metrics in Prometheus's text format."""
    totals = dict.fromkeys((CONSUMED, CPU), 0.0)
    for name, value in _values(metrics):
        for wanted in totals:
            totals[wanted] += value if name.startswith(wanted) else 0.0
    records = round(totals[CONSUMED])
    return Sample(time.monotonic(), process, records, records * record_bytes, 0, totals[CPU])


def _values(metrics: str) -> Iterator[tuple[str, float]]:
    for line in metrics.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            yield name, float(value)
