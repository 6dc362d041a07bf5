"""The log's file format: one segment is one group of records, committed by one rename.

    <root>/<topic>/<partition>/<base>-<end>-<crc>.arrow

A segment is an Arrow IPC file, uncompressed, whose columns are exactly those of Spark's Kafka source with
headers: any Arrow reader can use it as it is, and Spark takes its pages without a conversion. It holds the
records of the offsets `base` to `end` - 1 (20 decimal digits each, so that names sort as offsets do). The
schema's metadata say which shard the records are from and how far it has come with them (rule R12).

Arrow files have no checksum. Ours is the CRC-32 of the whole file, and it stands in the name: it covers
every byte, footer included, needs no second file, and appears with the data in one rename.

This module is read inside Spark's executors: it imports pyarrow and nothing of trio.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from zlib import crc32

import pyarrow as pa
import pyarrow.ipc

from efo.errors import ConfigurationError
from efo.model import Checkpoint
from efo_service.relay.errors import (
    LogVersionError,
    SegmentCorruptError,
    SegmentGoneError,
    SegmentMissingError,
    SinkError,
    os_errors,
)
from efo_service.relay.log.fencing import no_leftover, sync_directory
from efo_service.relay.mapping import MAPPING_VERSION

FORMAT_VERSION: Final = 1
"""Counts the changes that an older reader would misread."""

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
    ]
)
"""The columns of Spark's Kafka source (Spark: Structured Streaming + Kafka Integration Guide)."""

_NAME: Final = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{8})\.arrow")
_RESTORE: Final = (
    "Restore the file from a copy. Without one: if its shard is still relayed and a segment before it is there, stop"
    " the relay and move this one and all later ones of its directory away: efo then reads their records again from"
    " Kinesis, as far as its retention goes. Else move this one alone away, and read with failOnDataLoss=false, without"
    " its records (docs/log-format.md, Damage)"
)
LOOKS: Final = 5
"""So often is a directory listed again when what was listed is gone. What a roll-up replaces is left for a while: one
look more is nearly always enough."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a segment's metadata say: where its records are from.

    `first`, `last`: the Kinesis position of the first and of the last record.
    `committed_at`: seconds since the epoch.
    """

    stream: str
    shard_id: str
    first: Checkpoint
    last: Checkpoint
    committed_at: float


class Segment(NamedTuple):
    """A segment as its name tells it: offsets `base` (included) to `end` (excluded). They sort by offset."""

    base: int
    end: int
    crc: int
    directory: Path

    @property
    def path(self) -> Path:
        """Where the segment is."""
        return self.directory / f"{self.base:020}-{self.end:020}-{self.crc:08x}.arrow"


class SizedSegment(NamedTuple):
    """A segment and its size in bytes."""

    segment: Segment
    size: int


# --- writing -------------------------------------------------------------------------------------------


class Turn(Protocol):
    """Who may write a segment: a partition's writer by its epoch, or what rolls segments up."""

    @property
    def temporary(self) -> Path:
        """Where the segment is prepared, on the same file system."""
        ...

    def check(self) -> None:
        """Raise if the segment must not appear any more."""
        ...

    def fenced(self) -> SinkError:
        """Return the error for a temporary file that was taken away."""
        ...


def write_segment(directory: Path, batch: pa.RecordBatch, origin: Origin, turn: Turn) -> Segment:
    """Make one batch of SCHEMA durable as a segment.

    Until the rename nothing is there, after it everything; the directory is synced so that the name survives
    a power cut. Raises SinkFencedError, SinkFullError (nothing is there), SinkError.
    """
    base = batch.column("offset")[0].as_py()
    content = _encode(batch, origin)
    segment = Segment(base, base + batch.num_rows, crc32(content), directory)
    temporary = turn.temporary
    with os_errors("write", segment.path), no_leftover(temporary):
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fdatasync(file.fileno())
        turn.check()
        try:
            temporary.rename(segment.path)
        except FileNotFoundError:
            raise turn.fenced() from None
    try:
        sync_directory(directory)
    except OSError as error:  # never SinkFullError: the segment may be there
        raise SinkError(f"cannot make {segment.path} durable: {error.strerror}") from error
    return segment


