"""What is in a commit, a tombstone and a segment: a line, a header of JSON, and the records as an Arrow stream. Pure.

    efo-object-log <format> <length of the header> <CRC-32 of the header>
    {"kind":"commit","number":7,"base":1200,"end":1300,"last":"4959...",...,"size":5120,"crc":123}
    <the records: an Arrow IPC stream with the columns of Spark's Kafka source, compressed with zstd>

The header is at the beginning, so that a reader gets it with one small request for a range, before it asks for records.
It has a checksum of its own for that reason, and it has the checksum of the records. An Arrow file would have its
metadata at its beginning too, but no place for a checksum: on a disk the file's name has it, and here the key of a
commit must not depend on its content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.ipc
from msgspec import Meta
from zlib_ng.zlib_ng import crc32

from efo.errors import ConfigurationError, InvalidValueError
from efo.model import Checkpoint
from efo.third_party_errors import reason_of
from efo_service.log.segments import SCHEMA
from efo_service.relay.errors import LogOwnerError, LogVersionError, SegmentCorruptError
from efo_service.relay.files import whole_number
from efo_service.relay.mapping import MAPPING_VERSION

FORMAT_VERSION: Final = 1
"""The version of the log's format on object stores, in each of its objects. It is not that of the log on disk."""
HEADER_BYTES: Final = 4096
"""The line and the header are never longer. A request for this range always has all of them."""

