"""`efo log`: reads the embedded log, and adopts shards into it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import trio
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from efo.checks import printable
from efo.errors import EfoError
from efo.identity import time_text
from efo.leases.store import LeaseStore
from efo.model import Lease
from efo_service.commands.common import Yes, confirm, with_lease_store
from efo_service.commands.options import Application, ConfigFile, Json, StreamName
from efo_service.commands.output import TextTable, format_time, print_table, write_json, write_line, write_note
from efo_service.config.loading import load
from efo_service.config.settings import Settings
from efo_service.errors import NoLeaseStoreError, UsageError
from efo_service.factories.kinesis import created_within
from efo_service.log.catalog import Adoption, other_stream, read_catalog, topics, uncatalogued_topics
from efo_service.log.consistency import adopt_into, continue_with, lease_problems, plan_adoption, stream_of_leases
from efo_service.log.export import FileFormat, export as export_lines, export_file
from efo_service.log.files import LogFiles
from efo_service.log.inspection import TopicState, Verification, inspect_topic, live_files, verify_topic
from efo_service.log.topic import log_files
from efo_service.object_store.url import is_url, log_root
from efo_service.operations.recording import without_controls
from efo_service.relay.errors import LogError, TopicNotFoundError
from efo_service.relay.jsonlines import Encoding
from efo_service.times import parse_time

_ASK_SECONDS: Final = 10.0
"""Seconds for asking the stream whether it is the one of the log."""

_TIME: Final = "a time with its zone like 2026-01-31T12:00:00Z, or how long ago like -15m, or later"
_MAX_DIGITS: Final = 19
"""Offsets of more digits are no 64-bit numbers."""

Directory = Annotated[
    str | None, Parameter(help="Root of the log: a directory or a URL. Default: [relay] directory, with its options.")
]
OneTopic = Annotated[str | None, Parameter(help="Topic of the log. Default: the only one.")]
Topic = Annotated[str | None, Parameter(help="One topic of the log. Default: all.")]


def inspect(
    *,
    config: ConfigFile = None,
    stream: StreamName = None,
    directory: Directory = None,
    topic: Topic = None,
    as_json: Json = False,
) -> None:
    """Show what the log holds: topics, partitions, their shards and positions, the readers and their lag."""
    log = readable_log(config, stream, directory)
    states = [inspect_topic(log, name) for name in _topics(log, topic)]
    for name in uncatalogued_topics(log) if topic is None else ():
        write_note(f"{log.name}/{name} has partitions, but no catalog: see `efo log verify`")
    if as_json:
        write_json({"log": log.name, "topics": [asdict(state) for state in states]})
        return
    for state in states:
        for table in _tables(state):
            print_table(table)
        for problem in state.problems:
            write_note(problem)
    if not states:
        write_line(f"the log {log.name} has no topics")


def segments(
    *,
    config: ConfigFile = None,
    stream: StreamName = None,
    directory: Directory = None,
    topic: OneTopic = None,
    as_json: Json = False,
) -> None:
    """List the files of a topic that have records for readers, for other tools."""
    log = readable_log(config, stream, directory)
    found = live_files(log, one_topic(log, topic))
    if as_json:
        for file in found:
            write_json(asdict(file))
        return
    for file in found:
        write_line(file.name)


def verify(
    *,
    config: ConfigFile = None,
    stream: StreamName = None,
    directory: Directory = None,
    topic: Topic = None,
    as_json: Json = False,
) -> int:
    """Read every byte of the log, and report what is damaged, missing, duplicated or misplaced."""
    settings = load(config, stream) if directory is None else None
    leases = _leases(config, stream, settings) if settings is not None and topic in {None, settings.topic} else None
    log = readable_log(config, stream, directory)
    problems: list[str] = []
    counts = {"segments": 0, "records": 0, "bytes": 0, "superseded_segments": 0, "superseded_bytes": 0}
    for name in [*_topics(log, topic), *(uncatalogued_topics(log) if topic is None else ())]:
        with _progress(name) as show:
            found = verify_topic(log, name, show)
        of_topic = (found.segments, found.records, found.size, found.superseded, found.superseded_size)
        for key, count in zip(counts, of_topic, strict=True):
            counts[key] += count
        problems += found.problems
    if settings is not None and leases is not None:
        of_stream = [name for name in (settings.topic, settings.relay.dead_letters) if name and topic in {None, name}]
        problems += _compare_leases(log, settings.topic, leases) or _compare_stream(log, settings, of_stream)
    if as_json:
        write_json({"log": log.name, **counts, "problems": problems})
    else:
        for problem in problems:
            write_line(problem)
        result = "there are problems" if problems else "no problems"
        with_leases = "" if leases is None else f", {len(leases)} leases compared"
        superseded = counts["superseded_segments"]
        beside = f" and {superseded:,} superseded ones" if superseded else ""
        what = f"{counts['records']:,} records in {counts['segments']:,} segments{beside} verified{with_leases}"
        write_line(f"{what}: {result}")
    return 1 if problems else 0


def export(
    *,
    config: ConfigFile = None,
    stream: StreamName = None,
    directory: Directory = None,
    topic: OneTopic = None,
    partition: Annotated[int | None, Parameter(help="One partition. Default: all, one after the other.")] = None,
    start: Annotated[
        str | None,
        Parameter(help=f"The first offset, or from the first record that arrived at {_TIME}. Default: the oldest."),
    ] = None,
    end: Annotated[
        str | None,
        Parameter(help=f"The offset after the last, or before the first that arrived at {_TIME}. Default: the end."),
    ] = None,
    form: Annotated[
        FileFormat, Parameter(name="--format", help="JSON lines, or the columns of the log; these need --output.")
    ] = "jsonl",
    encoding: Annotated[Encoding, Parameter(help="Encoding of the values in JSON lines.")] = "base64",
    output: Annotated[Path | None, Parameter(help="A new file. Default: stdout.")] = None,
    allow_gaps: Annotated[
        bool, Parameter(negative="", help="Pass over missing records, and tell them, instead of failing.")
    ] = False,
) -> None:
    """Write records as JSON lines, Parquet or Arrow."""
    log = readable_log(config, stream, directory)
    which: Mapping[str, Any] = {
        "partition": partition,
        "start": _bound("start", start),
        "end": _bound("end", end),
        "encoding": encoding,
        "on_gap": write_note if allow_gaps else None,
    }
    if output is not None:
        try:
            export_file(log, one_topic(log, topic), output, form, **which)
        except OSError as error:
            raise UsageError(f"--output {output}: {error.strerror}: choose a new file") from error
        return
    if form != "jsonl":
        raise UsageError(f"--format {form} is for a file: name it with --output")
    try:
        sys.stdout.buffer.writelines(map(without_controls, export_lines(log, one_topic(log, topic), **which)))
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # the reader closed the pipe: discard what Python flushes at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _bound(option: str, text: str | None) -> int | datetime | None:
    """Return the offset or the time. Raises UsageError."""
    if text is None or (text.isascii() and text.isdecimal() and len(text) < _MAX_DIGITS):
        return None if text is None else int(text)
    if (at := parse_time(text, time.time())) is None:
        raise UsageError(f"--{option} {text}: expected an offset, or {_TIME.removesuffix(' or later')}")
    return datetime.fromtimestamp(at, UTC)


def adopt(
    *,
    config: ConfigFile = None,
    stream: StreamName = None,
    topic: Topic = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let shards continue in new partitions of the log, without what was read of them before."""

    async def work(settings: Settings, store: LeaseStore) -> tuple[bool, dict[str, int]]:
        name = settings.topic if topic is None else topic
        leases = await store.list()
        log = log_files(settings.relay.log_root)
        is_continued = await _continue_with(log, name, settings, stream_of_leases(leases), yes=yes)
        # A topic of dead letters may begin at any time: the checkpoints say nothing about it.
        planned = plan_adoption(log, name, leases if name == settings.topic else ())
        if not planned:
            return is_continued, {}
        for adoption in planned:
            write_note(_describe(adoption))
        await confirm(f"adopt {len(planned)} shards into the topic {name} of {log.name}", yes=yes)
        return is_continued, adopt_into(log, name, settings.kinesis.stream_name, planned)

    is_continued, adopted = with_lease_store(Application(config=config, stream=stream), work)
    if as_json:
        write_json({"adopted": adopted, "continued": is_continued})
        return
    for shard_id, partition in adopted.items():
        write_line(f"{shard_id}: adopted as partition {partition}")
    if is_continued:
        write_line("the topic continues with the stream that exists now: its shards get new partitions")
    elif not adopted:
        write_line("nothing to adopt: the log has a partition for each shard that was read")