def _encode(batch: pa.RecordBatch, origin: Origin) -> pa.Buffer:
    metadata = {
        "efo.format": str(FORMAT_VERSION),
        "efo.mapping": str(MAPPING_VERSION),
        "efo.stream": origin.stream,
        "efo.shard": origin.shard_id,
        "efo.first": str(origin.first),
        "efo.last": str(origin.last),
        "efo.committed_at": repr(origin.committed_at),
    }
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA.with_metadata(metadata)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


# --- reading -------------------------------------------------------------------------------------------


def list_segments(directory: Path) -> list[Segment]:
    """Return a partition's segments in order of their offsets; none if the directory is not there yet.

    Those that a larger one has replaced are left out (see `split_superseded`).
    Raises SegmentCorruptError for an Arrow file whose name is not one of ours, SinkError.
    """
    return split_superseded(all_segments(directory))[0]


def all_segments(directory: Path) -> list[Segment]:
    """Return what `list_segments` returns, and the replaced ones too, in any order. Raises as it does."""
    return [_parse(directory, name) for name in _names(directory)]


def split_superseded(segments: Iterable[Segment]) -> tuple[list[Segment], list[Segment]]:
    """Return the segments that count, in order, and those whose offsets lie within one of these.

    A roll-up makes the large segment appear first, and removes those that went into it some time later.
    """
    current: list[Segment] = []
    superseded: list[Segment] = []
    for segment in sorted(segments, key=lambda segment: (segment.base, -segment.end)):
        within = bool(current) and segment.end <= current[-1].end
        (superseded if within else current).append(segment)
    return current, superseded


def last_segment(directory: Path) -> Segment | None:
    """Return a partition's newest segment; its `end` is the offset that the next record will get."""
    name = max(_names(directory), default=None)
    return None if name is None else _parse(directory, name)


def _names(directory: Path) -> Iterator[str]:
    with os_errors("list", directory):
        names = os.listdir(directory) if directory.exists() else []  # noqa: PTH208 - names, thousands of them
    return (name for name in names if name.endswith(".arrow"))


def _parse(directory: Path, name: str) -> Segment:
    match = _NAME.fullmatch(name)
    if match is None:
        raise SegmentCorruptError(
            f"{directory / name} is not named <base>-<end>-<crc>.arrow: give it its name back or move it away"
        )
    return Segment(int(match[1]), int(match[2]), int(match[3], 16), directory)


def select(
    segments: Sequence[Segment], start: int, end: int, *, holes: bool = False
) -> Iterator[tuple[Segment, int, int]]:
    """Yield what covers the offsets `start` to `end` - 1: each segment with its part of the range.

    Raises SegmentMissingError if something is not covered, unless `holes` are allowed; SegmentCorruptError if
    two segments claim the same offsets.
    """
    at = start
    for before, segment in zip((None, *segments), segments, strict=False):
        if before is not None and segment.base < before.end:
            raise SegmentCorruptError(f"{segment.path} and {before.path} claim the same offsets. {_RESTORE}")
        if segment.end <= at or segment.base >= end or at >= end:
            continue
        if segment.base > at and not holes:
            raise _missing(segment.directory, at, segment.base)
        yield segment, max(at, segment.base), min(segment.end, end)
        at = segment.end
    if at < end and not holes:
        raise _missing(segments[0].directory if segments else None, at, end)


def _missing(directory: Path | None, start: int, end: int) -> SegmentMissingError:
    return SegmentMissingError(
        f"offsets {start} to {end - 1} are missing in {directory or 'an empty partition'}: restore the"
        " segments that held them, or read with failOnDataLoss=false to go on without these records"
    )


