"""Measures throughput and CPU cost of the fake under load: `make bench-fake ARGS="--seconds N --runs N"`.

The server runs in a separate process, so that its CPU time is measured separately from the client's. On a machine with
other load, the CPU time per GB is the reliable figure. Each figure is the best of several short runs.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, Self

from efo.model import HashKeyRange
from efo.protocol.aggregation import is_aggregate
from efo.protocol.deaggregation import deaggregate
from efo.protocol.eventstream import EventStreamDecoder
from efo.protocol.messages import SubscribeToShardEvent, parse_message
from proofs.benchmarks.load_client import LoadClient

GB = 1e9
SHARDS = 4
CONSUMERS = 12
WARM_UP = 0.5
WIDE = {"stream_window": 4 * 1024 * 1024, "connection_window": 32 * 1024 * 1024}
NARROW = {"stream_window": 10_000, "connection_window": 65_535}
SHAPES = {
    "200 B": [],
    "1 KB": ["--record-bytes", "1000", "--records-per-event", "200"],
    "100 B aggregated by 50": ["--record-bytes", "100", "--records-per-event", "40", "--aggregated", "50"],
}
ANY_HASH_KEY = HashKeyRange("0", str(2**128 - 1))


class Server:
    """`python -m proofs.load` in a separate process, with enough consumers for all clients."""

    def __init__(self, options: list[str]) -> None:
        consumers = [f"bench-{n}" for n in range(CONSUMERS)]
        command = [sys.executable, "-m", "proofs.load", "--shards", str(SHARDS), *options]
        command += [argument for consumer in consumers for argument in ("--consumer", consumer)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603 - runs efo itself
        assert self.process.stdout is not None
        self.served = json.loads(self.process.stdout.readline())
        self._consumers = cycle(consumers)

    def next_consumer(self) -> str:
        """Return the name of the consumer that was not used for the longest time."""
        return next(self._consumers)

    @contextmanager
    def client(self, **options: Any) -> Iterator[LoadClient]:
        """Subscribe to all shards as a consumer that has not subscribed yet."""
        client = LoadClient(self.served, self.next_consumer(), **options)
        try:
            yield client
        finally:
            client.close()

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def measure(server: Server, seconds: float) -> dict[str, float]:
    """Do one run with wide windows; return throughput, and the CPU seconds per GB of server and client."""
    with server.client(**WIDE) as client:
        client.run(WARM_UP)
        before, client_cpu, server_cpu = client.counts.wire_bytes, own_cpu_seconds(), server.cpu_seconds()
        took = client.run(seconds)
        gb = (client.counts.wire_bytes - before) / GB
        shares = client.counts.streams.values()
        return {
            "wire_mb_per_s": gb * 1000 / took,
            "server_cpu_seconds_per_gb": (server.cpu_seconds() - server_cpu) / gb,
            "client_cpu_seconds_per_gb": (own_cpu_seconds() - client_cpu) / gb,
            "least_share": min(shares) / max(shares),
            "beyond": client.counts.beyond,
        }


def own_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def best(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the best value of each figure; of `beyond`, which must be 0, the worst."""
    highest, worst = ("wire_mb_per_s",), ("beyond",)
    chosen = {name: max if name in highest + worst else min for name in runs[0]}
    return {name: choose(run[name] for run in runs) for name, choose in chosen.items()}


class Verifier:
    """Decodes everything and checks it: both CRCs, JSON, base64, and sequence numbers that grow by constant steps."""

    def __init__(self) -> None:
        self.decoders: dict[int, EventStreamDecoder] = {}
        self.last: dict[int, int] = {}
        self.steps: dict[int, set[int]] = {}
        self.events = self.records = 0

    def receive(self, stream_id: int, data: memoryview) -> None:
        decoder = self.decoders.setdefault(stream_id, EventStreamDecoder())
        decoder.receive_data(data)
        for message in decoder.messages():
            event = parse_message(message)
            if event is not None:
                assert isinstance(event, SubscribeToShardEvent), event
                self._check(stream_id, event)

    def _check(self, stream_id: int, event: SubscribeToShardEvent) -> None:
        self.events += 1
        steps = self.steps.setdefault(stream_id, set())
        for record in event.records:
            number = int(record.sequence_number)
            if (last := self.last.get(stream_id)) is not None:
                steps.add(number - last)
            self.last[stream_id] = number
            users = deaggregate(record, ANY_HASH_KEY)
            assert users.problem is None, users.problem
            assert len(users.records) == (50 if is_aggregate(record) else 1)
            self.records += len(users.records)
        assert event.continuation_sequence_number == event.records[-1].sequence_number
        # One step between records, one between events. A third one means that records are missing or duplicated.
        assert len(steps) <= 2, steps  # noqa: PLR2004 - see above
        assert min(steps) > 0


