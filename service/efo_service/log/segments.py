"""The log's file format: a segment holds the records of a commit, or of several after compaction.

    <root>/<topic>/<partition>/<base>-<end>-<crc>.arrow
    <root>/<topic>/<partition>/<base>-<end>-<crc>.superseded    its records are in a larger one

A segment is an Arrow IPC file, whose columns are exactly those of Spark's Kafka source with headers. So any Arrow
reader can read it. That of a commit is not compressed (format 1): a commit must be fast. That of a compaction is
(format 2). It holds the records with the offsets `base` to `end` - 1. In the name, offsets have 20 decimal digits, so
that names sort as offsets do. The schema's metadata name the records' shard and the position of the last record
(rule R12).

Arrow files have no checksum. So the name contains the CRC-32 of the whole file, footer included. It needs no second
file, and appears with the data in one rename.

Spark's executors import this module: it imports pyarrow, but not trio.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.ipc
from zlib_ng.zlib_ng import crc32

from efo.errors import ConfigurationError
from efo.model import Checkpoint
from efo.third_party_errors import reason_of
from efo_service.relay.doubt import read_again
from efo_service.relay.errors import (
    LogOwnerError,
    LogVersionError,
    SegmentCorruptError,
    SegmentGoneError,
    SegmentMissingError,
    os_errors,
)
from efo_service.relay.files import check_regular, epoch_seconds, whole_number
from efo_service.relay.mapping import MAPPING_VERSION
from efo_service.relay.storage import names

FORMAT_VERSION: Final = 2
"""Incremented by each change that an older reader would misread. 1: no segment is compressed."""

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

_NAME: Final = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{8})\.(?:arrow|superseded)")
_RESTORE: Final = (
    "Restore the file from a copy. Without a copy, if the shard is still relayed and an earlier segment exists: stop"
    " the relay, and move this segment and all later ones out of the directory; efo then reads their records from"
    " Kinesis again, as far as its retention allows. Otherwise move only this segment away, and read without its"
    " records, with failOnDataLoss=false (docs/log.md, Damage on a disk)"
)
_MAGIC_BYTES: Final = 8
"""An Arrow file is an Arrow stream after these bytes, but for its footer."""
MAX_LISTINGS: Final = 5
"""How often a directory is listed if listed segments are gone. Superseded segments stay for a while, so the second
listing nearly always succeeds."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a segment's records, from its metadata.

    `first`, `last`: the Kinesis positions of the first and the last record.
    `committed_at`: seconds since the epoch.
    """

    stream: str
    shard_id: str
    first: Checkpoint
    last: Checkpoint
    committed_at: float


class Segment(NamedTuple):
    """A segment, from its file name: offsets `base` (inclusive) to `end` (exclusive). Segments sort by offset.

    `is_put_aside`: a compaction has replaced it, and it has the name that no pattern of `*.arrow` finds.
    """

    base: int
    end: int
    crc: int
    directory: Path
    is_put_aside: bool = False

    @property
    def path(self) -> Path:
        """The path of the segment's file."""
        suffix = "superseded" if self.is_put_aside else "arrow"
        return self.directory / f"{self.base:020}-{self.end:020}-{self.crc:08x}.{suffix}"


def list_segments(directory: Path) -> list[Segment]:
    """Return a partition's current segments, ordered by offset; none if the directory does not exist yet.

    Superseded segments are left out (see `split_superseded`).
    Raises SegmentCorruptError for an Arrow file with any other form of name, and SinkError.
    """
    return split_superseded(_parse(directory, name) for name in _names(directory))[0]


def all_segments(directory: Path) -> list[Segment]:
    """Return the current and the superseded segments, in any order. Raises as `list_segments` does."""
    return [_parse(directory, name) for name in _names(directory, ".arrow", ".superseded")]


def split_superseded(segments: Iterable[Segment]) -> tuple[list[Segment], list[Segment]]:
    """Return the current segments, in order, and the superseded ones, whose offsets lie within a current one.

    A compaction first writes the larger segment, then puts its parts aside, and removes them some time later.
    """
    current: list[Segment] = []
    superseded: list[Segment] = []
    for segment in sorted(segments, key=lambda segment: (segment.base, -segment.end)):
        within = segment.is_put_aside or (bool(current) and segment.end <= current[-1].end)
        (superseded if within else current).append(segment)
    return current, superseded


