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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final

from efo.testing import FakeKinesisThread, FakeSettings
from efo_service.exit_codes import Exit
from efo_service.spark.errors import JavaMissingError
from efo_service.spark.java import find_java
from proofs.e2e.command import progress
from proofs.paths import ROOT, TOOLS
from proofs.spark_versions.child import COPIES, EVENTS, QUERIES, write_events
from proofs.spark_versions.verdict import judge

NEWEST: Final = "4.3"
"""That of the environment."""
VERSIONS: Final = ("4.0", "4.1", "4.2", NEWEST)
_MORE: Final = 400
"""Records that come while the query runs that is killed."""
_PUT: Final = 4_000
"""Records that the killed query puts: more than a shard takes in a second, so it is killed in the midst of a batch."""
_PATIENCE: Final = 180.0

Row = dict[str, Any]
_PARTS: Final = ("parity", "kinesis", "many", "kill", "sink", "pipeline")
_REPEATED: Final = "put twice"
"""A row of the part sink, which differs: how many records are in the stream twice."""
_EXACT: Final = {
    "kinesis": {f"kinesis: after expiry {number}": count for number, count in ((1, 187), (2, 192))},
    "many": {f"{QUERIES} queries in one application": 2 * QUERIES * EVENTS},
    "kill": {f"after a kill: {what}": EVENTS + _MORE for what in ("records", "different ones")},
    "sink": {
        "after a kill of the sink: rows in reports": _PUT + _MORE,
        "after a kill of the sink: different ones": _PUT + _MORE,
        "after a kill of the sink: not read back": 0,
    },
}
"""Rows that must be exact: how many records there must be, on each version."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all versions, or the newest and those that are named."""
    parser = argparse.ArgumentParser(
        prog="make spark-versions", description=__doc__, epilog='example: make spark-versions ARGS="4.1 --only kinesis"'
    )
    parser.add_argument("versions", nargs="*", help=f"some of {', '.join(VERSIONS)} (all); {NEWEST} always runs")
    parser.add_argument("--only", nargs="+", default=[*_PARTS], help="parts (all)")
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
                run = _KILLED.get(part) or partial(_run, part=part)
                found[version].update(rows := run(version, directory=Path(directory)))
                report(f"Spark {version}, {part}: {len(rows)} rows")
    repeated = {version: rows.pop(_REPEATED, {}) for version, rows in found.items()}
    verdicts = judge(found, NEWEST)
    counts = Counter(verdict.result for verdict in verdicts)
    wrong = [verdict for verdict in verdicts if verdict.result == "wrong"]
    for verdict in wrong:
        report(f"wrong: Spark {verdict.version}, {verdict.row}: {verdict.did}")
    inexact = _inexact(found, parsed.only)
    for each in inexact:
        report(f"wrong: {each}")
    result = {
        "versions": versions,
        "rows": len(found[NEWEST]),
        "alike": counts["alike"],
        "refused_by_name": counts["refused_by_name"],
        "put_twice": {version: row.get("rows") for version, row in repeated.items()},
        "wrong": len(wrong) + len(inexact),
    }
    print(json.dumps(result))
    return 1 if result["wrong"] or not found[NEWEST] else 0


def _inexact(found: Mapping[str, Mapping[str, Row]], parts: Sequence[str]) -> list[str]:
    """Return the rows that are not exact."""
    return [
        f"Spark {version}, {row}: {rows.get(row)}, not {count}"
        for part in parts
        for row, count in _EXACT.get(part, {}).items()
        for version, rows in found.items()
        if rows.get(row) != {"rows": count}
    ]


def _missing(versions: Sequence[str]) -> str | None:
    for version in versions:
        if version != NEWEST and not (TOOLS / f"spark-{version}" / "pyspark").is_dir():
            return f"no PySpark {version} in {TOOLS}: run `make spark-versions`"
    try:
        find_java()
    except JavaMissingError as error:
        return str(error)
    return None


def _start(
    version: str, part: str, directory: Path, more: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[str]:
    """Start a part on this version, in a group of processes of its own; its PySpark goes before the installed one.

    `more`: environment variables.
    """
    paths = [*([TOOLS / f"spark-{version}"] if version != NEWEST else []), ROOT]
    environment = {**os.environ, **more, "PYTHONPATH": os.pathsep.join(map(str, paths))}
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


def _run(version: str, part: str, directory: Path, more: Mapping[str, str] = MappingProxyType({})) -> dict[str, Row]:
    with _start(version, part, directory, more) as child:
        output, _ = child.communicate()
    if child.returncode:
        sys.stderr.write((directory / f"{part}.stderr").read_text()[-3000:])
    return {row.pop("row"): row for row in map(json.loads, output.splitlines())}


def _kill(version: str, directory: Path) -> dict[str, Row]:
    """Kill a query while it writes what comes into the log, then let it go on, and return what it has written."""
    write_events(directory / "kill-log")
    with _start(version, "stream", directory) as child:
        if not _killed(child, lambda: any((directory / "copy").glob("*.parquet")), then=_grow(directory / "kill-log")):
            return {}
    return _run(version, "drain", directory)


def _kill_sink(version: str, directory: Path) -> dict[str, Row]:
    """Kill a query while it puts the log into a stream, let it go on, and read the stream back by the source.

    What was put before the kill is put again: at least once.
    """
    write_events(directory / "put-log", 0, _PUT)
    with FakeKinesisThread(settings=FakeSettings(consumer_creating=0.0, throttle_writes=True)) as fake:
        fake.create_stream(COPIES)

        def stored() -> list[bytes]:
            return [record.data for shard in fake.records(COPIES).values() for record in shard]

        with _start(version, "put", directory, fake.environment) as child:
            if not _killed(child, lambda: bool(stored()), then=lambda: None):
                return {}
        _grow(directory / "put-log", _PUT)()
        rows = _run(version, "put-rest", directory, fake.environment)
        put = stored()
    read = rows.pop("read back", {"values": []})["values"]
    return rows | {
        _REPEATED: {"rows": len(put) - len(set(put))},
        "after a kill of the sink: different ones": {"rows": len(set(put))},
        "after a kill of the sink: not read back": {
            "rows": sum((Counter(put) - Counter(map(str.encode, read))).values())
        },
    }


def _grow(log: Path, start: int = EVENTS) -> Callable[[], None]:
    return lambda: write_events(log, start, _MORE)


def _killed(child: subprocess.Popen[str], is_time: Callable[[], bool], then: Callable[[], None]) -> bool:
    """Wait until it is time, do something, and kill the child. Return whether it ran until then."""
    deadline = time.monotonic() + _PATIENCE
    while runs := (child.poll() is None and time.monotonic() < deadline):
        if is_time():
            then()
            break
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGKILL)
    return runs


_KILLED: Final = {"kill": _kill, "sink": _kill_sink}

if __name__ == "__main__":
    sys.exit(main())
