"""Whether a peer loses, repeats or reorders records through a split, a merge and a kill."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from efo.testing import FakeKinesis
from proofs.peers.figures import START_TIMEOUT, Values
from proofs.peers.lines import Output
from proofs.peers.peers import Peer
from proofs.peers.program import Configuration, Program, running
from proofs.peers.servers import Fake, Site, stamped

RECORDS: Final = 20_000
_SHARDS: Final = 4
_KEYS: Final = 211
_CHUNK: Final = 100
_PAUSE: Final = 0.05
"""100 records in 50 ms: at most 2,000 records/s, so the put lasts at least 10 s, two checkpoints."""
_QUIET: Final = 300.0
"""Seconds without a record after which the missing ones count as lost. KCL starts in two minutes, also after a kill."""
_LINGER: Final = 5.0
"""Seconds to wait for repeated records after the last one."""

Seen = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Findings:
    """What went wrong.

    `repeated`: deliveries of a record that was delivered before. `out_of_order`: records that were delivered for the
    first time after a record of the same key with a higher number.
    """

    lost: int
    repeated: int
    out_of_order: int


def compare(seen: Sequence[Seen], put: Collection[Seen]) -> Findings:
    """Compare what a handler received, in order, with what was put. Keys' numbers grow in the order of the puts."""
    delivered: set[Seen] = set()
    highest: dict[str, int] = {}
    disordered = 0
    for key, number in seen:
        if (key, number) not in delivered:
            disordered += number < highest.get(key, -1)
            highest[key] = max(number, highest.get(key, -1))
            delivered.add((key, number))
    return Findings(len(set(put) - delivered), len(seen) - len(delivered), disordered)


@dataclass(slots=True)
class _Load:
    """Numbered records of 211 keys; a split after a quarter, a merge after the half."""

    fake: FakeKinesis
    stream: str
    done: int = 0
    put: list[Seen] = field(default_factory=list)

    def put_chunk(self) -> None:
        """Put the next records, and reshard when it is time."""
        numbers = range(self.done, self.done + _CHUNK)
        self.fake.put_many(self.stream, [(f"key-{n % _KEYS}", stamped(n, 100)) for n in numbers])
        self.put.extend((f"key-{n % _KEYS}", n) for n in numbers)
        self.done = numbers.stop
        if self.done == RECORDS // 4:
            self.fake.split(self.stream, self.fake.open_shards(self.stream)[0])
        if self.done == RECORDS // 2:
            *_, lower, upper = self.fake.open_shards(self.stream)
            self.fake.merge(self.stream, lower, upper)


async def correctness(
    peer: Peer, fake: Fake, site: Site, run: str, progress: Callable[[str], None], *, backlog: bool
) -> Values:
    """Read 20,000 records through a split and a merge, and compare.

    Live, the peer is killed and started again after three quarters, if it has checkpoints. From a backlog, all is put
    before the peer starts.
    """
    stream = f"{run}-{peer.name}"
    fake.kinesis.create_stream(stream, _SHARDS)
    arn = fake.kinesis.register(stream, peer.name).arn
    config = site.configuration(
        endpoint=fake.url,
        ca_file=fake.ca_file,
        application=stream,
        stream=stream,
        consumer=peer.name,
        consumer_arn=arn,
        report="numbers",
    )
    load = _Load(fake.kinesis, stream)
    output = Output()
    if backlog:
        while load.done < RECORDS:
            load.put_chunk()
        async with running(peer, config, output) as program:
            await program.until(lambda: bool(output.seen), START_TIMEOUT, "the first record")
            await _until_complete(program, output)
    else:
        await _read_live(peer, config, load, output, progress)
    findings = compare(output.seen, load.put)
    kind = "backlog" if backlog else "live"
    return {
        f"correctness/{kind}/lost": findings.lost,
        f"correctness/{kind}/repeated": findings.repeated,
        f"correctness/{kind}/out_of_order": findings.out_of_order,
    }


async def _read_live(
    peer: Peer, config: Configuration, load: _Load, output: Output, progress: Callable[[str], None]
) -> None:
    kills = peer.reason("correctness/kill") is None
    async with running(peer, config, output) as program:
        load.put_chunk()
        await program.until(lambda: bool(output.seen), START_TIMEOUT, "the first record")
        await _put_until(load, RECORDS * 3 // 4 if kills else RECORDS)
        if not kills:
            await _until_complete(program, output)
            return
    progress("killed; starting it again")
    async with running(peer, config, output) as program:
        await _put_until(load, RECORDS)
        await _until_complete(program, output)


async def _put_until(load: _Load, number: int) -> None:
    while load.done < number:
        load.put_chunk()
        await trio.sleep(_PAUSE)


async def _until_complete(program: Program, output: Output) -> None:
    """Wait until all records were delivered, or none comes any more; then for repetitions. Then stop."""
    count, since = -1, trio.current_time()
    while len(set(output.seen)) < RECORDS and trio.current_time() - since < _QUIET:
        if len(output.seen) != count:
            count, since = len(output.seen), trio.current_time()
        program.check()
        await trio.sleep(0.5)
    await trio.sleep(_LINGER)
    await program.stop()
