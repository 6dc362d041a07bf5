"""`python -m proofs.fuzz`: fuzz each target for a while, print a table and, last, one line of JSON.

Exit status: 0 if no target failed, 1 if one did, 2 for invalid arguments, 69 if atheris is not installed.
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
"""The corpus, which is kept between runs, the failed inputs, and the dictionaries of the targets."""
UNAVAILABLE: Final = 69

_EPILOG: Final = """examples:
  make fuzz                                  all targets, one minute each
  make fuzz SECONDS=600 ARGS="http2 frames"  two targets, ten minutes each
  make fuzz ARGS="--repeat FILE http2"       check one input again, without the fuzzer
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parser().parse_args(arguments)
    names: list[str] = options.target or list(TARGETS)
    if unknown := set(names) - TARGETS.keys():
        print(f"unknown target: {', '.join(sorted(unknown))}: the targets are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    if options.repeat is not None:
        return _repeat(names, options.repeat)
    if importlib.util.find_spec("atheris") is None:
        print(
            f"atheris is not installed: it has wheels for CPython 3.11 to 3.13 on Linux x86-64, and this is "
            f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} "
            f"{platform.machine()}. Remove .tools/fuzz and run `make PYTHON=... fuzz` with a supported Python. "
            "The test suite checks the same properties with Hypothesis: make test ARGS='-k test_any'",
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
        description="Coverage-guided fuzzing of the parsers that read bytes from the network. Targets: "
        + "; ".join(f"{target.name}, {target.description}" for target in TARGETS.values()),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="*", help="the targets to fuzz; default: all")
    parser.add_argument(
        "--seconds", type=_positive, default=60, metavar="N", help="seconds for each target; default: 60"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the mutations; default: a random one")
    parser.add_argument("--home", type=Path, default=HOME, metavar="DIR", help=f"directory for inputs; default: {HOME}")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="only check this input again")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more seconds")
    return value


def _repeat(names: Sequence[str], file: Path) -> int:
    if len(names) != 1 or not file.is_file():
        problem = f"{file} does not exist" if len(names) == 1 else "name exactly one target, the one of this input"
        print(f"--repeat: {problem}", file=sys.stderr)
        return 2
    TARGETS[names[0]].run(file.read_bytes())
    print(f"{names[0]}: {file} violates no property", file=sys.stderr)
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
