"""What the Python programs share: the configuration, and the lines that a program prints. See docs/peers.md."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LATE = 0.25
"""Seconds after the last line when a batch prints one: a busy event loop delays the line of each second."""
LINE_BYTES = 4000
"""A line is shorter than PIPE_BUF, so that lines of several processes never mix."""


def configuration() -> dict[str, Any]:
    """Return the configuration, whose file is the last argument."""
    loaded: dict[str, Any] = json.loads(Path(sys.argv[-1]).read_text())
    return loaded


class Meter:
    """Counts what a handler received, and prints lines of JSON.

    `source`: the name of this counter, where a peer has several processes.
    """

    def __init__(self, config: dict[str, Any], *, output: str | None = None, source: str = "") -> None:
        self.report = config["report"]
        self.records = self.bytes = 0
        self._expected = config["expected"]
        self._source = source
        self._latencies: list[int] = []
        self._lock = threading.Lock()
        self._printed_at = time.monotonic()
        self._descriptor = 1 if output is None else os.open(output, os.O_WRONLY)

    def add(self, records: int, size: int) -> None:
        """Count a batch. Until the expected records are here, each batch prints a line."""
        with self._lock:
            due = self.records < self._expected or time.monotonic() - self._printed_at > LATE
            self.records += records
            self.bytes += size
        if due and records:
            self.print_counts()

    def details(self, items: Iterable[tuple[str, bytes]]) -> None:
        """Report keys and data of a batch as the figure needs them: latencies, or each record's key and number."""
        if self.report == "latencies":
            now = time.time_ns()
            with self._lock:
                self._latencies.extend((now - int(data.split(b" ", 2)[1])) // 1000 for _, data in items)
        elif self.report == "numbers":
            self._print_seen([f"{key}:{data.partition(b' ')[0].decode()}" for key, data in items])

    def print_counts(self) -> None:
        """Print what was counted until now."""
        with self._lock:
            self._printed_at = time.monotonic()
            latencies, self._latencies = self._latencies, []
            line = {"t": time.time(), "records": self.records, "bytes": self.bytes, "source": self._source}
        for start in range(0, max(1, len(latencies)), 400):
            self._print(line | {"latencies": " ".join(map(str, latencies[start : start + 400]))})

    def stopped(self) -> None:
        """Print the last counts, and that the program stopped cleanly."""
        self.print_counts()
        self._print({"stopped": time.time(), "records": self.records})

    def every_second(self) -> None:
        """Print the counts each second, for ever."""
        while True:
            time.sleep(1)
            self.print_counts()

    def _print_seen(self, seen: list[str]) -> None:
        for start in range(0, len(seen), 150):
            self._print({"seen": " ".join(seen[start : start + 150])})

    def _print(self, line: dict[str, Any]) -> None:
        encoded = json.dumps(line).encode() + b"\n"
        if len(encoded) > LINE_BYTES:
            raise ValueError(f"a line of {len(encoded)} bytes: expected at most {LINE_BYTES}")
        os.write(self._descriptor, encoded)
