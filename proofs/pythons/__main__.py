"""The wheel on each Python that the classifiers name: `make pythons`. The last line of stdout is one JSON object.

For each interpreter that this machine has: the wheel alone in an empty environment, where each module is imported, or
lacks a package of an extra; then the wheel with its extras at the locked versions, where each module and public name is
imported, requirements agree (`uv pip check`), and the tests of the library's core run on the installed wheel.
Exit status 69: an interpreter is missing; `.ci/pythons` unpacks Debian's.

example: make pythons ARGS="3.14 -- -k lease"
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from efo_service.exit_codes import Exit
from proofs.paths import ROOT
from proofs.pythons.interpreters import find, full_version, supported
from proofs.release.commands import UV, CheckError, empty_environment, install, run

WORK: Final = ROOT / "var" / "pythons"
PAGE: Final = ROOT / "docs" / "proofs.md"
CORE: Final = (
    "tests/efo",
    "--ignore=tests/efo/testing",
    "--ignore=tests/efo/adapters",
    "-m",
    "not e2e and not page and not runner",
)
_TESTS_TIMEOUT: Final = 7_200.0
"""Seconds. They take a quarter of an hour; a busy machine, three times as long."""
_NOT_IN_THE_WHEELS_ENVIRONMENT: Final = {"dev", "native"}
"""Extras that are not installed with the wheel: `dev` is, as a lock; efo-native is not published."""
_TABLE: Final = re.compile(r"(?<=<!-- pythons -->\n).*?(?=<!-- end -->)", re.DOTALL)
_ROW: Final = re.compile(r"^\| (3\.\d+) \|.*$", re.MULTILINE)
_PASSED: Final = re.compile(r"(\d+) passed")

Row = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Try each interpreter; return the exit status."""
    parser = argparse.ArgumentParser("make pythons", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("versions", nargs="*", help="some versions, or paths of interpreters (all that are found)")
    parser.add_argument("--write", action="store_true", help=f"write the table of {PAGE.relative_to(ROOT)}")
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options, of_pytest = parser.parse_args(arguments[:at]), arguments[at + 1 :]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted, paths = chosen(options.versions, supported(project))
    found = find(wanted, paths)
    shutil.rmtree(WORK, ignore_errors=True)
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", WORK])
    (wheel,) = WORK.glob("*.whl")
    extras = sorted(set(project["project"]["optional-dependencies"]) - _NOT_IN_THE_WHEELS_ENVIRONMENT)
    rows = {}
    for version, python in found.items():
        rows[version] = _try(version, python, f"{wheel}[{','.join(extras)}]", of_pytest)
        print(f"Python {version}: {rows[version]}", file=sys.stderr, flush=True)
    if options.write:
        page = PAGE.read_text()
        PAGE.write_text(_TABLE.sub(table(rows, supported(project), page), page))
    missing = [version for version in wanted if version not in found]
    failed = [version for version, row in rows.items() if row["wrong"]]
    print(json.dumps({"pythons": rows, "missing": missing, "failed": failed}))
    return 1 if failed or not rows else Exit.UNAVAILABLE if missing else 0


def chosen(words: Sequence[str], versions: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Return those of the supported versions that are to be tried, and the interpreters that the words name."""
    paths = [Path(word) for word in words if os.sep in word]
    named = {word for word in words if os.sep not in word}
    named |= {".".join((full_version(path) or "").split(".")[:2]) for path in paths}
    return [version for version in versions if not words or version in named], paths


def table(rows: Mapping[str, Row], versions: Sequence[str], page: str) -> str:
    """Return the rows of the page. A version that was not tried keeps the row that the page has."""
    before = {match[1]: match[0] for match in _ROW.finditer(page)}
    lines = ["| Python | tried as | modules imported | tests of the core that passed |", "|---|---|---:|---:|"]
    for version in versions:
        if (row := rows.get(version)) is None:
            lines.append(before.get(version, f"| {version} | not tried | | |"))
            continue
        wrong = f", {len(row['wrong'])} wrong" if row["wrong"] else ""
        lines.append(f"| {version} | {row['version']}{wrong} | {row['modules']} | {row['tests']:,} |")
    return "\n".join(lines) + "\n"


def _try(version: str, python: Path, wheel: str, of_pytest: Sequence[str]) -> Row:
    """Return what came of an interpreter: `wrong` has a sentence for each step that failed."""
    row: Row = {"version": full_version(python), "modules": 0, "names": 0, "tests": 0, "wrong": []}
    try:
        alone = empty_environment(WORK / f"{version}-alone", python)
        install(alone, "-c", ROOT / "requirements/dev.txt", wheel.partition("[")[0])
        row["wrong"] += _look(alone)["wrong"]
        whole = empty_environment(WORK / version, python)
        install(whole, "--require-hashes", "-r", ROOT / "requirements/build.txt")
        install(whole, "--require-hashes", "--no-build-isolation", "-r", ROOT / "requirements/dev.txt")
        install(whole, "-c", ROOT / "requirements/dev.txt", "--no-build-isolation", wheel)
        run([UV, "pip", "check", "--quiet", "--python", whole])
        looked = _look(whole)
        row |= {"modules": looked["modules"], "names": looked["names"]}
        row["wrong"] += [*looked["wrong"], *(f"{name} is missing" for name in looked["missing"])]
        row["tests"] = _test(whole, of_pytest)
    except CheckError as error:
        row["wrong"].append(str(error))
    return row


def _look(python: Path) -> Row:
    found: Row = json.loads(run([python, "-W", "ignore", "-I", ROOT / "proofs/pythons/look.py"], cwd=WORK))
    return found


def _test(python: Path, of_pytest: Sequence[str]) -> int:
    """Run the tests of the core on the wheel; return how many passed. Raises CheckError.

    The checkout, which has the tests, comes after the wheel on the path.
    """
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    (site / "checkout.pth").write_text(f"{ROOT}\n")
    place = run([python, "-P", "-c", "import efo; print(efo.__file__)"]).strip()
    if not Path(place).is_relative_to(site):
        raise CheckError(f"efo is imported from {place}, and not from the wheel")
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "pythonpath=",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "--tb",
        "no",
        "-rfE",
    ]
    done = run([python.with_name("pytest"), *options, *CORE, *of_pytest], timeout=_TESTS_TIMEOUT)
    return int(match[1]) if (match := _PASSED.search(done)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