def has_segments(directory: Path) -> bool:
    """Return whether a partition has any segment, whatever its name. Raises SinkError."""
    return any(True for _ in _names(directory))


def last_segment(directory: Path) -> Segment | None:
    """Return a partition's newest segment, None if it has none. Its `end` is the offset of the next record."""
    name = max(_names(directory), default=None)
    return None if name is None else _parse(directory, name)


def _names(directory: Path, *suffixes: str) -> Iterator[str]:
    with os_errors("list", directory):
        found = names(directory) if directory.exists() else []
    return (name for name in found if name.endswith(suffixes or ".arrow"))


def _parse(directory: Path, name: str) -> Segment:
    match = _NAME.fullmatch(name)
    if match is None:
        raise SegmentCorruptError(
            f"{directory / name} is not named <base>-<end>-<crc>.arrow: restore its name or move it away"
        )
    return Segment(int(match[1]), int(match[2]), int(match[3], 16), directory, not name.endswith(".arrow"))


def select(
    segments: Sequence[Segment], start: int, end: int, *, allow_gaps: bool = False
) -> Iterator[tuple[Segment, int, int]]:
    """Yield the segments that cover the offsets `start` to `end` - 1, each with its part of the range.

    Raises SegmentMissingError if an offset is not covered, unless `allow_gaps` is set; SegmentCorruptError if two
    segments have the same offsets.
    """
    at = start
    for before, segment in zip((None, *segments), segments, strict=False):
        if before is not None and segment.base < before.end:
            raise SegmentCorruptError(f"{segment.path} and {before.path} have the same offsets. {_RESTORE}")
        if segment.end <= at or segment.base >= end or at >= end:
            continue
        if segment.base > at and not allow_gaps:
            raise _missing(segment.directory, at, segment.base)
        yield segment, max(at, segment.base), min(segment.end, end)
        at = segment.end
    if at < end and not allow_gaps:
        raise _missing(segments[0].directory if segments else None, at, end)


def _missing(directory: Path | None, start: int, end: int) -> SegmentMissingError:
    return SegmentMissingError(
        f"offsets {start} to {end - 1} are missing in {directory or 'an empty partition'}: restore their segments, or"
        " read without these records with failOnDataLoss=false"
        " (without Spark: allow_gaps=True, --allow-gaps)"
    )


@read_again
def read_segment(segment: Segment, *, mapped: bool = False) -> tuple[pa.RecordBatch, Origin]:
    """Read a segment, check every byte of it, and return its records and its origin.

    `mapped`: map the file into memory, which saves a copy. Then a read error of the disk kills the process (SIGBUS)
    instead of raising an error. Use it only in processes that are restarted, such as Spark's Python workers.
    Raises SegmentGoneError, SegmentCorruptError, LogVersionError and SinkError.
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
            f"{path} is damaged: its {content.size} bytes have the CRC {crc32(content):08x}, but its name has"
            f" {segment.crc:08x}. {_RESTORE}"
        )
    with _parse_errors(path):
        reader = pa.ipc.open_file(content)
        origin = _origin(reader.schema.metadata, path)
        batch = reader.get_batch(0)
        batch.validate(full=True)  # a checksum says nothing of offsets that lead outside, and Arrow believes them
    if reader.num_record_batches != 1 or not batch.schema.equals(SCHEMA):
        raise SegmentCorruptError(f"{path} does not hold exactly one batch with the log's columns. {_RESTORE}")
    offsets = batch.column("offset")
    if not batch.num_rows or batch.num_rows != segment.end - segment.base or offsets[0].as_py() != segment.base:
        raise SegmentCorruptError(f"{path} does not hold the offsets in its name. {_RESTORE}")
    return batch.replace_schema_metadata(None), origin


def read_origin(segment: Segment) -> Origin:
    """Return a segment's origin. Only the file's footer is read, and the checksum is not verified.

    Raises SegmentGoneError, SegmentCorruptError, LogVersionError and SinkError.
    """
    path = segment.path
    with _reading(path), arrow_file(path) as file, _parse_errors(path):
        return _origin(pa.ipc.open_file(file).schema.metadata, path)


def read_timestamps(segment: Segment) -> tuple[pa.Array, Origin]:
    """Return the arrival times of a segment's records, and its origin.

    Only this column and the footer are read, and the checksum is not verified. Raises as `read_origin` does.
    """
    path = segment.path
    included = pa.ipc.IpcReadOptions(included_fields=[SCHEMA.get_field_index("timestamp")])
    with _reading(path), arrow_file(path) as file, _parse_errors(path):
        reader = pa.ipc.open_file(file, options=included)
        batch = reader.get_batch(0)
        batch.validate()
        return batch.column("timestamp"), _origin(reader.schema.metadata, path)


def memory_of(segment: Segment) -> int:
    """Return how many bytes the records of a compressed segment have in memory; 0 if it is not compressed.

    Only the file's beginning is read, a sixth of the work of `read_origin`, and nothing is verified: damage is left to
    those who read the records. Raises SegmentGoneError and SinkError.
    """
    with _reading(segment.path), arrow_file(segment.path) as file, suppress(SegmentCorruptError):
        file.seek(_MAGIC_BYTES)
        with _parse_errors(segment.path):
            metadata: dict[bytes, bytes] = pa.ipc.open_stream(file).schema.metadata
            return whole_number(metadata.get(b"efo.memory", b"0").decode())
    return 0


@singledispatch
def arrow_file(path: Path) -> pa.NativeFile:
    """Open a file for Arrow. It dispatches on the type of the path: see `efo_service.relay.storage`."""
    return pa.OSFile(str(path))


def check_owner(segment: Segment, origin: Origin, owner: tuple[str, str]) -> None:
    """Raise LogOwnerError unless the segment has records of its partition's stream and shard."""
    if (origin.stream, origin.shard_id) != owner:
        raise LogOwnerError(
            f"{segment.path} holds records of {origin.stream}/{origin.shard_id}, but the topic's catalog assigns its"
            f" partition to {'/'.join(owner)}: a file or directory was moved, put it back"
        )