def verify(server: Server, seconds: float) -> Verifier:
    verifier = Verifier()
    with server.client(**WIDE, on_data=verifier.receive) as client:
        client.run(seconds)
        assert client.counts.beyond == 0
    assert len(verifier.steps) == SHARDS
    return verifier


def measure_violations(server: Server, seconds: float) -> dict[str, int]:
    """Read with narrow windows; return how many bytes exceeded them."""
    with server.client(**NARROW) as client:
        client.run(seconds)
        counts = client.counts
        return {"violations": counts.beyond, "bytes": counts.data_bytes, "window_updates": counts.updates}


def measure_unread(server: Server, connections: int = 4) -> tuple[int, float]:
    """Open subscriptions with the largest windows and never read them.

    Return their number, and how many MB the server's memory grew.
    """
    before = server.resident_mb()
    with ExitStack() as clients:
        for _ in range(connections):
            clients.enter_context(server.client(stream_window=2**31 - 1, connection_window=2**31 - 1))
        used = -1.0
        while server.cpu_seconds() != used:  # until all buffers are full and the server is idle
            used = server.cpu_seconds()
            time.sleep(0.5)
        return connections * SHARDS, server.resident_mb() - before


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the fake under load.")
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each run (default: 2)")
    parser.add_argument("--runs", type=int, default=3, help="number of runs; the best one counts (default: 3)")
    options = parser.parse_args()
    began = time.perf_counter()
    results = {shape: bench(shape, arguments, options) for shape, arguments in SHAPES.items()}
    first = next(iter(results.values()))
    report(results, options)
    windows = first["flow_control"]
    windows["violations"] += sum(result["beyond"] for result in results.values())
    summary = {name: round(first[name], 2) for name in ("server_cpu_seconds_per_gb", "client_cpu_seconds_per_gb")}
    summary = {"wire_mb_per_s": round(first["wire_mb_per_s"])} | summary
    summary |= {"seconds": round(time.perf_counter() - began, 1), "flow_control": windows}
    summary |= {"load_average": round(os.getloadavg()[0], 1)}
    print(json.dumps(summary))
    return 1 if windows["violations"] else 0


def bench(shape: str, arguments: list[str], options: argparse.Namespace) -> dict:
    with Server(arguments) as server:
        runs = []
        for number in range(1, options.runs + 1):
            runs.append(measure(server, options.seconds))
            figures = f"{runs[-1]['wire_mb_per_s']:.0f} MB/s, {runs[-1]['server_cpu_seconds_per_gb']:.2f} CPU s/GB"
            print(f"{shape}: run {number} of {options.runs}: {figures}", flush=True)
        verified = verify(server, options.seconds)
        print(f"{shape}: verified {verified.events} events with {verified.records} user records", flush=True)
        windows = measure_violations(server, options.seconds / 2)
        streams, grown = measure_unread(server)
        print(f"{shape}: {streams} unread subscriptions take {grown:.0f} MB", flush=True)
        return best(runs) | {"flow_control": windows, "verified": verified.records, "unread_mb": grown}


def report(results: dict[str, dict], options: argparse.Namespace) -> None:
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(f"\nBest of {options.runs} runs of {options.seconds:g} s; {cores} cores; load average {load:.1f}.\n")
    print(f"| {'records':<24} | MB/s | server CPU s/GB | client CPU s/GB | verified records | beyond windows |")
    print(f"|{'-' * 26}|-----:|----------------:|----------------:|-----------------:|---------------:|")
    for shape, result in results.items():
        print(
            f"| {shape:<24} | {result['wire_mb_per_s']:4.0f} | {result['server_cpu_seconds_per_gb']:15.2f} "
            f"| {result['client_cpu_seconds_per_gb']:15.2f} | {result['verified']:16,} "
            f"| {result['beyond'] + result['flow_control']['violations']:14} |"
        )
    print()


if __name__ == "__main__":
    sys.exit(main())
