"""What a row of another library's checkpoints says, and the interface of the layouts that read and write such rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from efo.checks import shown
from efo.errors import ConfigurationError
from efo.model import Checkpoint, HashKeyRange, Lease, Shard, is_shard_id

Row = Mapping[str, Any]
"""A row as its store returns it: an item of DynamoDB, the columns of a table, or `key` and `value` in Redis."""


class RowError(Exception):
    """A row cannot be read. The message says why, without the row's key."""


class NotHeldError(Exception):
    """The other format cannot hold the position of a lease. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is migrated: the name that the other library calls its application, and the stream's name.

    `stream_id`: "account:stream:epoch" in the table of a KCL multi-stream application, else None.
    """

    application: str
    stream: str
    stream_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a row says about one shard of the stream.

    `key`: names the row in messages. `checkpoint`: None if the library has read nothing of the shard yet.
    `pulse`: the values that change while the application runs. `owner`: the worker that the row names.
    `stream_id`: the identity of the stream, where the row has more than its name. `notes`: what the report says about
    this row. The other fields are those of `Lease`.
    """

    key: str
    shard_id: str
    checkpoint: Checkpoint | None
    pulse: tuple[object, ...]
    owner: str | None = None
    stream_id: str | None = None
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    hash_key_range: HashKeyRange | None = None
    latest_at: float | None = None
    pending_checkpoint: Checkpoint | None = None
    pending_checkpoint_state: bytes | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A row about a worker and not about a shard. `key` and `pulse` as in `Found`."""

    key: str
    pulse: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class OtherStream:
    """A row of a table for many streams that is about another one. `stream_id`: as in `Scope`."""

    stream_id: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The whole record up to which a shard was read. `sequence_number`: None if no mark is right. `why`: for people."""

    sequence_number: str | None
    why: str = ""


class Layout(Protocol):
    """How one library keeps its checkpoints in one kind of store. Pure: it decides, and reads and writes nothing.

    `look_seconds`: within this time, a running application changes a row. `blind`: when it may not; empty if it always
    does. `marks_whole_records`: whether it has no sub-sequence numbers, so that a position means all of a record.
    """

    @property
    def look_seconds(self) -> float:
        """See above."""
        ...

    @property
    def blind(self) -> str:
        """See above."""
        ...

    @property
    def marks_whole_records(self) -> bool:
        """See above."""
        ...

    def selection(self, scope: Scope, /) -> str:
        """Return which rows to read: a pattern of keys in Redis, a namespace in SQL; unused in DynamoDB."""
        ...

    def key_of(self, row: Row, /) -> str:
        """Return what names the row in messages."""
        ...

    def read(self, row: Row, scope: Scope, /) -> Found | Heartbeat | OtherStream | None:
        """Return what a row says; None if it is not about this application and stream. Raises RowError."""
        ...

    def write(self, lease: Lease, shard: Shard | None, scope: Scope, old: tuple[Row, Found] | None, /) -> Row | None:
        """Return the row that continues after a lease; None if the library needs none.

        `shard`: as it is listed, None if it is not. `old`: the present row of the shard. Raises NotHeldError.
        """
        ...


def read_shard_id(text: object) -> str:
    """Return the id of a shard. Raises RowError."""
    if not isinstance(text, str) or not is_shard_id(text):
        raise RowError(f"{shown(text)} is not the id of a shard")
    return text


def read_sequence_number(text: object, *sentinels: str) -> Checkpoint | None:
    """Return a checkpoint; None for no text or an empty one. `sentinels`: those that the library writes.

    Raises RowError.
    """
    if text is None or text == "":
        return None
    try:
        checkpoint = Checkpoint(text)  # type: ignore[arg-type] # it checks the type
    except ConfigurationError as error:
        raise RowError(str(error)) from None
    if checkpoint.is_sentinel and checkpoint.sequence_number not in sentinels:
        raise RowError(f"{text!r}: this library does not write that")
    return checkpoint


def whole_record(lease: Lease, library: str) -> str:
    """Return the sequence number of a lease, for a format without sub-sequence numbers and sentinels.

    Raises NotHeldError.
    """
    checkpoint = lease.checkpoint
    if checkpoint.is_sentinel:
        raise NotHeldError(
            f"{library} has no checkpoint like {checkpoint}: without a row, it reads the shard from its own initial "
            "position"
        )
    if checkpoint.sub_sequence_number:
        raise NotHeldError(
            f"{library} has no sub-sequence numbers, and the rest of the aggregate would be lost, if there is one: let "
            "efo run until it has acked what follows the aggregate"
        )
    return checkpoint.sequence_number


def last_number(lease: Lease, shard: Shard | None, library: str) -> str | None:
    """Return the sequence number for a library that does not save the end of a shard. Raises NotHeldError.

    For a finished shard it is the last one of the shard, so that nothing is read again; None if it is not listed.
    """
    if not lease.is_finished:
        return whole_record(lease, library)
    return None if shard is None else shard.ending_sequence_number
