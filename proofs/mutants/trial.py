"""Trials of mutants in a copy of the checkout: pytest and a proof, each in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Final

from proofs.mutants.calls import ANY
from proofs.mutants.operators import Mutant

KILLED: Final = "killed"
SURVIVED: Final = "survived"
TIMEOUT: Final = "timeout"
BY_PROOF: Final = "the proof"
_NOT_COPIED: Final = shutil.ignore_patterns(
    ".git", ".venv", ".tools", "__pycache__", ".*_cache", ".hypothesis", "var", "build", "dist"
)
_MIN_TEST_SECONDS: Final = 20
_TEST_FACTOR: Final = 2
"""A test may take this many times the CPU time of the slowest one while calls are noted, which itself takes longer."""
_IDLE_SECONDS: Final = 30
"""How long a test may wait without using CPU time, as one that waits for a process or a server does."""
_TOTAL_FACTOR: Final = 20
"""The limit of all tests, by the clock: for what hangs before the first test. The machine may be much busier then."""
_START_SECONDS: Final = 60
"""How long pytest may take to start and to import the tests."""
_BASELINE_SECONDS: Final = 1800
_PROOF_FACTOR: Final = 5
_PROOF_SECONDS: Final = 60
"""A proof may take this many times the CPU time that it takes without a mutant, and so many seconds."""
_OUT_OF_TIME: Final = {-signal.SIGPROF, -signal.SIGXCPU, -signal.SIGKILL}
_NO_VERDICT: Final = {4, 5}
"""Exit statuses of pytest: its arguments are wrong, no test was found. The first also if a mutant breaks a conftest."""
_PLUGINS: Final = {"_efo_time_limit": "time_limit.py", "_efo_calls": "calls.py"}


class TrialError(Exception):
    """Tests cannot be run, so nothing is shown."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the tests do without a mutant. `failing`: those that fail, which then judge no mutant.

    `seconds`: CPU time of each test file. `slowest`: that of one test. `calls`: the functions that each test calls.
    """

    seconds: dict[str, float]
    slowest: float
    failing: tuple[str, ...]
    calls: Mapping[str, frozenset[str]]

    @property
    def test_seconds(self) -> int:
        """How much CPU time a test may take with a mutant."""
        return max(_MIN_TEST_SECONDS, int(_TEST_FACTOR * self.slowest))

    @property
    def total_seconds(self) -> float:
        """How long all tests may take with a mutant."""
        return _START_SECONDS + _TOTAL_FACTOR * (self.test_seconds + sum(self.seconds.values()))

    def quickest_first(self, files: Iterable[str]) -> list[str]:
        """Return the files in the order of their seconds."""
        return sorted(files, key=lambda path: self.seconds.get(path, 0.0))

    def callers(self, mutant: Mutant, files: Sequence[str]) -> dict[str, list[str]]:
        """Return the tests of some files that call the mutant's function, by file: no other test can notice it.

        All tests, if the mutant is outside of all functions, or in one that is called before the first test.
        """
        wanted = {ANY, f"{mutant.path} {mutant.function}"}
        is_called_by_all = not mutant.in_function or not wanted.isdisjoint(self.calls.get("", frozenset()))
        found: defaultdict[str, list[str]] = defaultdict(list)
        for test, calls in self.calls.items():
            if (path := test.partition("::")[0]) in files and (is_called_by_all or not wanted.isdisjoint(calls)):
                found[path].append(test)
        return dict(found)


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one mutant: KILLED, SURVIVED or TIMEOUT. `by`: the test that noticed."""

    mutant: Mutant
    outcome: str
    by: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Proof:
    """A program that notices mutants. `arguments`: of Python. `seconds`: its CPU time without a mutant."""

    arguments: Sequence[str]
    seconds: float