async def _continue_with(log: LogFiles, topic: str, settings: Settings, created_at: float | None, *, yes: bool) -> bool:
    """Let a topic of a former stream go on with that of the leases, if the operator wants it; return whether it does.

    `created_at`: when the stream of the leases was created, None if unknown.
    """
    try:
        catalog = read_catalog(log, topic)
    except TopicNotFoundError:
        return False
    if created_at is None or other_stream(catalog, created_at, topic) is None:
        return False
    write_note(
        f"the {len(catalog.partitions)} partitions of the stream that was created at"
        f" {time_text(catalog.stream_created_at or 0)} keep their records and are written no more; the shards of the"
        f" one that was created at {time_text(created_at)} get new partitions"
    )
    await confirm(f"continue the topic {topic} of {log.name} with the stream that exists now", yes=yes)
    continue_with(log, topic, settings.kinesis.stream_name, created_at)
    return True


def _describe(adoption: Adoption) -> str:
    lost = "what was read before is not in this log"
    if adoption.replaces is not None:
        lost = f"the records of its emptied partition {adoption.replaces} are lost"
    return f"{adoption.shard_id} continues after its lease's checkpoint {adoption.after}: {lost}"


def _leases(config: Path | None, stream: str | None, settings: Settings) -> Sequence[Lease] | None:
    """Return the leases, None if there is no lease store yet. A log that is being written is newer than they are."""
    if settings.relay.sink != "log":
        return None

    async def work(_settings: Settings, store: LeaseStore) -> Sequence[Lease]:
        return await store.list()

    try:
        return with_lease_store(Application(config=config, stream=stream), work)
    except NoLeaseStoreError:
        return None


