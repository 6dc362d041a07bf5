"""A run: sample mutants by a seed, try each in a copy of the checkout, several at a time.

Tests come first. What they do not notice is tried by the proof, which runs whole consumers and takes longer.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from proofs.mutants.named import Equivalent, check_equivalents, read_equivalents, read_planted
from proofs.mutants.operators import Mutant, mutants_of
from proofs.mutants.sampling import select
from proofs.mutants.targets import Target, target_of
from proofs.mutants.trial import KILLED, SURVIVED, TIMEOUT, Baseline, Copy, Trial, TrialError


@dataclass(frozen=True, slots=True)
class Project:
    """What is mutated: the checkout, its targets, tests that never judge, and the file of named mutants.

    `proof`: arguments of Python, a program that also judges: it exits with 0 if it notices nothing. `tunable`:
    constants, each as `module.NAME`, that may have other values: they are not mutated.
    """

    root: Path
    targets: tuple[Target, ...]
    left_out: tuple[str, ...]
    named: Path
    proof: tuple[str, ...] = ()
    tunable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Plan:
    """The mutants of a run. `total`: all that there are. `equivalent`: the sampled ones that are named as such."""

    total: int
    tried: list[Mutant]
    equivalent: list[Mutant]


@dataclass(frozen=True, slots=True)
class Result:
    """What a run showed. `left_out`: tests that fail without a mutant, and therefore judged none."""

    plan: Plan
    trials: list[Trial]
    left_out: tuple[str, ...]

    def count(self, outcome: str) -> int:
        """Return the number of trials with this outcome."""
        return sum(trial.outcome == outcome for trial in self.trials)

    @property
    def ratio(self) -> float:
        """The share of the tried mutants that a test noticed. One that never ends is noticed by its time."""
        return (self.count(KILLED) + self.count(TIMEOUT)) / len(self.trials) if self.trials else 0.0

    @property
    def survivors(self) -> list[Trial]:
        """The trials that no test noticed, by place."""
        survivors = [trial for trial in self.trials if trial.outcome == SURVIVED]
        return sorted(survivors, key=lambda trial: (trial.mutant.path, trial.mutant.start))


def make_plan(project: Project, *, sample: int, seed: int, only: str = "") -> Plan:
    """Sample the mutants of a run; the planted ones are always in it. Raises StaleEntryError.

    `only`: sample from the modules whose path contains this.
    """
    modules = {path: text for target in project.targets for path, text in target.modules(project.root).items()}
    mutants = [
        mutant
        for path in sorted(modules)
        for mutant in mutants_of(path, modules[path])
        if mutant.constant not in project.tunable
    ]
    equivalents = read_equivalents(project.named)
    check_equivalents(equivalents, mutants)
    planted = [mutant for mutant in read_planted(project.named, modules) if only in mutant.path]
    candidates = [mutant for mutant in mutants if only in mutant.path]
    sampled = select(candidates, sample, seed)
    named = [mutant for mutant in sampled if _is_named(mutant, equivalents)]
    return Plan(len(mutants), [*planted, *(mutant for mutant in sampled if mutant not in named)], named)


def plan_equivalents(project: Project) -> Plan:
    """Return a plan that tries the mutants named as equivalent: none of them may be killed. Raises StaleEntryError."""
    plan = make_plan(project, sample=10**9, seed=0)
    return Plan(plan.total, plan.equivalent, [])


def run(
    project: Project,
    plan: Plan,
    *,
    jobs: int,
    seconds: float = float("inf"),
    report: Callable[[str], None] = lambda _line: None,
) -> Result:
    """Try the mutants of a plan. After so many seconds, no further trial begins. Raises TrialError."""
    ends_at = time.monotonic() + seconds
    with _copies(project, jobs) as copies:
        baselines = _baselines(project, plan, copies, jobs, report)
        with _borrowed(copies) as copy:
            proof = copy.proof(project.proof) if project.proof else None
        if proof is not None:
            report(f"python {' '.join(project.proof)}: {proof.seconds:.0f} s")
        left_out = tuple(sorted({test for baseline in baselines.values() for test in baseline.failing}))
        trials: list[Trial] = []
        lock = threading.Lock()

        def try_out(mutant: Mutant) -> None:
            if time.monotonic() > ends_at:
                return
            target = target_of(project.targets, mutant.path)
            baseline = baselines[target.folder]
            with _borrowed(copies) as copy:
                near, others = target.judges(copy.root, mutant.path)
                trial = copy.try_out(mutant, near, others, baseline)
                if trial.outcome == SURVIVED and proof is not None:
                    trial = copy.try_proof(mutant, proof)
            with lock:
                trials.append(trial)
                report(_line(trial, len(trials), len(plan.tried)))

        with ThreadPoolExecutor(jobs) as threads:
            try:
                for _ in threads.map(try_out, plan.tried):
                    pass
            except BaseException:  # Ctrl-C too: the trials that run are ended by their limits, and no other begins
                threads.shutdown(wait=False, cancel_futures=True)
                raise
    return Result(plan, trials, left_out)


def _is_named(mutant: Mutant, equivalents: Sequence[Equivalent]) -> bool:
    return any(entry.fits(mutant) for entry in equivalents)


def _baselines(
    project: Project, plan: Plan, copies: Queue[Copy], jobs: int, report: Callable[[str], None]
) -> dict[str, Baseline]:
    """Run the tests of the sampled folders once without a mutant. Raises TrialError."""
    folders = {target_of(project.targets, mutant.path).folder for mutant in plan.tried}

    def measure(target: Target) -> Baseline:
        modules = {mutant.path for mutant in plan.tried if Path(mutant.path).parent == Path(target.folder)}
        with _borrowed(copies) as copy:
            files = sorted({path for module in modules for paths in target.judges(copy.root, module) for path in paths})
            if not files:
                raise TrialError(f"{target.tests} has no tests for {target.folder}")
            baseline = copy.baseline(files)
        report(f"{target.folder}: {len(files)} test files take {sum(baseline.seconds.values()):.0f} s")
        for test in baseline.failing:
            report(f"  left out, since it fails without a mutant: {test}")
        return baseline

    targets = [target for target in project.targets if target.folder in folders]
    with ThreadPoolExecutor(jobs) as threads:
        return dict(zip([target.folder for target in targets], threads.map(measure, targets), strict=True))


def _line(trial: Trial, done: int, total: int) -> str:
    mutant = trial.mutant
    by = f", by {trial.by}" if trial.by else ""
    return (
        f"{done} of {total}: {trial.outcome} {mutant.path}:{mutant.line} {mutant.operator} ({trial.seconds:.1f} s{by})"
    )


@contextmanager
def _copies(project: Project, jobs: int) -> Iterator[Queue[Copy]]:
    with tempfile.TemporaryDirectory(prefix="efo-mutants-") as scratch:
        copies: Queue[Copy] = Queue()
        for number in range(jobs):
            copies.put(Copy(project.root, Path(scratch).resolve() / f"copy-{number}", project.left_out))
        yield copies


@contextmanager
def _borrowed(copies: Queue[Copy]) -> Iterator[Copy]:
    copy = copies.get()
    try:
        yield copy
    finally:
        copies.put(copy)
