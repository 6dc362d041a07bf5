"""Runs situations, each in a process of its own, and tells what was seen in a table and one line of JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pkgutil
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Final

from proofs.paths import ROOT
from proofs.situations.situation import CANARY, Cases, Outcome, Situation

_RESULT: Final = "situation-result: "
_KEPT: Final = ("PATH", "LANG", "LC_ALL", "JAVA_HOME", "VIRTUAL_ENV")
"""Variables of the environment that a situation sees; it sees no other."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen in a situation. `output`: what its process printed, if that is of interest."""

    kind: str
    name: str
    right: str
    did: str
    is_wrong: bool
    counts: Mapping[str, float]
    secrets_found: int
    is_hung: bool
    is_crashed: bool
    seconds: float
    output: str = ""


def run_command(package: str, description: str, names: Sequence[str] | Mapping[str, str]) -> int:
    """Run the command of a package of cases. `names`: the counts of its line of JSON, in their order.

    A mapping has all names of that line, each with the count that it shows; a sequence follows `cases` and `wrong`.
    Returns the exit status: 1 if anything was wrong.
    """
    options = _parse(package, description)
    situations = find_situations(f"{package}.cases")
    if options.child is not None:
        return _child(next(each for each in situations if each.name == options.child))
    chosen = [each for each in situations if not options.only or any(o in (each.kind, each.name) for o in options.only)]
    if not chosen:
        kinds = ", ".join(sorted({each.kind for each in situations}))
        print(f"no case has this kind or name; the kinds are {kinds}", file=sys.stderr)
        return os.EX_USAGE
    with ThreadPoolExecutor(options.jobs) as executor:
        seen = [*executor.map(lambda each: _tell(try_in_process(package, each), json_only=options.json), chosen)]
    if not options.json:
        _print_table(seen)
    if isinstance(names, Mapping):
        counts = summarise(seen, [*names.values()])
        print(json.dumps({name: counts[count] for name, count in names.items()}))
    else:
        print(json.dumps(summarise(seen, names)))
    return int(any(each.is_wrong for each in seen))


def find_situations(package: str) -> list[Situation]:
    """Return the situations of all modules of a package, which each have a `cases`."""
    found: list[Situation] = []
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        cases = importlib.import_module(f"{package}.{info.name}").__dict__.get("cases")
        if isinstance(cases, Cases):
            found += cases.situations
    names = [each.name for each in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two situations have one name: {', '.join(sorted(twice))}")
    return found


def summarise(seen: Sequence[Seen], names: Sequence[str]) -> dict[str, float]:
    """Return the counts of the line of JSON, by these names; those that no case counted are 0.

    `hung`, `crashed`: processes of cases, and those that cases themselves have started and counted.
    """
    known: dict[str, float] = {
        "cases": len(seen),
        "wrong": sum(each.is_wrong for each in seen),
        "hung": sum(each.is_hung + each.counts.get("hung", 0) for each in seen),
        "crashed": sum(each.is_crashed + each.counts.get("crashed", 0) for each in seen),
        "secrets_found": sum(each.secrets_found for each in seen),
    }
    for name in names:
        values = [each.counts[name] for each in seen if name in each.counts]
        if name not in known:
            known[name] = max(values, default=0) if name.endswith("_worst") else sum(values)
    return {name: known[name] for name in ("cases", "wrong", *(n for n in names if n not in {"cases", "wrong"}))}


def try_in_process(package: str, situation: Situation) -> Seen:
    """Try a situation in a new process, with an empty home."""
    started = time.monotonic()
    is_hung = False
    with TemporaryDirectory(prefix="efo-situation-") as home:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment |= {"HOME": home, "PYTHONPATH": str(ROOT), "AWS_EC2_METADATA_DISABLED": "true", "TMPDIR": home}
        command = [sys.executable, "-m", package, "--child", situation.name]
        try:
            process = subprocess.run(  # noqa: S603 - our own module
                command, cwd=home, env=environment, capture_output=True, timeout=situation.seconds, check=False
            )
            out, err, status = process.stdout, process.stderr, process.returncode
        except subprocess.TimeoutExpired as late:
            out, err, status, is_hung = late.stdout or b"", late.stderr or b"", -1, True
    output = (out + err).decode(errors="replace")
    result = next((line for line in output.splitlines() if line.startswith(_RESULT)), None)
    secrets = output.count(CANARY)
    if result is None:
        did = f"nothing within {situation.seconds:g} s" if is_hung else f"its process ended with status {status}"
        outcome = Outcome(did, is_right=False)
    else:
        outcome = Outcome(**json.loads(result.removeprefix(_RESULT)))
    is_wrong = not outcome.is_right or secrets > 0
    return Seen(
        situation.kind,
        situation.name,
        situation.right,
        outcome.did,
        is_wrong,
        outcome.counts,
        secrets,
        is_hung,
        is_crashed=status < 0 and not is_hung,
        seconds=time.monotonic() - started,
        output=output if is_wrong else "",
    )


def _child(situation: Situation) -> int:
    import logging  # noqa: PLC0415 - of the child alone

    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    try:
        outcome = situation.run()
    except Exception as error:  # noqa: BLE001 - the runner tells it
        traceback.print_exc()
        outcome = Outcome(f"raised {type(error).__name__}", is_right=False)
    print(_RESULT + json.dumps(asdict(outcome)), flush=True)
    return 0


def _tell(seen: Seen, *, json_only: bool) -> Seen:
    """Report progress, and all that a process printed if it was wrong."""
    if not json_only:
        mark = "WRONG" if seen.is_wrong else "right"
        print(f"{mark}  {seen.seconds:5.1f} s  {seen.kind}: {seen.name}", file=sys.stderr, flush=True)
        if seen.is_wrong:
            print("\n".join(f"       {line[:300]}" for line in seen.output.splitlines()[-40:]), file=sys.stderr)
    return seen


def _print_table(seen: Sequence[Seen]) -> None:
    width = max(len(each.name) for each in seen)
    kind = None
    for each in sorted(seen, key=lambda each: each.kind):
        if each.kind != kind:
            kind = each.kind
            print(f"\n{kind}")
        mark = "WRONG" if each.is_wrong else "right"
        found = f"; {each.secrets_found} secrets found" if each.secrets_found else ""
        print(f"  {mark}  {each.name:{width}}  {each.did}{found}")
        if each.is_wrong:
            print(f"         {'':{width}}  right is: {each.right}")
    print()


def _parse(package: str, description: str) -> argparse.Namespace:
    summary, _, example = description.rpartition("\n\n")
    parser = argparse.ArgumentParser(
        prog=f"python -m {package}",
        description=summary,
        epilog=example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("only", nargs="*", metavar="kind", help="kinds or names of cases; default: all")
    parser.add_argument("--jobs", type=int, default=math.ceil((os.cpu_count() or 2) / 2), help="cases at a time")
    parser.add_argument("--json", action="store_true", help="print only the line of JSON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()