def read_parts(
    directory: Path, start: int, end: int, owner: tuple[str, str], *, allow_gaps: bool = False, mapped: bool = False
) -> Iterator[tuple[Segment, pa.RecordBatch]]:
    """Yield each segment of a partition with its records in the offsets `start` to `end` - 1.

    `owner`: the stream and the shard of the partition, by the catalog; LogOwnerError is raised for any other. If a
    segment was compacted after the listing, the directory is listed again. Raises as `select` and `read_segment` do,
    but SegmentGoneError only after MAX_LISTINGS listings without progress.
    """
    at, listings_left = start, MAX_LISTINGS
    while True:
        try:
            for segment, first, last in select(list_segments(directory), at, end, allow_gaps=allow_gaps):
                batch, origin = read_segment(segment, mapped=mapped)
                check_owner(segment, origin, owner)
                yield segment, batch.slice(first - segment.base, last - first)
                at, listings_left = last, MAX_LISTINGS
        except SegmentGoneError:
            listings_left -= 1
            if not listings_left:
                raise
        else:
            return


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with os_errors("read", path):
        try:
            check_regular(path)
            yield
        except FileNotFoundError as error:
            raise SegmentGoneError(
                f"{path} does not exist any more: it was compacted, has expired or was moved"
            ) from error


@contextmanager
def _parse_errors(path: Path) -> Iterator[None]:
    """Translate errors of Arrow and of parsing into SegmentCorruptError."""
    try:
        yield
    except (
        pa.ArrowException, OSError, KeyError, ValueError, TypeError, AttributeError, SystemError, ConfigurationError,
    ) as error:  # fmt: skip
        if isinstance(error, OSError) and error.errno is not None:  # of the disk; Arrow's own have no number
            raise
        raise SegmentCorruptError(f"{path} is not a valid segment: {reason_of(error)}. {_RESTORE}") from None


def _origin(metadata: dict[bytes, bytes], path: Path) -> Origin:
    values: dict[str, Any] = {key.decode(): value.decode() for key, value in metadata.items()}
    for name, known in (("format", FORMAT_VERSION), ("mapping", MAPPING_VERSION)):
        if (version := whole_number(values[f"efo.{name}"])) > known:
            raise LogVersionError(
                f"{path} has {name} version {version}, but this efo supports up to {known}: upgrade efo"
            )
    return Origin(
        values["efo.stream"],
        values["efo.shard"],
        _checkpoint(values["efo.first"]),
        _checkpoint(values["efo.last"]),
        epoch_seconds(values["efo.committed_at"]),
    )


def _checkpoint(text: str) -> Checkpoint:
    sequence_number, _, sub = text.partition("/")
    return Checkpoint(sequence_number, whole_number(sub or 0))
