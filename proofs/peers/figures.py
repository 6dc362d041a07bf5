"""How each figure is made: one round of one peer, as values by name. `METRICS` names them all."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import trio

from proofs.peers.lines import Output
from proofs.peers.peers import Peer
from proofs.peers.program import Configuration, PeerError, Program, running
from proofs.peers.servers import STREAM, Fake, LoadServer, Site, put_one_in_each_shard, stamped
from proofs.peers.statistics import percentile

Values = dict[str, float]

START_TIMEOUT: Final = 900.0
"""Seconds until all shards are read. KCL elects a leader and assigns leases first."""
_SETTLE: Final = 5.0
"""Seconds from the last shard's first record to the measurement of an idle consumer."""
_IDLE_WINDOWS: Final = 2
"""An idle consumer is measured this many times as long: Kinesis sends an event to an idle shard only each 5 s."""
_LATENCY_SHARDS: Final = 20
_LATENCY_PER_TICK: Final = 7
_LATENCY_TICK: Final = 0.01
"""Seven records in 10 ms: 700 records/s."""
_LATENCY_BYTES: Final = 200
_POLLED_RATE: Final = 2_000
"""Records per second and shard of a backlog that a polling peer reads."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of load. `options`: of the load server. `record_bytes`: of one record's data."""

    options: tuple[str, ...]
    record_bytes: int
    aggregated: bool = False


SHAPES: Final[Mapping[str, Shape]] = {
    "1000B": Shape(("--record-bytes", "1000"), 1000),
    "200B": Shape(("--record-bytes", "200"), 200),
    "kpl": Shape(("--record-bytes", "100", "--aggregated", "100", "--records-per-event", "50"), 100, aggregated=True),
}
"""By name. `kpl`: aggregates of 100 user records of 100 bytes, 50 in an event: events of 500 kB as with 1,000 B."""


@dataclass(frozen=True, slots=True)
class Timing:
    """`seconds`: length of each measurement. `warm`: seconds before it; None: those of the peer."""

    seconds: float
    warm: float | None = None

    def warm_of(self, peer: Peer) -> float:
        """Return the seconds from a peer's first record to its measurement."""
        return peer.warm if self.warm is None else self.warm


async def throughput(peer: Peer, name: str, server: LoadServer, site: Site, timing: Timing) -> Values:
    """Read as fast as the peer can, and return records per CPU second and per second, cores and memory.

    The application is the same in all rounds: from the second one on, the peer finds its leases.
    """
    shape = SHAPES[name]
    config = site.configuration(
        endpoint=server.url,
        ca_file=server.ca_file,
        application=f"{peer.name}-{name}",
        stream=STREAM,
        consumer=peer.name,
        consumer_arn=server.consumers[peer.name],
        aggregated=shape.aggregated,
    )
    async with running(peer, config) as program:
        return await _measure_rate(peer, name, program, timing)


async def polled_throughput(peer: Peer, name: str, fake: Fake, site: Site, timing: Timing, run: str) -> Values:
    """As `throughput`, for a peer that polls: it reads a backlog of FakeKinesis, at most as fast as Kinesis allows."""
    records = int(4 * _POLLED_RATE * (timing.warm_of(peer) + timing.seconds + 5))
    stream = f"{run}-{peer.name}"
    fake.kinesis.create_stream(stream, 4)
    size = SHAPES[name].record_bytes
    fake.kinesis.put_many(stream, [(f"key-{n % 211}", stamped(n, size)) for n in range(records)])
    config = site.configuration(
        endpoint=fake.url, ca_file=fake.ca_file, application=stream, stream=stream, consumer="", consumer_arn=""
    )
    async with running(peer, config) as program:
        return await _measure_rate(peer, name, program, timing)


