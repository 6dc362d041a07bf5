"""`efo demo`: the whole main job on this machine."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import trio
from cyclopts import Parameter
from rich.console import Console

from efo_service.commands.extras import need_fake
from efo_service.commands.options import Json
from efo_service.demo.demo import DemoOptions, run_demo
from efo_service.demo.report import ProgressBars, table
from efo_service.errors import UsageError


def demo(
    *,
    records: Annotated[int, Parameter(help="How many records are put.")] = 200_000,
    shards: Annotated[int, Parameter(help="How many shards the stream starts with.")] = 4,
    spark: Annotated[bool, Parameter(help="Land the records by Spark; without it no Java is needed.")] = True,
    crash: Annotated[
        bool, Parameter(negative="", help="Kill the service (SIGKILL) in the middle of the load, and start it again.")
    ] = False,
    seconds: Annotated[float, Parameter(help="How long the load takes.")] = 8.0,
    keep: Annotated[Path | None, Parameter(help="Keep configuration, logs, log and Parquet in this directory.")] = None,
    as_json: Json = False,
) -> int:
    """Run the whole job on this machine: FakeKinesis over TLS, `efo run`, `efo pipeline`, and a comparison.

    A third of the records come in KPL aggregates; one shard is split and two are merged while they flow. Progress
    goes to stderr; the last line of stdout is one JSON object. Exits with 1 unless every record landed once and in
    order.

    Example: efo demo --records 50000 --no-spark --crash
    """
    need_fake()
    with _directory(keep) as directory, ProgressBars(records, spark=spark, visible=not as_json) as bars:
        options = DemoOptions(
            records=records,
            shards=shards,
            spark=spark,
            crash=crash,
            seconds=seconds,
            directory=Path(directory).resolve(),
        )
        result = trio.run(run_demo, options, bars.show)
    if not as_json:
        Console().print(table(result))
    sys.stdout.write(json.dumps(result.summary) + "\n")
    return 0 if result.passed else 1


def _directory(keep: Path | None) -> AbstractContextManager[str]:
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="efo-demo-")
    try:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise UsageError(f"{keep} is not empty: the demo starts from nothing, so give it a new directory to keep")
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep {keep}: {error.strerror}") from error
    return nullcontext(str(keep))
