"""`efo log`: looks at the embedded log."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from efo_service.commands.options import ConfigFile, Json
from efo_service.config.loading import load
from efo_service.errors import UsageError
from efo_service.relay.jsonlines import Encoding
from efo_service.relay.log.catalog import topics
from efo_service.relay.log.export import export as exported
from efo_service.relay.log.inspection import TopicState, Verification, inspect_topic, verify_topic

Directory = Annotated[Path | None, Parameter(help="The log's root; else [relay] directory of the configuration.")]
Topic = Annotated[str | None, Parameter(help="One topic of it; else all.")]


def inspect(
    *, config: ConfigFile = None, directory: Directory = None, topic: Topic = None, as_json: Json = False
) -> None:
    """Tell what the log holds: topics, partitions, their shards and positions, the readers and their lag."""
    root = _root(config, directory)
    states = [inspect_topic(root, name) for name in _topics(root, topic)]
    if as_json:
        _tell({"log": str(root), "topics": [asdict(state) for state in states]})
        return
    console = Console(highlight=False)
    for state in states:
        for made in _tables(state):
            console.print(made)
    if not states:
        console.print(f"the log {root} has no topics")


def verify(
    *, config: ConfigFile = None, directory: Directory = None, topic: Topic = None, as_json: Json = False
) -> int:
    """Read every byte of the log, and say what is damaged, missing, twice or in the wrong place."""
    root = _root(config, directory)
    problems: list[str] = []
    counts = {"segments": 0, "records": 0, "bytes": 0}
    for name in _topics(root, topic):
        with _progress(name) as show:
            found = verify_topic(root, name, show)
        for key, count in zip(counts, (found.segments, found.records, found.size), strict=True):
            counts[key] += count
        problems += found.problems
    if as_json:
        _tell({"log": str(root), **counts, "problems": problems})
    else:
        console = Console(highlight=False, soft_wrap=True)
        for problem in problems:
            console.print(problem, markup=False)
        sound = "not sound" if problems else "sound"
        console.print(f"{counts['records']:,} records in {counts['segments']:,} segments are read: {sound}")
    return 1 if problems else 0


def export(
    *,
    topic: Annotated[str, Parameter(help="The topic.")],
    config: ConfigFile = None,
    directory: Directory = None,
    partition: Annotated[int | None, Parameter(help="One partition; else all, one after the other.")] = None,
    start: Annotated[int, Parameter(help="The first offset.")] = 0,
    end: Annotated[int | None, Parameter(help="The offset after the last one; else all there is.")] = None,
    encoding: Annotated[Encoding, Parameter(help="How values are written.")] = "base64",
    output: Annotated[Path | None, Parameter(help="A new file; else stdout.")] = None,
) -> None:
    """Write records as JSON lines."""
    lines = exported(_root(config, directory), topic, partition=partition, start=start, end=end, encoding=encoding)
    if output is None:
        try:
            sys.stdout.buffer.writelines(lines)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the reader has seen enough; what Python flushes at its end goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    try:
        with output.open("xb") as file:
            file.writelines(lines)
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}; give it a new file") from error


def _root(config: Path | None, directory: Path | None) -> Path:
    root = directory if directory is not None else load(config).relay.directory
    if not root.is_dir():
        raise UsageError(f"{root} is not a directory: name the log's root by --directory or by [relay] directory")
    return root


def _topics(root: Path, topic: str | None) -> list[str]:
    return topics(root) if topic is None else [topic]


def _tell(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


@contextmanager
def _progress(topic: str) -> Iterator[Any]:
    """Show on stderr how many records are read, if a person looks."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(topic, total=None)

        def show(found: Verification) -> None:
            progress.update(task, description=f"{topic}: {found.records:,} records, {len(found.problems)} problems")

        yield show


def _tables(state: TopicState) -> Iterator[Table]:
    partitions = Table(
        "partition", "shard", "records", "offsets", "segments", "MB", "position", "newest commit",
        title=f"{state.topic}: the stream {state.stream}",
    )  # fmt: skip
    for at in state.partitions:
        partitions.add_row(
            str(at.partition),
            at.shard_id,
            f"{at.end - at.start:,}",
            f"{at.start} to {at.end}",
            f"{at.segments}" + (f" + {at.replaced} replaced" if at.replaced else ""),
            f"{at.size / 1e6:,.1f}",
            at.position or "",
            _time(at.newest_commit),
        )
    yield partitions
    if state.readers:
        readers = Table("reader", "records behind", "committed")
        for reader in state.readers:
            readers.add_row(reader.name, f"{reader.lag:,}", _time(reader.committed_at) or "its file makes no sense")
        yield readers


def _time(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