async def _measure_rate(peer: Peer, name: str, program: Program, timing: Timing) -> Values:
    await program.until(lambda: program.output.first_at is not None, START_TIMEOUT, "the first record")
    await trio.sleep(timing.warm_of(peer))
    start, before = time.time(), program.usage()
    await trio.sleep(timing.seconds)
    end, after = time.time(), program.usage()
    program.check()
    await trio.sleep(0.1)  # the window's last lines are on their way
    per_second = program.output.records_per_second(start, end)
    cores = (after.cpu_seconds - before.cpu_seconds) / (end - start)
    if cores <= 0 or per_second <= 0:
        raise program.failed(f"read {per_second:.0f} records/s with {cores:.2f} cores")
    await program.stop()
    return {
        f"throughput/{name}/per_cpu": per_second / cores,
        f"throughput/{name}/per_wall": per_second,
        f"throughput/{name}/cores": cores,
        f"throughput/{name}/rss_mb": after.rss_bytes / 1e6,
    }


async def start_and_idle(
    peer: Peer, shards: int, fake: Fake, site: Site, timing: Timing, run: str, *, idle: bool
) -> Values:
    """Start on a new stream with one record in each shard and a new lease table, stay idle, and stop."""
    stream = f"{run}-{peer.name}"
    fake.kinesis.create_stream(stream, shards)
    put_one_in_each_shard(fake.kinesis, stream, shards)
    config = _configuration(site, fake, stream, expected=shards)
    async with running(peer, config) as program:
        await program.until(
            lambda: program.output.records >= shards, START_TIMEOUT, f"a record of each of {shards} shards"
        )
        values = {
            f"start/{shards}/first_s": _since_start(program, 1),
            f"start/{shards}/all_s": _since_start(program, shards),
        }
        await trio.sleep(_SETTLE)
        if idle:
            start, before = time.time(), program.usage()
            await trio.sleep(_IDLE_WINDOWS * timing.seconds)
            end, after = time.time(), program.usage()
            values[f"idle/{shards}/rss_mb"] = after.rss_bytes / 1e6
            values[f"idle/{shards}/cpu_percent"] = 100 * (after.cpu_seconds - before.cpu_seconds) / (end - start)
        values[f"start/{shards}/stop_s"] = await program.stop()
    return values


async def latency(peer: Peer, fake: Fake, site: Site, timing: Timing, run: str) -> Values:
    """Put 700 records/s, and return percentiles of the time from put to handler."""
    stream = f"{run}-{peer.name}"
    fake.kinesis.create_stream(stream, _LATENCY_SHARDS)
    put_one_in_each_shard(fake.kinesis, stream, _LATENCY_SHARDS)
    config = _configuration(site, fake, stream, expected=_LATENCY_SHARDS, report="latencies")
    async with running(peer, config) as program:
        await program.until(lambda: program.output.records >= _LATENCY_SHARDS, START_TIMEOUT, "a record of each shard")
        warm = timing.warm_of(peer)
        started = time.time()
        numbers = itertools.count()
        while (elapsed := time.time() - started) < warm + timing.seconds:
            for number in itertools.islice(numbers, _LATENCY_PER_TICK):
                fake.kinesis.put(stream, f"key-{number % 211}", stamped(number, _LATENCY_BYTES))
            await trio.sleep(_LATENCY_TICK)
        await trio.sleep(1.5)  # the last lines
        measured = _latencies(program.output, started + warm, started + elapsed + 1.5)
        await program.stop()
    if not measured:
        raise PeerError(f"{peer.name} reported no latencies")
    return {"latency/p50_ms": percentile(measured, 50), "latency/p99_ms": percentile(measured, 99)}


def _configuration(site: Site, fake: Fake, stream: str, **others: Any) -> Configuration:
    """Return the configuration of a peer that is alone on a stream, with an ACTIVE fan-out consumer."""
    consumer = fake.kinesis.register(stream, stream)
    return site.configuration(
        endpoint=fake.url,
        ca_file=fake.ca_file,
        application=stream,
        stream=stream,
        consumer=stream,
        consumer_arn=consumer.arn,
        **others,
    )


def _since_start(program: Program, records: int) -> float:
    reached = program.output.reached_at(records)
    if reached is None:
        raise program.failed(f"did not print when {records} records had arrived")
    return reached - program.started_at


def _latencies(output: Output, start: float, end: float) -> list[float]:
    return [micros / 1000 for t, micros in output.latencies if start <= t <= end]
