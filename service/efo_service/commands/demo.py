"""`efo demo`: runs the whole job on this machine."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import trio
from cyclopts import Parameter

from efo_service.commands.options import Json, require_fake
from efo_service.commands.output import print_table, write_json
from efo_service.demo.demo import DemoOptions, run_demo
from efo_service.demo.report import ProgressBars, table
from efo_service.errors import UsageError


def demo(
    *,
    records: Annotated[int, Parameter(help="Number of records to put.")] = 200_000,
    shards: Annotated[int, Parameter(help="Number of shards of the stream at the start.")] = 4,
    spark: Annotated[bool, Parameter(help="Run the Spark pipeline, which needs Java.")] = True,
    crash: Annotated[
        bool, Parameter(negative="", help="Kill the service (SIGKILL) in the middle of the load, and restart it.")
    ] = False,
    seconds: Annotated[float, Parameter(help="Duration of the load in seconds.")] = 8.0,
    keep: Annotated[Path | None, Parameter(help="Keep configuration, logs, log and Parquet in this directory.")] = None,
    as_json: Json = False,
) -> int:
    """Run the whole job on this machine: FakeKinesis over TLS, `efo run`, `efo pipeline`, and a comparison.

    A third of the records are in KPL aggregates. One shard is split and two are merged during the load. Progress goes
    to stderr. The last line of stdout is one JSON object. Exits with 1 unless every record arrived once and in order.

    Example: efo demo --records 50000 --no-spark --crash
    """
    require_fake()
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
        print_table(table(result))
    write_json(result.summary)
    return 0 if result.passed else 1


def _directory(keep: Path | None) -> AbstractContextManager[str]:
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="efo-demo-")
    try:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise UsageError(f"--keep {keep} is not empty: choose a new directory")
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep {keep}: {error.strerror}") from error
    return nullcontext(str(keep))