class Copy:
    """A copy of the checkout, in which one mutant at a time is tried."""

    def __init__(self, root: Path, directory: Path, left_out: Sequence[str]) -> None:
        self.root = directory
        self._tests = directory.with_suffix(".json")
        self._left_out = left_out
        shutil.copytree(root, directory, ignore=_NOT_COPIED, symlinks=True)
        for name, plugin in _PLUGINS.items():
            shutil.copy(Path(__file__).with_name(plugin), directory / f"{name}.py")

    def baseline(self, files: Sequence[str]) -> Baseline:
        """Run test files without a mutant. Raises TrialError."""
        limits = (_BASELINE_SECONDS, _BASELINE_SECONDS, _BASELINE_SECONDS)
        self._tests.unlink(missing_ok=True)
        status, output = self._run(files, *limits, EFO_CALLS=str(self._tests))
        if status not in {0, 1} or not self._tests.exists():
            raise TrialError(f"the tests do not run without a mutant (exit status {status}):\n{output[-3000:]}")
        failing = _failed_tests(output)
        if failing:  # some measure CPU time, which tracing takes too
            failing = _failed_tests(self._run(failing, *limits)[1])
        noted = json.loads(self._tests.read_text())
        seconds: defaultdict[str, float] = defaultdict(float)
        for test, used in noted["seconds"].items():
            seconds[test.partition("::")[0]] += used
        calls = {test: frozenset(functions) for test, functions in noted["calls"].items()}
        return Baseline(dict(seconds), max(noted["seconds"].values(), default=0.0), tuple(failing), calls)

    def try_out(self, mutant: Mutant, near: Sequence[str], others: Sequence[str], baseline: Baseline) -> Trial:
        """Run tests with a mutant, up to the first that notices it: all of `near`, then of `others` those that call it.

        Raises TrialError.
        """
        chosen = baseline.callers(mutant, others)
        self._tests.write_text(json.dumps(chosen))
        files = [*near, *baseline.quickest_first(chosen)]
        if not files:
            return Trial(mutant, SURVIVED, "", 0.0)
        arguments = ["-x", *(f"--deselect={test}" for test in baseline.failing), *files]
        limits = (baseline.test_seconds, _IDLE_SECONDS, baseline.total_seconds)
        started_at = time.monotonic()
        with self._mutated(mutant):
            status, output = self._run(arguments, *limits, EFO_CHOSEN=str(self._tests))
        seconds = time.monotonic() - started_at
        if status in _NO_VERDICT and "ImportError while loading conftest" not in output:
            raise TrialError(f"no test judges {mutant.path} (exit status {status}):\n{output[-3000:]}")
        if status == 0:
            return Trial(mutant, SURVIVED, "", seconds)
        if status in _OUT_OF_TIME:
            return Trial(mutant, TIMEOUT, "", seconds)
        return Trial(mutant, KILLED, next(iter(_failed_tests(output)), "the import of its tests"), seconds)

    def proof(self, arguments: Sequence[str]) -> Proof:
        """Run a proof without a mutant. Raises TrialError."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        status, output = self._start([sys.executable, *arguments], _BASELINE_SECONDS)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if status != 0:
            raise TrialError(f"the proof fails without a mutant (exit status {status}):\n{output[-3000:]}")
        return Proof(arguments, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    def try_proof(self, mutant: Mutant, proof: Proof) -> Trial:
        """Run a proof with a mutant."""
        started_at = time.monotonic()
        cpu_seconds = int(_PROOF_FACTOR * proof.seconds) + _PROOF_SECONDS
        with self._mutated(mutant):
            status, _ = self._start(
                [sys.executable, *proof.arguments], _TOTAL_FACTOR * cpu_seconds, cpu_seconds=cpu_seconds
            )
        seconds = time.monotonic() - started_at
        outcome = SURVIVED if status == 0 else TIMEOUT if status in _OUT_OF_TIME else KILLED
        return Trial(mutant, outcome, BY_PROOF if outcome == KILLED else "", seconds)

    @contextmanager
    def _mutated(self, mutant: Mutant) -> Iterator[None]:
        path = self.root / mutant.path
        source = path.read_bytes()
        compiled = Path(cache_from_source(str(path)))  # judged by time and size, which may stay the same
        try:
            path.write_bytes(mutant.apply(source))
            compiled.unlink(missing_ok=True)
            yield
        finally:
            path.write_bytes(source)
            compiled.unlink(missing_ok=True)

    def _run(
        self, arguments: Sequence[str], test_seconds: int, idle_seconds: int, seconds: float, **variables: str
    ) -> tuple[int, str]:
        """Run pytest; return its exit status, or minus the signal that ended it, and its output.

        `test_seconds`, `idle_seconds`: the limits of one test, see `time_limit`. `seconds`: the limit of all.
        `variables`: of the environment.
        """
        variables |= {"EFO_TEST_SECONDS": str(test_seconds), "EFO_IDLE_SECONDS": str(idle_seconds)}
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider"]
        command += [*(f"-p{name}" for name in _PLUGINS), *(f"--deselect={test}" for test in self._left_out), *arguments]
        return self._start(command, seconds, variables=variables)

    def _start(
        self,
        command: Sequence[str],
        seconds: float,
        *,
        cpu_seconds: int | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int, str]:
        """Run a program; return its exit status, or minus the signal that ended it, and its output."""
        path = {"PYTHONPATH": os.pathsep.join([str(self.root), str(self.root / "service")])}
        environment = {**os.environ, **variables, **path}
        with TemporaryFile() as file:  # no pipe: a process that a test left running would keep it open
            process = subprocess.Popen(  # noqa: S603  pytest with paths of this checkout
                command, cwd=self.root, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
            if cpu_seconds is not None:
                resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
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
