"""Runs the figures: each round has every peer once, so that the machine's other work weighs on all alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from proofs.peers.correctness import correctness
from proofs.peers.figures import SHAPES, Timing, Values, latency, polled_throughput, start_and_idle, throughput
from proofs.peers.peers import Peer
from proofs.peers.program import PeerError, build
from proofs.peers.results import Results
from proofs.peers.servers import Site, fake_kinesis, load_server

FIGURES: Final = ("throughput", "start", "idle", "latency", "correctness")
PARTS: Final = (
    *(f"throughput/{shape}" for shape in SHAPES),
    *("start/4", "start/100", "idle/100", "idle/1000", "correctness/live", "correctness/backlog"),
)
"""What can be measured alone. An idle consumer was started before: so idle/1000 also has the times of the start."""
Measure = Callable[[Peer, str], Awaitable[Values]]
"""Measures one round of a peer; the string is unique to the round."""


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the command. `progress` prints a line; `save` is called whenever a figure is complete."""

    figures: Sequence[str]
    rounds: int
    timing: Timing
    site: Site
    results: Results
    progress: Callable[[str], None]
    save: Callable[[], None]

    async def all(self, peers: Sequence[Peer]) -> None:
        """Build the peers, and measure every figure."""
        ready = [peer for peer in peers if await self._built(peer)]
        for shape in SHAPES:
            if self._wants(f"throughput/{shape}"):
                await self._throughput(shape, ready)
        for part, measure in self._parts():
            await self._rounds(part, ready, measure)

    async def _built(self, peer: Peer) -> bool:
        self.results.versions[peer.name] = peer.version
        if missing := peer.missing():
            self.results.skipped[peer.name] = missing
            self.progress(f"{peer.name}: left out, {missing}")
            return False
        try:
            self.progress(f"{peer.name}: building")
            await build(peer)
        except PeerError as error:
            self.results.failed[peer.name] = {"build": str(error)}
            self.progress(f"{peer.name}: {error}")
            return False
        return True

    async def _throughput(self, shape: str, peers: Sequence[Peer]) -> None:
        async with load_server(SHAPES[shape].options, [peer.name for peer in peers]) as server:

            async def measure(peer: Peer, run: str) -> Values:
                if not peer.polls:
                    return await throughput(peer, shape, server, self.site, self.timing)
                async with fake_kinesis() as fake:
                    return await polled_throughput(peer, shape, fake, self.site, self.timing, run)

            await self._rounds(f"throughput/{shape}", peers, measure)

    def _parts(self) -> Iterator[tuple[str, Measure]]:
        """Yield the figures that FakeKinesis serves, in parts."""
        for shards in (4, 100, 1000):
            idle = f"idle/{shards}" in PARTS and self._wants(f"idle/{shards}")
            if idle or (f"start/{shards}" in PARTS and self._wants(f"start/{shards}")):
                part = f"{'idle' if idle else 'start'}/{shards}"
                yield part, partial(self._start_and_idle, shards=shards, idle=idle)
        if self._wants("latency"):
            yield "latency", self._latency
        for kind in ("live", "backlog"):
            if self._wants(f"correctness/{kind}"):
                yield f"correctness/{kind}", partial(self._correctness, backlog=kind == "backlog")

    def _wants(self, part: str) -> bool:
        return part in self.figures or part.partition("/")[0] in self.figures

    async def _start_and_idle(self, peer: Peer, run: str, *, shards: int, idle: bool) -> Values:
        async with fake_kinesis() as fake:
            return await start_and_idle(peer, shards, fake, self.site, self.timing, run, idle=idle)

    async def _latency(self, peer: Peer, run: str) -> Values:
        async with fake_kinesis() as fake:
            return await latency(peer, fake, self.site, self.timing, run)

    async def _correctness(self, peer: Peer, run: str, *, backlog: bool) -> Values:
        if not backlog and (why := peer.reason("correctness/kill")):
            self.results.cannot.setdefault(peer.name, {})["correctness/kill"] = why
        async with fake_kinesis() as fake:
            return await correctness(peer, fake, self.site, run, self.progress, backlog=backlog)

    async def _rounds(self, part: str, peers: Sequence[Peer], measure: Measure) -> None:
        for number in range(1, self.rounds + 1):
            first = (number - 1) * len(peers) // self.rounds
            for peer in (*peers[first:], *peers[:first]):  # else one peer always follows the same other, and the start
                await self._once(part, number, peer, measure)
        self.save()

    async def _once(self, part: str, number: int, peer: Peer, measure: Measure) -> None:
        if why := peer.reason(part):
            self.results.cannot.setdefault(peer.name, {})[part] = why
            return
        if self.results.has_failed(peer.name, part):
            return
        label = f"{part}, round {number} of {self.rounds}, {peer.name}"
        self.progress(label)
        try:
            values = await measure(peer, f"{part.replace('/', '-')}-{number}")
        except Exception as error:  # noqa: BLE001 - whatever a peer does, the run continues
            self.results.failed.setdefault(peer.name, {})[part] = str(error) or type(error).__name__
            self.progress(f"{label}: failed: {error}")
            return
        self.results.add(peer.name, values)
        shown = ", ".join(f"{name.rpartition('/')[2]} {value:,.4g}" for name, value in values.items())
        self.progress(f"{label}: {shown}")