def _compare_leases(log: LogFiles, topic: str, leases: Sequence[Lease]) -> list[str]:
    try:
        catalog = read_catalog(log, topic)
    except TopicNotFoundError:
        catalog = None
    except LogError:  # verify_topic has reported it
        return []
    return list(lease_problems(f"{log.name}/{topic}", catalog, leases))


def _compare_stream(log: LogFiles, settings: Settings, names: Sequence[str]) -> list[str]:
    """Return what is wrong if the stream is not the one that topics name. A stream that cannot be asked is noted."""
    catalogs = {}
    for topic in names:
        with suppress(LogError):  # verify_topic has reported it
            catalogs[topic] = read_catalog(log, topic)
    if not any(catalog.stream_created_at for catalog in catalogs.values()):
        return []
    try:
        created_at = trio.run(created_within, settings.kinesis, _ASK_SECONDS)
    except (EfoError, trio.TooSlowError) as error:
        write_note(f"the stream could not be asked whether it is still the one of the log ({type(error).__name__})")
        return []
    problems = (other_stream(catalog, created_at, f"{log.name}/{topic}") for topic, catalog in catalogs.items())
    return [problem for problem in problems if problem is not None]


def readable_log(config: Path | None, stream: str | None, directory: str | None) -> LogFiles:
    """Return the log to read. Raises ConfigurationError, and UsageError if there is no such directory."""
    root = load(config, stream).relay.log_root if directory is None else log_root(_absolute(directory))
    if isinstance(root, Path) and not os.path.isdir(root):  # noqa: PTH112 - false for a path that no file system takes
        raise UsageError(f"{root} is not a directory: set the log's root with --directory or [relay] directory")
    return log_files(root)


def _absolute(directory: str) -> str:
    """Return the root as it is shown: an absolute path, or a URL."""
    return directory if is_url(directory) else str(Path(directory.removeprefix("file://")).absolute())


def one_topic(log: LogFiles, topic: str | None) -> str:
    """Return the topic, or the only one that the log has. Raises UsageError if it has several, or none."""
    if topic is not None:
        return topic
    found = topics(log)
    if len(found) != 1:
        raise UsageError(
            f"the log {log.name} has {len(found)} topics: choose one with --topic: {', '.join(found)}"
            if found
            else f"the log {log.name} has no topics"
        )
    return found[0]


def _topics(log: LogFiles, topic: str | None) -> list[str]:
    return topics(log) if topic is None else [topic]


@contextmanager
def _progress(topic: str) -> Iterator[Any]:
    """Show on stderr how many records are read, if stderr is a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        topic = escape(printable(topic))
        task = progress.add_task(topic, total=None)

        def show(found: Verification) -> None:
            progress.update(task, description=f"{topic}: {found.records:,} records, {len(found.problems)} problems")

        yield show


def _tables(state: TopicState) -> Iterator[TextTable]:
    partitions = TextTable(
        "partition", "shard", "records", "offsets", "segments", "MB", "position", "newest commit",
        title=f"{state.topic}: the stream {state.stream}",
    )  # fmt: skip
    for partition in state.partitions:
        partitions.add_row(
            str(partition.partition),
            partition.shard_id,
            f"{partition.end - partition.start:,}",
            f"{partition.start} to {partition.end}",
            f"{partition.segments}" + (f" + {partition.replaced} superseded" if partition.replaced else ""),
            f"{partition.size / 1e6:,.1f}",
            partition.position or "",
            format_time(partition.newest_commit),
        )
    yield partitions
    if state.readers:
        readers = TextTable("reader", "lag (records)", "committed")
        for reader in state.readers:
            readers.add_row(reader.name, f"{reader.lag:,}", format_time(reader.committed_at) or "its file is invalid")
        yield readers