def read_segment(segment: Segment, *, mapped: bool = False) -> tuple[pa.RecordBatch, Origin]:
    """Read a segment, check every byte of it, and return its records and its origin.

    `mapped`: map it into memory instead, which spares a copy. There a disk that cannot read kills the process (SIGBUS)
    instead of raising an error: that is for processes that others start again, such as Spark's Python workers.
    Raises SegmentGoneError, SegmentCorruptError naming the damage, LogVersionError, SinkError.
    """
    path = segment.path
    with _reading(path):
        if mapped:
            with pa.memory_map(str(path)) as file:
                content = file.read_buffer()
        else:
            content = pa.py_buffer(path.read_bytes())
    if crc32(content) != segment.crc:
        raise SegmentCorruptError(
            f"{path} is damaged: its {content.size} bytes have the CRC {crc32(content):08x}, its name says"
            f" {segment.crc:08x}. {_RESTORE}"
        )
    with _sense_of(path):
        reader = pa.ipc.open_file(content)
        origin = _origin(reader.schema.metadata, path)
        batch = reader.get_batch(0)
    if reader.num_record_batches != 1 or not batch.schema.equals(SCHEMA):
        raise SegmentCorruptError(f"{path} does not hold one batch of the log's columns. {_RESTORE}")
    offsets = batch.column("offset")
    if batch.num_rows != segment.end - segment.base or offsets[0].as_py() != segment.base:
        raise SegmentCorruptError(f"{path} holds other offsets than its name says. {_RESTORE}")
    return batch.replace_schema_metadata(None), origin


def read_origin(segment: Segment) -> Origin:
    """Return a segment's origin alone: of the file, only its footer is read, and no checksum made.

    Raises SegmentGoneError, SegmentCorruptError, LogVersionError, SinkError.
    """
    path = segment.path
    with _reading(path), pa.OSFile(str(path)) as file, _sense_of(path):
        return _origin(pa.ipc.open_file(file).schema.metadata, path)


def read_parts(
    directory: Path, start: int, end: int, *, holes: bool = False, mapped: bool = False
) -> Iterator[tuple[Segment, pa.RecordBatch]]:
    """Yield the records of a partition with the offsets `start` to `end` - 1: of each segment, its part of them.

    A segment may be rolled up between its listing and its reading: then what is there is looked at again.
    Raises as `select` and `read_segment` do; SegmentGoneError only if it is so again and again.
    """
    at, looks = start, LOOKS
    while True:
        try:
            for segment, first, last in select(list_segments(directory), at, end, holes=holes):
                batch, _ = read_segment(segment, mapped=mapped)
                yield segment, batch.slice(first - segment.base, last - first)
                at, looks = last, LOOKS
        except SegmentGoneError:
            looks -= 1
            if not looks:
                raise
        else:
            return


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with os_errors("read", path):
        try:
            yield
        except FileNotFoundError as error:
            raise SegmentGoneError(
                f"{path} is not there any more: it was rolled up, has expired or was moved"
            ) from error


@contextmanager
def _sense_of(path: Path) -> Iterator[None]:
    """Translate what Arrow and we say to bytes that make no sense."""
    try:
        yield
    except (pa.ArrowException, KeyError, ValueError, TypeError, AttributeError, ConfigurationError) as error:
        raise SegmentCorruptError(f"{path} is not a segment: {error}. {_RESTORE}") from error


def _origin(metadata: dict[bytes, bytes], path: Path) -> Origin:
    values: dict[str, Any] = {key.decode(): value.decode() for key, value in metadata.items()}
    for name, known in (("format", FORMAT_VERSION), ("mapping", MAPPING_VERSION)):
        if (version := int(values[f"efo.{name}"])) > known:
            raise LogVersionError(f"{path} has the {name} {version}, this efo knows up to {known}: upgrade efo")
    return Origin(
        values["efo.stream"],
        values["efo.shard"],
        _checkpoint(values["efo.first"]),
        _checkpoint(values["efo.last"]),
        float(values["efo.committed_at"]),
    )


def _checkpoint(text: str) -> Checkpoint:
    sequence_number, _, sub = text.partition("/")
    return Checkpoint(sequence_number, int(sub or 0))
