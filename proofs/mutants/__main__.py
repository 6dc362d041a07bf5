"""`python -m proofs.mutants --seed 1 --sample 100`: change the code in small ways, and see what notices.

Tests judge first, then the simulation, on what they did not notice.

Prints each trial to stderr, then the survivors with their changes and, last, one line of JSON.

Exit status: 0 if at least 95 % of the tried mutants were killed, 1 if not, 2 if the run shows nothing: an entry of
named.toml fits no mutant, tests do not run, or the arguments are invalid.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from proofs.mutants.named import StaleEntryError
from proofs.mutants.run import Project, Result, make_plan, plan_equivalents, run
from proofs.mutants.targets import LEFT_OUT, TARGETS
from proofs.mutants.trial import BY_PROOF, KILLED, SURVIVED, TIMEOUT, TrialError
from proofs.paths import ROOT
from proofs.simulation.constants import PERTURBED

NAMED: Final = Path(__file__).with_name("named.toml")
SIMULATION: Final = ("-m", "proofs.simulation", "--seeds", "100", "--jobs", "1", "--json")
EFO: Final = Project(ROOT, TARGETS, LEFT_OUT, NAMED, SIMULATION, frozenset(PERTURBED))
MIN_RATIO: Final = 0.95


def main(arguments: Sequence[str] | None = None, project: Project = EFO) -> int:
    """Run the command."""
    options = _options(arguments)
    try:
        if options.equivalents:
            plan = plan_equivalents(project)
        else:
            plan = make_plan(project, sample=options.sample, seed=options.seed, only=options.only)
        _report(f"{plan.total} mutants, {len(plan.tried)} to try, {len(plan.equivalent)} sampled are named equivalent")
        result = run(project, plan, jobs=options.jobs, seconds=60 * options.minutes, report=_report)
    except (StaleEntryError, TrialError) as error:
        print(error, file=sys.stderr)
        return 2
    _print_survivors(result)
    for test in result.left_out:
        print(f"left out, since it fails without a mutant: {test}")
    print(json.dumps(_summary(result, options.seed)), flush=True)
    if options.equivalents:
        killed = [trial for trial in result.trials if trial.outcome != SURVIVED]
        for trial in killed:
            print(
                f"not equivalent: {trial.mutant.path}:{trial.mutant.line}, {trial.by or 'by its time'}", file=sys.stderr
            )
        return 1 if killed else 0
    return 0 if result.ratio >= MIN_RATIO else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m proofs.mutants",
        description="Change the code in small ways, one at a time, and see whether a test notices.",
        epilog="example: make mutants SEED=7 SAMPLE=50 ARGS='--only efo/protocol/pacing.py'",
    )
    parser.add_argument("--seed", type=int, default=1, help="selects the sample (default: 1)")
    parser.add_argument("--sample", type=int, default=100, help="how many mutants (default: 100)")
    parser.add_argument("--only", default="", help="sample from the modules whose path contains this")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further trial after this time")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="trials at a time (default: one per core)"
    )
    parser.add_argument(
        "--equivalents", action="store_true", help="try the mutants named equivalent: a killed one is named wrongly"
    )
    options = parser.parse_args(arguments)
    for name in ("sample", "jobs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: expected 1 or more")
    return options


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_survivors(result: Result) -> None:
    for trial in result.survivors:
        mutant = trial.mutant
        print(f"\nsurvived: {mutant.path}:{mutant.line} {mutant.function} ({mutant.operator})")
        for sign, text in (("-", mutant.before), ("+", mutant.after)):
            for line in text.splitlines():
                print(f"    {sign} {line}")
    print()


def _summary(result: Result, seed: int) -> dict[str, float]:
    return {
        "mutants": result.plan.total,
        "sampled": len(result.trials) + len(result.plan.equivalent),
        "killed": result.count(KILLED),
        "killed_by_simulation": sum(trial.by == BY_PROOF for trial in result.trials),
        "survived": result.count(SURVIVED),
        "timeouts": result.count(TIMEOUT),
        "equivalent": len(result.plan.equivalent),
        "ratio": round(result.ratio, 4),
        "seed": seed,
    }


if __name__ == "__main__":
    sys.exit(main())
