"""One target's time with the fuzzer: its corpus, the process, its progress, and what it left behind."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from proofs.fuzz.target import Target

ENGINE: Final = (sys.executable, "-m", "proofs.fuzz.engine")
MEMORY: Final = 1024
"""MiB that a target may take: more is a failure, whatever it was fed."""
PATIENCE: Final = 30
"""Seconds that one input may take: more is a failure. Usual are milliseconds."""
_REPORT_EVERY: Final = 5.0
_GRACE: Final = 60
"""Seconds beyond the given ones until the process is ended: to import, to read its corpus, to finish an input."""

_PROGRESS: Final = re.compile(r"#(\d+)\s+\S+.*?cov: (\d+)")
_COUNT: Final = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_SEED: Final = re.compile(r"INFO: Seed: (\d+)")


@dataclass(frozen=True, slots=True)
class Result:
    """How it went. `branches`: of those that were watched, how many were reached. `kept`: inputs that failed."""

    executions: int
    seconds: float
    failures: int
    branches: int = 0
    kept: tuple[str, ...] = ()


@dataclass(slots=True)
class Progress:
    """What the fuzzer's words say so far."""

    executions: int = 0
    branches: int = 0
    seed: int = 0
    last_words: list[str] = field(default_factory=list)

    def take(self, line: str) -> None:
        """Take one line of them."""
        if match := _PROGRESS.match(line):
            self.executions, self.branches = int(match[1]), int(match[2])
        elif match := _COUNT.match(line):
            self.executions = int(match[1])
        elif match := _SEED.match(line):
            self.seed = int(match[1])
        else:
            self.last_words = [*self.last_words[-30:], line]


def fuzz(target: Target, home: Path, *, seconds: int, seed: int = 0) -> Result:
    """Fuzz one target in a process of its own; tell its progress on stderr. `seed` 0: a new one.

    A failure ends it. The input that failed is kept in `home`, and what the fuzzer said of it is shown.
    """
    corpus, failed = home / "corpus" / target.name, home / "failed" / target.name
    failed.mkdir(parents=True, exist_ok=True)
    _plant(corpus, target.seeds())
    before = set(failed.iterdir())
    words = home / f"{target.name}.words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    command = [*ENGINE, target.name, str(corpus)]
    command += [f"-max_total_time={seconds}", f"-seed={seed}", f"-dict={words}", f"-artifact_prefix={failed}/"]
    command += [f"-rss_limit_mb={MEMORY}", f"-timeout={PATIENCE}", f"-report_slow_units={PATIENCE}"]
    command += ["-print_final_stats=1", "-reload=0"]
    started = time.monotonic()
    progress, status = _watch(target.name, command, started, seconds + _GRACE)
    kept = sorted(str(path) for path in set(failed.iterdir()) - before)
    failures = max(len(kept), int(status != 0))
    if failures:
        print("\n".join(progress.last_words), file=sys.stderr)
        _say(target.name, started, f"failed with seed {progress.seed}, exit status {status}")
    return Result(progress.executions, round(time.monotonic() - started, 1), failures, progress.branches, tuple(kept))


def _watch(name: str, command: list[str], started: float, limit: float) -> tuple[Progress, int]:
    progress = Progress()
    told = started
    # The command is a process of our own.
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, errors="replace") as run:  # noqa: S603
        assert run.stderr is not None  # noqa: S101 - it was asked for
        try:
            # It says something every second at least, see `-max_total_time`; one input has `-timeout` to end.
            for line in run.stderr:
                progress.take(line.rstrip())
                now = time.monotonic()
                if now - told >= _REPORT_EVERY:
                    told = now
                    _say(name, started, f"{progress.executions:,} executions, {progress.branches:,} branches")
                if now - started > limit:
                    break
        finally:
            if run.poll() is None and time.monotonic() - started > limit:
                run.kill()
    _say(name, started, f"{progress.executions:,} executions, {progress.branches:,} branches, done")
    return progress, run.returncode


def _plant(corpus: Path, seeds: Iterable[bytes]) -> None:
    """Write the seeds that are not there yet."""
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (corpus / hashlib.sha256(seed).hexdigest()[:40]).write_bytes(seed)


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _say(name: str, since: float, what: str) -> None:
    print(f"[{name} {time.monotonic() - since:5.1f} s] {what}", file=sys.stderr, flush=True)
