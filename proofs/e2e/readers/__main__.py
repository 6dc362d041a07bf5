"""`make readers`: programs without Spark's data source read a log under compaction. The last line of stdout is JSON.

Exit status 1: something was lost or read twice. 69: a library, Spark 3.5 or Java is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyarrow import ipc

from efo.model import Record
from efo_service.exit_codes import Exit
from efo_service.log.disk import DiskFiles
from efo_service.log.maintenance import LogMaintenance
from efo_service.log.partition_writer import open_partition
from efo_service.log.retention import RetentionRules
from efo_service.spark.errors import JavaMissingError
from efo_service.spark.java import find_java
from proofs.e2e.command import progress
from proofs.e2e.readers.verdict import Verdict, ends_of, judge
from proofs.paths import ROOT, TOOLS

READERS: Final = {"pandas": "pandas", "polars": "Polars", "duckdb": "DuckDB", "spark-3.5": "Spark 3.5"}
"""The programs: by the heading in docs/readers.md."""
_TOPIC: Final = "orders"
_SHARDS: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all readers, or those that are named."""
    parser = argparse.ArgumentParser(
        prog="make readers", description=__doc__, epilog='example: make readers ARGS="polars --rounds 50"'
    )
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(READERS)} (all)")
    parser.add_argument("--rounds", type=int, default=20, help="how often each reads the log (20; Spark 3.5: a fifth)")
    parsed = parser.parse_args(arguments)
    names = parsed.names or list(READERS)
    if unknown := [name for name in names if name not in READERS]:
        parser.error(f"unknown reader {unknown[0]!r}: choose from {', '.join(READERS)}")
    if lack := _missing(names):
        print(f"readers: {lack}", file=sys.stderr)
        return Exit.UNAVAILABLE
    report = progress()
    verdicts: dict[str, Verdict] = {}
    with TemporaryDirectory(prefix="efo-readers-") as directory:
        log = Path(directory) / "var" / "log"
        with _growing(log) as compacted:
            for name in names:
                rounds = max(1, parsed.rounds // 5) if name.startswith("spark") else parsed.rounds
                verdicts[name] = _read(name, Path(directory), rounds)
                report(f"{name}: {verdicts[name]}")
        by_pattern = judge(_by_pattern(log / _TOPIC))
    total = sum(verdicts.values(), Verdict())
    result = {
        "lost": total.lost + by_pattern.lost,
        "duplicated": total.duplicated + by_pattern.duplicated,
        "wrong": total.wrong + by_pattern.wrong,
        "records": total.records,
        "reads": {name: verdict.reads for name, verdict in verdicts.items()},
        "compactions": compacted[0],
        "by_pattern": by_pattern.records,
    }
    print(json.dumps(result))
    return 0 if total.passed and by_pattern.passed and compacted[0] else 1


def _missing(names: Sequence[str]) -> str | None:
    for name in ("readers", *(name for name in names if name.startswith("spark"))):
        if not (TOOLS / name).is_dir():
            return f"{TOOLS / name} is not installed: run `make readers`"
    try:
        find_java()
    except JavaMissingError as error:
        return str(error) if any(name.startswith("spark") for name in names) else None
    return None


@contextmanager
def _growing(root: Path) -> Iterator[list[int]]:
    """Write small commits, and compact them at once, until the context ends. Yields how many compactions there were.

    The value of a record is its offset. Superseded segments are removed in the pass after their compaction.
    """
    writers = [
        open_partition(DiskFiles(root), _TOPIC, _TOPIC, f"shardId-{number:012}", time.time) for number in range(_SHARDS)
    ]
    ends = [0] * _SHARDS
    compacted, is_over, failures = [0], threading.Event(), list[BaseException]()

    def grow() -> None:
        for number, writer in enumerate(writers):
            offsets = range(ends[number], ends[number] + 5)
            writer.append([Record(str(1 + at), time.time(), b"%d" % at, "k") for at in offsets])
            ends[number] = offsets.stop

    def run() -> None:
        maintenance = LogMaintenance(DiskFiles(root, grace=0.0), _TOPIC, RetentionRules(), fan_in=4)
        try:
            while not is_over.wait(0.002):
                grow()
                done = maintenance.run(time.time())
                compacted[0] += done.compacted if done is not None else 0
        except BaseException as error:
            failures.append(error)
            raise

    grow()
    thread = threading.Thread(target=run, name="the log grows")
    thread.start()
    try:
        yield compacted
    finally:
        is_over.set()
        thread.join()
        for writer in writers:
            writer.close()
    if failures:
        raise failures[0]


def _read(name: str, directory: Path, rounds: int) -> Verdict:
    """Let a program read the log so often, in a process of its own, and judge each of its reads."""
    paths = [TOOLS / "readers", ROOT, ROOT / "service", *([TOOLS / name] if name.startswith("spark") else [])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, reversed(paths))),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-m", "proofs.e2e.readers.child", READERS[name], str(rounds)]
    with subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603 - our own module
        assert child.stdout is not None  # noqa: S101 - a pipe was asked for
        verdict, ends = Verdict(), dict[int, int]()
        for line in child.stdout:
            rows = json.loads(line)
            verdict += judge(rows, ends)
            ends = ends_of(rows)
    if child.returncode or verdict.reads != rounds:
        raise SystemExit(f"readers: {name} ended with {child.returncode} after {verdict.reads} of {rounds} reads")
    return verdict


def _by_pattern(topic: Path) -> list[tuple[int, int, int]]:
    """Return what whoever takes every *.arrow file finds, after the writer has stopped."""
    return [
        (row["partition"], row["offset"], int(row["value"]))
        for path in sorted(topic.glob("*/*.arrow"))
        for row in ipc.open_file(path).read_all().select(["partition", "offset", "value"]).to_pylist()
    ]


if __name__ == "__main__":
    sys.exit(main())
