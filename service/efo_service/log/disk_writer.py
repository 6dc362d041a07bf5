"""Writing segments to a disk: a writer appends its commits, and a compaction what it has joined. Blocking.

Their format is in efo_service.log.segments. A segment appears by one rename, with its records and their position.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.ipc
from zlib_ng.zlib_ng import crc32

from efo.model import Checkpoint
from efo_service.log.fencing import Epoch, removed_on_error
from efo_service.log.files import Owner
from efo_service.log.segments import SCHEMA, Origin, Segment, check_owner, last_segment, read_segment
from efo_service.relay.errors import LogIncompleteError, SinkError, os_errors
from efo_service.relay.mapping import MAPPING_VERSION
from efo_service.relay.storage import sync_directory, write_file

_SHORT: Final = 16 * 1024
"""Shorter writes of Arrow are joined: for each write of a file, a thread gives up the interpreter's lock."""


class DiskAppender:
    """A partition that is open for writing; implements Appender. It has the lock, until it is closed, and an epoch."""

    def __init__(self, epoch: Epoch, owner: Owner, held: IO[bytes]) -> None:
        self._epoch = epoch
        self._owner = owner
        self._lock = held
        self.position: Checkpoint | None = None
        self.end = 0

    def recover(self, emptied: str | None = None) -> None:
        """Read the position and the end from the last segment, after checking every byte of it.

        `emptied`: the message of the LogIncompleteError if there is none; None if there need not be one.
        """
        last = last_segment(self._epoch.directory)
        if last is not None:
            _, origin = read_segment(last)
            check_owner(last, origin, self._owner)
            self.position, self.end = origin.last, last.end
        elif emptied is not None:
            raise LogIncompleteError(emptied)

    def lay_out(self, batch: pa.RecordBatch, first: Checkpoint, last: Checkpoint, now: float) -> SegmentContent:
        """Return the content of the next segment."""
        return segment_content(batch, Origin(*self._owner, first, last, now))

    def append(self, laid_out: SegmentContent) -> None:
        """Write it as a segment. Raises SinkFencedError, SinkFullError and SinkError."""
        write_segment(self._epoch.directory, laid_out, self._epoch)
        self.position, self.end = laid_out.last, laid_out.end

    def close(self) -> None:
        """Unlock the partition."""
        self._lock.close()


class WriteGuard(Protocol):
    """Checks the right to write a segment. A partition writer has its epoch as guard, a compaction has its parts."""

    @property
    def temporary(self) -> Path:
        """The temporary file of the segment, on the same file system."""
        ...

    def check(self) -> None:
        """Raise if the segment must not be written any more."""
        ...

    def fenced(self) -> SinkError:
        """Return the error for a temporary file that another process has removed."""
        ...


class SegmentContent(NamedTuple):
    """The bytes of a segment's file, in order, their CRC, and the offsets `base` (inclusive) to `end` (exclusive).

    `last`: the Kinesis position of the last record.
    """

    chunks: Sequence[bytes | pa.Buffer]
    crc: int
    base: int
    end: int
    last: Checkpoint


def segment_content(batch: pa.RecordBatch, origin: Origin, *, is_compressed: bool = False) -> SegmentContent:
    """Return the content of a segment with one batch of SCHEMA. Uncompressed columns are not copied."""
    metadata = {
        "efo.format": "2" if is_compressed else "1",
        "efo.mapping": str(MAPPING_VERSION),
        "efo.stream": origin.stream,
        "efo.shard": origin.shard_id,
        "efo.first": str(origin.first),
        "efo.last": str(origin.last),
        "efo.committed_at": repr(origin.committed_at),
        **({"efo.memory": str(batch.nbytes)} if is_compressed else {}),
    }
    options = pa.ipc.IpcWriteOptions(compression="zstd" if is_compressed else None, use_threads=False)
    base = batch.column("offset")[0].as_py()
    chunks = _Chunks()
    with pa.ipc.new_file(pa.PythonFile(chunks, "w"), SCHEMA.with_metadata(metadata), options=options) as writer:
        writer.write_batch(batch)
    return SegmentContent(chunks.take(), chunks.crc, base, base + batch.num_rows, origin.last)


class _Chunks:
    """A file that keeps what is written to it. Short writes, of which Arrow makes many, become one chunk."""

    closed = False

    def __init__(self) -> None:
        self.crc = 0
        self._chunks: list[bytes | pa.Buffer] = []
        self._short: list[bytes] = []

    def write(self, data: bytes | pa.Buffer) -> int:
        self.crc = crc32(data, self.crc)
        if (size := len(data)) < _SHORT:
            self._short.append(bytes(data))
        else:
            self._end_short()
            self._chunks.append(data)
        return size

    def flush(self) -> None:
        pass

    def _end_short(self) -> None:
        if self._short:
            self._chunks.append(b"".join(self._short))
            self._short = []

    def take(self) -> list[bytes | pa.Buffer]:
        self._end_short()
        return self._chunks


def write_segment(directory: Path, content: SegmentContent, guard: WriteGuard) -> Segment:
    """Make the content durable as a segment.

    The rename makes all of it visible at once. The directory is synced, so that the name survives a power failure.
    Raises SinkFencedError, SinkFullError (nothing was written) and SinkError.
    """
    temporary = guard.temporary
    with os_errors("write", temporary), removed_on_error(temporary):
        write_file(temporary, content.chunks)
        segment = Segment(content.base, content.end, content.crc, directory)
        guard.check()
        try:
            temporary.rename(segment.path)
        except FileNotFoundError:
            raise guard.fenced() from None
    try:
        sync_directory(directory)
    except OSError as error:  # never SinkFullError: the segment may exist
        raise SinkError(f"cannot make {segment.path} durable: {error.strerror}") from error
    return segment
