"""`python -m proofs.fuzz`: fuzz each target for a while, print a table and, last, one line of JSON.

Exit status: 0 if nothing was found, 1 if something was, 2 for wrong arguments, 69 where atheris has no wheel.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from proofs.fuzz.session import Result, fuzz
from proofs.fuzz.targets import TARGETS

HOME: Final = Path("var/fuzz")
"""Inputs that reached new branches, kept from run to run, those that failed, and the fuzzer's own words."""
UNAVAILABLE: Final = 69

_EPILOG: Final = """examples:
  make fuzz                                  all targets, a minute each
  make fuzz SECONDS=600 ARGS="http2 frames"  two of them, ten minutes each
  make fuzz ARGS="--repeat FILE http2"       check one input again, without a fuzzer
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parser().parse_args(arguments)
    names: list[str] = options.target or list(TARGETS)
    if unknown := set(names) - TARGETS.keys():
        print(f"no target is called {', '.join(sorted(unknown))}. There are: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    if options.repeat is not None:
        return _repeat(names, options.repeat)
    if importlib.util.find_spec("atheris") is None:
        print(
            f"atheris is not installed: it has wheels for CPython 3.11 to 3.13 on Linux for x86-64, and this is "
            f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} for "
            f"{platform.machine()}. Use `make PYTHON=... fuzz` with such a one, after removing .tools/fuzz. The same "
            "properties are in the test suite, fed by Hypothesis: make test ARGS='-k test_any'",
            file=sys.stderr,
        )
        return UNAVAILABLE
    results = {name: fuzz(TARGETS[name], options.home, seconds=options.seconds, seed=options.seed) for name in names}
    _print_table(results)
    print(json.dumps({name: asdict(result) for name, result in results.items()}))
    return 1 if any(result.failures for result in results.values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m proofs.fuzz",
        description="Fuzzes what reads bytes that others wrote, led by coverage. Targets: "
        + "; ".join(f"{target.name}, {target.about}" for target in TARGETS.values()),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="*", help="which targets; default: all")
    parser.add_argument("--seconds", type=_positive, default=60, metavar="N", help="for each target; default: 60")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the mutations; default: a new one")
    parser.add_argument("--home", type=Path, default=HOME, metavar="DIR", help=f"keeps inputs; default: {HOME}")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="check this input again, and nothing else")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a number of seconds from 1 on")
    return value


def _repeat(names: Sequence[str], file: Path) -> int:
    if len(names) != 1 or not file.is_file():
        wrong = f"{file} is not there" if len(names) == 1 else "name the one target that the input is for"
        print(f"--repeat: {wrong}", file=sys.stderr)
        return 2
    TARGETS[names[0]].check(file.read_bytes())
    print(f"{names[0]}: {file} breaks no property", file=sys.stderr)
    print(json.dumps({names[0]: asdict(Result(executions=1, seconds=0.0, failures=0))}))
    return 0


def _print_table(results: Mapping[str, Result]) -> None:
    print(f"{'target':12}{'executions':>12}{'seconds':>9}{'branches':>10}{'failures':>10}")
    for name, result in results.items():
        print(f"{name:12}{result.executions:12,}{result.seconds:9.0f}{result.branches:10,}{result.failures:10}")
        for kept in result.kept:
            print(f'  repeat: make fuzz ARGS="--repeat {kept} {name}"')


if __name__ == "__main__":
    sys.exit(main())
