"""Trials of mutants: pytest in a copy of the checkout, in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from proofs.mutants.operators import Mutant

KILLED: Final = "killed"
SURVIVED: Final = "survived"
TIMEOUT: Final = "timeout"
_NOT_COPIED: Final = shutil.ignore_patterns(
    ".git", ".venv", ".tools", "__pycache__", ".*_cache", ".hypothesis", "var", "build", "dist"
)
_MIN_TEST_SECONDS: Final = 20
_TEST_FACTOR: Final = 5
"""A test may take this many times as long as without a mutant: the machine may be busier then."""
_START_SECONDS: Final = 60
"""How long pytest may take to start and to import the tests."""
_BASELINE_SECONDS: Final = 1800
_NO_VERDICT: Final = {4, 5}
"""Exit statuses of pytest: its arguments are wrong, no test was found. The first also if a mutant breaks a conftest."""
_PLUGIN: Final = Path(__file__).with_name("time_limit.py")


class TrialError(Exception):
    """Tests cannot be run, so nothing is shown."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the tests do without a mutant. `failing`: those that fail, which then judge no mutant.

    `seconds`: of each test file. `slowest`: of one test.
    """

    seconds: dict[str, float]
    slowest: float
    failing: tuple[str, ...]

    @property
    def test_seconds(self) -> int:
        """How long a test may take with a mutant."""
        return max(_MIN_TEST_SECONDS, int(_TEST_FACTOR * self.slowest))

    @property
    def total_seconds(self) -> float:
        """How long all tests may take with a mutant."""
        return _START_SECONDS + self.test_seconds + _TEST_FACTOR * sum(self.seconds.values())

    def quickest_first(self, files: Sequence[str]) -> list[str]:
        """Return the files in the order of their seconds."""
        return sorted(files, key=lambda path: self.seconds.get(path, 0.0))


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one mutant: KILLED, SURVIVED or TIMEOUT. `by`: the test that noticed."""

    mutant: Mutant
    outcome: str
    by: str
    seconds: float


class Copy:
    """A copy of the checkout, in which one mutant at a time is tried."""

    def __init__(self, root: Path, directory: Path, left_out: Sequence[str]) -> None:
        self.root = directory
        self._report = directory.with_suffix(".xml")
        self._left_out = left_out
        shutil.copytree(root, directory, ignore=_NOT_COPIED, symlinks=True)
        shutil.copy(_PLUGIN, directory / "_efo_time_limit.py")

    def baseline(self, files: Sequence[str]) -> Baseline:
        """Run test files without a mutant. Raises TrialError."""
        status, output = self._run([*files, f"--junit-xml={self._report}"], _BASELINE_SECONDS, _BASELINE_SECONDS)
        if status not in {0, 1} or not self._report.exists():
            raise TrialError(f"the tests do not run without a mutant (exit status {status}):\n{output[-3000:]}")
        cases = list(ET.parse(self._report).iter("testcase"))  # noqa: S314  a file that pytest wrote here
        seconds: defaultdict[str, float] = defaultdict(float)
        for case in cases:
            seconds[_file_of(case, files)] += float(case.get("time", 0))
        return Baseline(
            dict(seconds),
            max((float(case.get("time", 0)) for case in cases), default=0.0),
            tuple(_failed_tests(output)),
        )

    def try_out(self, mutant: Mutant, files: Sequence[str], baseline: Baseline) -> Trial:
        """Run test files with a mutant, up to the first test that notices it. Raises TrialError."""
        path = self.root / mutant.path
        source = path.read_bytes()
        without = [f"--deselect={test}" for test in baseline.failing]
        started_at = time.monotonic()
        compiled = Path(cache_from_source(str(path)))  # judged by time and size, which may stay the same
        try:
            path.write_bytes(mutant.apply(source))
            compiled.unlink(missing_ok=True)
            status, output = self._run(["-x", *without, *files], baseline.test_seconds, baseline.total_seconds)
        finally:
            path.write_bytes(source)
            compiled.unlink(missing_ok=True)
        seconds = time.monotonic() - started_at
        if status in _NO_VERDICT and "ImportError while loading conftest" not in output:
            raise TrialError(f"no test judges {mutant.path} (exit status {status}):\n{output[-3000:]}")
        if status == 0:
            return Trial(mutant, SURVIVED, "", seconds)
        if status in {-signal.SIGALRM, -signal.SIGKILL}:
            return Trial(mutant, TIMEOUT, "", seconds)
        return Trial(mutant, KILLED, next(iter(_failed_tests(output)), "the import of its tests"), seconds)

    def _run(self, arguments: Sequence[str], test_seconds: int, seconds: float) -> tuple[int, str]:
        """Run pytest; return its exit status, or minus the signal that ended it, and its output.

        `test_seconds`: the limit of one test. `seconds`: the limit of all, for what hangs before the first test.
        """
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(self.root), str(self.root / "service")]),
            "EFO_TEST_SECONDS": str(test_seconds),
        }
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider"]
        command += ["-p", "_efo_time_limit", *(f"--deselect={test}" for test in self._left_out), *arguments]
        with TemporaryFile() as file:  # no pipe: a process that a test left running would keep it open
            process = subprocess.Popen(  # noqa: S603  pytest with paths of this checkout
                command, cwd=self.root, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = -signal.SIGKILL
            finally:
                _end_group(process.pid)
                process.wait()
            file.seek(0)
            return status, file.read().decode(errors="replace")


def _end_group(group: int) -> None:
    """End what the tests started and left running."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _failed_tests(output: str) -> list[str]:
    lines = (line.split(" ", 1) for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return [rest.split(" - ")[0].strip() for _, rest in lines]


def _file_of(case: ET.Element, files: Sequence[str]) -> str:
    name = case.get("classname", "").replace(".", "/")
    return next((path for path in files if name.startswith(path.removesuffix(".py"))), name)
