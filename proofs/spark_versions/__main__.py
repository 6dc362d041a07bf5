"""`make spark-versions`: what efo does on each Spark that has Python sources. The last line of stdout is JSON.

Exit status 1: something differs, or is not refused by name. 69: Java or a version is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from efo_service.exit_codes import Exit
from efo_service.spark.errors import JavaMissingError
from efo_service.spark.java import find_java
from proofs.e2e.command import progress
from proofs.paths import ROOT, TOOLS
from proofs.spark_versions.child import EVENTS, write_events
from proofs.spark_versions.verdict import judge

NEWEST: Final = "4.3"
"""That of the environment."""
VERSIONS: Final = ("4.0", "4.1", "4.2", NEWEST)
_MORE: Final = 400
"""Records that come while the query runs that is killed."""
_PATIENCE: Final = 180.0

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all versions, or the newest and those that are named."""
    parser = argparse.ArgumentParser(
        prog="make spark-versions", description=__doc__, epilog='example: make spark-versions ARGS="4.1 --only kinesis"'
    )
    parser.add_argument("versions", nargs="*", help=f"some of {', '.join(VERSIONS)} (all); {NEWEST} always runs")
    parser.add_argument("--only", nargs="+", default=["parity", "kinesis", "kill", "pipeline"], help="parts (all)")
    parsed = parser.parse_args(arguments)
    if unknown := [version for version in parsed.versions if version not in VERSIONS]:
        parser.error(f"unknown version {unknown[0]!r}: choose from {', '.join(VERSIONS)}")
    versions = [one for one in VERSIONS if one == NEWEST or one in (parsed.versions or VERSIONS)]
    if lack := _missing(versions):
        print(f"spark-versions: {lack}", file=sys.stderr)
        return Exit.UNAVAILABLE
    report = progress()
    found: dict[str, dict[str, Row]] = {}
    for version in versions:
        with TemporaryDirectory(prefix="efo-spark-") as directory:
            found[version] = {}
            for part in parsed.only:
                rows = _kill(version, Path(directory)) if part == "kill" else _run(version, part, Path(directory))
                found[version].update(rows)
                report(f"Spark {version}, {part}: {len(rows)} rows")
    verdicts = judge(found, NEWEST)
    counts = Counter(verdict.result for verdict in verdicts)
    wrong = [verdict for verdict in verdicts if verdict.result == "wrong"]
    for verdict in wrong:
        report(f"wrong: Spark {verdict.version}, {verdict.row}: {verdict.did}")
    is_exact = "kill" not in parsed.only or all(
        rows.get(f"after a kill: {what}") == {"rows": EVENTS + _MORE}
        for rows in found.values()
        for what in ("records", "different ones")
    )
    if not is_exact:
        report("wrong: not each record exactly once after a kill")
    result = {
        "versions": versions,
        "rows": len(found[NEWEST]),
        "alike": counts["alike"],
        "refused_by_name": counts["refused_by_name"],
        "wrong": len(wrong) + (not is_exact),
    }
    print(json.dumps(result))
    return 1 if result["wrong"] or not found[NEWEST] else 0


def _missing(versions: Sequence[str]) -> str | None:
    for version in versions:
        if version != NEWEST and not (TOOLS / f"spark-{version}" / "pyspark").is_dir():
            return f"no PySpark {version} in {TOOLS}: run `make spark-versions`"
    try:
        find_java()
    except JavaMissingError as error:
        return str(error)
    return None


def _start(version: str, part: str, directory: Path) -> subprocess.Popen[str]:
    """Start a part on this version, in a group of processes of its own; its PySpark goes before the installed one."""
    paths = [*([TOOLS / f"spark-{version}"] if version != NEWEST else []), ROOT]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    environment.pop("SPARK_HOME", None)
    command = [sys.executable, "-m", "proofs.spark_versions.child", part, str(directory)]
    with (directory / f"{part}.stderr").open("w") as errors:
        return subprocess.Popen(  # noqa: S603 - our own module
            command,
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


def _run(version: str, part: str, directory: Path) -> dict[str, Row]:
    with _start(version, part, directory) as child:
        output, _ = child.communicate()
    if child.returncode:
        sys.stderr.write((directory / f"{part}.stderr").read_text()[-3000:])
    return {row.pop("row"): row for row in map(json.loads, output.splitlines())}


def _kill(version: str, directory: Path) -> dict[str, Row]:
    """Kill a query while it writes what comes into the log, then let it go on, and return what it has written."""
    write_events(directory / "kill-log")
    with _start(version, "stream", directory) as child:
        deadline = time.monotonic() + _PATIENCE
        while not any((directory / "copy").glob("*.parquet")):
            if child.poll() is not None or time.monotonic() > deadline:
                os.killpg(child.pid, signal.SIGKILL)
                return {}
            time.sleep(0.05)
        write_events(directory / "kill-log", EVENTS, _MORE)
        time.sleep(0.5)
        os.killpg(child.pid, signal.SIGKILL)
    return _run(version, "drain", directory)


if __name__ == "__main__":
    sys.exit(main())
