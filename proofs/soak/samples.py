"""What is sampled of the service while it runs: from /proc, from its task counter, and from the log that it writes."""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
COUNTS: Final = struct.Struct("<qq")
"""The file of the counter: tasks, and blocks of Python's allocator in use. proofs.soak.service writes it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample. `at`: seconds since the start. `rss`: MB. `lag`: seconds, of the oldest record not in the log."""

    at: float
    rss: float
    blocks: int
    tasks: int
    descriptors: int
    threads: int
    lag: float


def lag_of(puts: Sequence[tuple[float, int]], in_log: int, now: float) -> float:
    """Return how long ago the first record was put that the log does not count; 0 if it holds all.

    `puts`: pairs of a time and how many records had been put by then. Records of different shards arrive in any order,
    so this is the lag of the whole stream.
    """
    later = bisect_right(puts, in_log, key=lambda put: put[1])
    return max(0.0, now - puts[later][0]) if later < len(puts) else 0.0


def parse_threads(status: str) -> int:
    """Return the number of threads from /proc/PID/status (proc(5))."""
    return int(status.partition("\nThreads:")[2].split(maxsplit=1)[0])


def read_sample(pid: int, counts: Path, *, at: float, lag: float) -> Sample:
    """Read what the process uses now. OSError: it has ended."""
    process = Path("/proc") / str(pid)
    tasks, blocks = COUNTS.unpack(counts.read_bytes())
    return Sample(
        at=round(at, 2),
        rss=round(int((process / "statm").read_text().split()[1]) * _PAGE / 1e6, 2),
        blocks=blocks,
        tasks=tasks,
        descriptors=sum(1 for _ in (process / "fd").iterdir()),
        threads=parse_threads((process / "status").read_text()),
        lag=round(lag, 2),
    )
