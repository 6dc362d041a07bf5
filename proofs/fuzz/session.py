"""Fuzzes one target: writes its corpus, runs the fuzzer's process, reports progress, and collects failed inputs."""

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
MEMORY_LIMIT: Final = 1024
"""MiB of memory for a target. More is a failure."""
INPUT_TIMEOUT: Final = 30
"""Seconds for one input. More is a failure; most inputs take milliseconds."""
_REPORT_INTERVAL: Final = 5.0
_GRACE: Final = 60
"""Seconds after the given time until the process is killed. It imports, reads its corpus and ends the last input."""

_PROGRESS: Final = re.compile(r"#(\d+)\s+\S+.*?cov: (\d+)")
_COUNT: Final = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_SEED: Final = re.compile(r"INFO: Seed: (\d+)")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a target. `branches`: how many instrumented branches it reached. `kept`: files of failed inputs."""

    executions: int
    seconds: float
    failures: int
    branches: int = 0
    kept: tuple[str, ...] = ()


@dataclass(slots=True)
class Progress:
    """The progress that the fuzzer has printed. `last_lines`: its last lines with other text."""

    executions: int = 0
    branches: int = 0
    seed: int = 0
    last_lines: list[str] = field(default_factory=list)

    def parse(self, line: str) -> None:
        """Parse one line of the fuzzer's output."""
        if match := _PROGRESS.match(line):
            self.executions, self.branches = int(match[1]), int(match[2])
        elif match := _COUNT.match(line):
            self.executions = int(match[1])
        elif match := _SEED.match(line):
            self.seed = int(match[1])
        else:
            self.last_lines = [*self.last_lines[-30:], line]


def fuzz(target: Target, home: Path, *, seconds: int, seed: int = 0) -> Result:
    """Fuzz one target in a separate process, and print progress on stderr. `seed` 0: a random seed.

    The first failure ends the process. The failed input is kept in `home`, and the fuzzer's last lines are printed.
    """
    corpus, failed = home / "corpus" / target.name, home / "failed" / target.name
    failed.mkdir(parents=True, exist_ok=True)
    _write_seeds(corpus, target.seeds())
    before = set(failed.iterdir())
    dictionary = home / f"{target.name}.words"
    dictionary.write_text("".join(f'"{_escaped(word)}"\n' for word in target.dictionary))
    command = [*ENGINE, target.name, str(corpus)]
    command += [f"-max_total_time={seconds}", f"-seed={seed}", f"-dict={dictionary}", f"-artifact_prefix={failed}/"]
    command += [f"-rss_limit_mb={MEMORY_LIMIT}", f"-timeout={INPUT_TIMEOUT}", f"-report_slow_units={INPUT_TIMEOUT}"]
    command += ["-print_final_stats=1", "-reload=0"]
    started = time.monotonic()
    progress, status = _run(target.name, command, started, seconds + _GRACE)
    kept = sorted(str(path) for path in set(failed.iterdir()) - before)
    failures = max(len(kept), int(status != 0))
    if failures:
        print("\n".join(progress.last_lines), file=sys.stderr)
        _report(target.name, started, f"failed with seed {progress.seed}, exit status {status}")
    return Result(progress.executions, round(time.monotonic() - started, 1), failures, progress.branches, tuple(kept))


def _run(name: str, command: list[str], started: float, limit: float) -> tuple[Progress, int]:
    progress = Progress()
    reported = started
    # The command is our own program.
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, errors="replace") as process:  # noqa: S603
        assert process.stderr is not None  # noqa: S101 - for the type checker
        try:
            # With `-max_total_time` it prints a line at least every second, and `-timeout` limits each input.
            for line in process.stderr:
                progress.parse(line.rstrip())
                now = time.monotonic()
                if now - reported >= _REPORT_INTERVAL:
                    reported = now
                    _report(name, started, f"{progress.executions:,} executions, {progress.branches:,} branches")
                if now - started > limit:
                    break
        finally:
            if process.poll() is None and time.monotonic() - started > limit:
                process.kill()
    _report(name, started, f"{progress.executions:,} executions, {progress.branches:,} branches, done")
    return progress, process.returncode


def _write_seeds(corpus: Path, seeds: Iterable[bytes]) -> None:
    """Write the seeds to the corpus."""
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (corpus / hashlib.sha256(seed).hexdigest()[:40]).write_bytes(seed)


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _report(name: str, started: float, what: str) -> None:
    print(f"[{name} {time.monotonic() - started:5.1f} s] {what}", file=sys.stderr, flush=True)
