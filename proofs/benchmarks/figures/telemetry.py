"""What metrics, traces and KCL's metrics cost the data path, as a quotient of CPU times per record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from proofs.benchmarks.fake import Server
from proofs.benchmarks.figures.results import Measured, measured
from proofs.benchmarks.figures.throughput import SHAPES
from proofs.benchmarks.readers.running import PATIENCE, ClientError, Timing, client

READER: Final = "proofs.benchmarks.readers.telemetry_reader"
SAMPLERS: Final[Mapping[str, str]] = {"sampled": "0.01", "always_on": "always_on"}
BLOCKS: Final = 3
"""How many quotients a window of the timing gives. Each takes two seconds for one."""
SINGLE: Final = ["--record-bytes", "200", "--records-per-event", "1"]


def telemetry(timing: Timing) -> dict[str, Measured]:
    """Measure each shape with both samplers, and events of one record with spans of one batch of a hundred."""
    found = {}
    for shape in ("1kb", "200b"):
        with Server(SHAPES[shape]) as server:
            for name, sampler in SAMPLERS.items():
                found[f"telemetry_{shape}_{name}"] = _ratio(server, sampler, timing)
    with Server(SINGLE) as server:
        found["telemetry_one_record_sampled"] = _ratio(server, SAMPLERS["sampled"], timing)
    return found


def _ratio(server: Server, sampler: str, timing: Timing) -> Measured:
    blocks = timing.windows * BLOCKS
    arguments = [json.dumps(server.served), server.next_consumer(), sampler, str(timing.seconds), str(blocks)]
    with client(READER, arguments, 2 * timing.seconds * (blocks + 1) + PATIENCE) as process:
        assert process.stdout is not None
        ratios = [json.loads(line)["ratio"] for line in process.stdout]
        if len(ratios) < blocks:
            raise ClientError(f"it ended after {len(ratios)} of {blocks} blocks, with exit code {process.wait()}")
    return measured(ratios)