_MAGIC: Final = b"efo-object-log"
_LINE: Final = re.compile(rb"efo-object-log (\d{1,9}) (\d{8}) ([0-9a-f]{8})\n")
_ALIGNMENT: Final = 64
_RESTORE: Final = "Restore the object from a copy or from an earlier version of it (docs/log.md, Damage of objects)"

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Kind = Literal["commit", "open", "segment", "tombstone"]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The header of an object.

    `kind`: a commit; `open`, a commit without records that begins a fencing epoch; a segment; or a tombstone, what
    stays of a commit for ever. `number`: of the commit; of a segment's last one. `epoch`: the fencing epoch of its
    writer. `base`, `end`: the offsets of its records. `first`, `last`: their Kinesis positions; `last` of an `open` is
    that of the records before it, and None if there are none. `committed_at`: the writer's time, epoch seconds.
    `write`: identifies one attempt of one writer. `size`, `crc`: of the records' bytes. `mapping`: version of the
    records' mapping.
    """

    kind: Kind
    topic: str
    partition: Number
    stream: str
    shard: str
    number: Number
    epoch: Number
    base: Number
    end: Number
    first: str | None
    last: str | None
    committed_at: float
    write: str
    size: Number = 0
    crc: Number = 0
    mapping: Number = MAPPING_VERSION

    @property
    def position(self) -> Checkpoint | None:
        """The Kinesis position at its end. Raises ConfigurationError and ValueError if it is none."""
        return checkpoint(self.last)


def checkpoint(text: str | None) -> Checkpoint | None:
    """Return a position from its text. Raises ConfigurationError and ValueError."""
    if text is None:
        return None
    sequence_number, _, sub = text.partition("/")
    return Checkpoint(sequence_number, whole_number(sub or 0))


_encode_header: Final = msgspec.json.Encoder().encode
_decode_header: Final = msgspec.json.Decoder(Header).decode


def encode(header: Header, batch: pa.RecordBatch | None = None) -> bytes:
    """Return the bytes of an object with these records. `size` and `crc` of the header are filled in."""
    body = b"" if batch is None else _encode_records(batch)
    text = _encode_header(msgspec.structs.replace(header, size=len(body), crc=crc32(body)))
    line = len(_MAGIC) + len(b" 1 12345678 12345678\n") + len(str(FORMAT_VERSION)) - 1
    text += b" " * (-(line + len(text)) % _ALIGNMENT)
    if line + len(text) > HEADER_BYTES:
        raise InvalidValueError(f"the header has {len(text)} bytes")
    return b"%b %d %08d %08x\n%b%b" % (_MAGIC, FORMAT_VERSION, len(text), crc32(text), text, body)


def _encode_records(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        writer.write_batch(batch.replace_schema_metadata(None))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def tombstone(header: Header) -> bytes:
    """Return what stays of a commit once a segment has its records: its header."""
    return encode(msgspec.structs.replace(header, kind="tombstone"))


def decode_header(content: bytes, name: str) -> Header:
    """Return the header of an object, from its first bytes. `name`: of the object, for messages.

    Raises LogVersionError and SegmentCorruptError.
    """
    return _split(content, name)[0]


def decode(content: bytes, name: str) -> tuple[Header, pa.RecordBatch]:
    """Return the header and the records of an object, after a check of every byte.

    Raises LogVersionError and SegmentCorruptError.
    """
    header, body = _split(content, name)
    if len(body) != header.size or crc32(body) != header.crc:
        raise SegmentCorruptError(f"{name} is damaged: its records do not have the checksum of its header. {_RESTORE}")
    if not header.size:
        return header, _EMPTY
    try:
        with pa.ipc.open_stream(body) as reader:
            batches = list(reader)
            schema = reader.schema
        for batch in batches:
            batch.validate(full=True)  # a checksum says nothing of offsets that lead outside, and Arrow believes them
    except (pa.ArrowException, OSError, ValueError, TypeError, SystemError) as error:
        raise SegmentCorruptError(f"{name} holds no valid records: {reason_of(error)}. {_RESTORE}") from None
    if len(batches) != 1 or not schema.equals(SCHEMA):
        raise SegmentCorruptError(f"{name} does not hold exactly one batch with the log's columns. {_RESTORE}")
    batch = batches[0]
    if (
        not batch.num_rows
        or batch.num_rows != header.end - header.base
        or batch.column("offset")[0].as_py() != header.base
    ):
        raise SegmentCorruptError(f"{name} does not hold the offsets in its header. {_RESTORE}")
    return header, batch


_EMPTY: Final = pa.RecordBatch.from_pylist([], schema=SCHEMA)


def _split(content: bytes, name: str) -> tuple[Header, memoryview]:
    match = _LINE.match(content)
    if match is None:
        raise SegmentCorruptError(f"{name} is no object of the log. {_RESTORE}")
    if int(match[1]) > FORMAT_VERSION:
        raise LogVersionError(
            f"{name} has format version {int(match[1])}, but this efo supports up to {FORMAT_VERSION}: upgrade efo"
        )
    view = memoryview(content)
    text = view[match.end() : match.end() + int(match[2])]
    if len(text) != int(match[2]) or crc32(text) != int(match[3], 16):
        raise SegmentCorruptError(f"{name} is damaged: its header does not have its checksum. {_RESTORE}")
    try:
        header = _decode_header(text)
        _ = header.position, checkpoint(header.first)
        if header.end < header.base or (header.kind == "commit" and header.end == header.base):
            raise InvalidValueError("its offsets do not ascend")
    except (ValueError, RecursionError, ConfigurationError) as error:
        raise SegmentCorruptError(f"{name} has no valid header: {reason_of(error)}. {_RESTORE}") from None
    if header.mapping > MAPPING_VERSION:
        raise LogVersionError(
            f"{name} has mapping version {header.mapping}, but this efo supports up to {MAPPING_VERSION}: upgrade efo"
        )
    return header, view[match.end() + len(text) :]


def check_owner(header: Header, name: str, owner: tuple[str, str], place: tuple[str, int]) -> None:
    """Raise LogOwnerError unless an object is of this stream and shard, and was written to this topic and partition."""
    if (header.stream, header.shard) != owner:
        raise LogOwnerError(
            f"{name} holds records of {header.stream}/{header.shard}, but the topic's catalog assigns its partition to"
            f" {'/'.join(owner)}: an object or a prefix was copied there, put it back"
        )
    if (header.topic, header.partition) != place:
        raise LogOwnerError(
            f"{name} was written as partition {header.partition} of the topic {header.topic}: it was copied, put it"
            " back"
        )


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the records of several commits as one batch."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
