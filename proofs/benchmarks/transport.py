"""Measures the transport alone: TLS, HTTP/2, and response streams whose bytes are dropped.

`python -m proofs.benchmarks.transport [--seconds N] [--runs N] [--profile]`. The load server runs in a separate
process. The figure is megabytes of DATA per CPU-second of the client: other programs on the machine change it less than
they change megabytes per second. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec
import trio

from efo.kinesis.aws.connector import Connector
from efo.kinesis.connection import Connection
from efo.kinesis.response_stream import ResponseStream
from efo.kinesis.subscribe_call import request_body
from efo.model import Position
from efo.settings import STREAM_WINDOW
from proofs.benchmarks.fake import Server

SHAPES = {"1 KB": ["--record-bytes", "1000", "--records-per-event", "200"], "200 B": []}
WARM_UP = 0.5


class Reader:
    """Reads all shards on one connection, and counts the bytes."""

    def __init__(self, served: dict[str, Any], consumer: str) -> None:
        url = urlsplit(served["url"])
        assert url.hostname is not None
        assert url.port is not None
        self._connector = Connector(url.hostname, url.port, ca_file=served["ca_file"])
        (stream,) = served["streams"].values()
        self._shards: list[str] = stream["shards"]
        self._arn: str = stream["consumers"][consumer]
        self._authority = url.netloc
        self.received = 0
        self.takes = 0

    async def run(self, seconds: float, profile: cProfile.Profile | None) -> dict[str, float]:
        """Read for `seconds` and return the figures."""
        connection = Connection(
            await self._connector.connect(), address=self._connector.address, stream_window=STREAM_WINDOW
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            await connection.wait_ready()
            for shard in self._shards:
                nursery.start_soon(self._read, connection, shard)
            await trio.sleep(WARM_UP)
            if profile:
                profile.enable()
            received, takes, cpu, began = self.received, self.takes, time.process_time(), time.perf_counter()
            await trio.sleep(seconds)
            cpu, took = time.process_time() - cpu, time.perf_counter() - began
            mb = (self.received - received) / 1e6
            nursery.cancel_scope.cancel()
        return {
            "mb_per_cpu_s": mb / cpu,
            "mb_per_s": mb / took,
            "kb_per_take": mb * 1000 / max(1, self.takes - takes),
        }

    async def _read(self, connection: Connection, shard: str) -> None:
        response = await connection.request(*self._request(shard))
        assert await response.response() == 200  # noqa: PLR2004 - HTTP
        await self._drop(response)

    async def _drop(self, response: ResponseStream) -> None:
        while data := await response.receive():
            self.received += len(data)
            self.takes += 1

    def _request(self, shard: str) -> tuple[list[tuple[str, str]], bytes]:
        body = request_body(self._arn, shard, Position.trim_horizon())
        headers = {":method": "POST", ":scheme": "https", ":authority": self._authority, ":path": "/"}
        headers |= {"x-amz-target": "Kinesis_20131202.SubscribeToShard", "content-type": "application/x-amz-json-1.1"}
        return [*headers.items()], body


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the transport without anything above it.")
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each run (default: 2)")
    parser.add_argument("--runs", type=int, default=3, help="number of runs; the median counts (default: 3)")
    parser.add_argument("--profile", action="store_true", help="print where the time goes (slows the run)")
    options = parser.parse_args()
    medians = {}
    for shape, arguments in SHAPES.items():
        figures = []
        profile = cProfile.Profile(time.process_time) if options.profile else None
        with Server(arguments) as server:
            for number in range(options.runs):
                reader = Reader(server.served, f"bench-{number}")
                figures.append(trio.run(reader.run, options.seconds, profile))
                print(shape, {name: round(value) for name, value in figures[-1].items()}, flush=True)
        medians[shape] = round(statistics.median(run["mb_per_cpu_s"] for run in figures))
        if profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    print(msgspec.json.encode({"mb_per_cpu_s": medians}).decode())


if __name__ == "__main__":
    main()
