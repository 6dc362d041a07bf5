"""What a row of another library's checkpoints says, and the interface of the layouts that read and write such rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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


@dataclass(frozen=True, slots=True)
class RowsSnapshot:
    """What the rows say.

    `found`: by shard id, with the row. `heartbeats`: rows of workers. `unreadable`: what is wrong, by the row's key.
    `others`: how many rows are not about this application and stream. `other_streams`: those in the same table, by
    their `stream_id`. `stream_id`: as in `Scope`. `problems`: what forbids to use the rows at all.
    """

    found: dict[str, tuple[Row, Found]]
    heartbeats: tuple[Heartbeat, ...]
    unreadable: dict[str, str]
    others: int
    other_streams: tuple[str, ...]
    stream_id: str | None
    problems: tuple[str, ...]


def read_rows(rows: Iterable[Row], layout: Layout, scope: Scope) -> RowsSnapshot:
    """Return what these rows say."""
    found: list[tuple[Row, Found]] = []
    heartbeats: list[Heartbeat] = []
    unreadable: dict[str, str] = {}
    others = 0
    other_streams: set[str] = set()
    for row in rows:
        try:
            match layout.read(row, scope):
                case None:
                    others += 1
                case OtherStream(stream_id):
                    others += 1
                    other_streams.add(stream_id)
                case Heartbeat() as heartbeat:
                    heartbeats.append(heartbeat)
                case shard:
                    found.append((row, shard))
        except RowError as error:
            unreadable[layout.key_of(row)] = str(error)
    streams = {shard.stream_id for _, shard in found}
    problems = [*_several_streams(streams, scope), *_without_streams(streams, scope), *_repeated(found, streams)]
    chosen = [pair for pair in found if scope.stream_id is None or pair[1].stream_id == scope.stream_id]
    return RowsSnapshot(
        found={shard.shard_id: (row, shard) for row, shard in chosen},
        heartbeats=tuple(heartbeats),
        unreadable=unreadable,
        others=others + len(found) - len(chosen),
        other_streams=tuple(sorted(other_streams)),
        stream_id=scope.stream_id or next(iter(streams), None),
        problems=tuple(problems),
    )


def _several_streams(streams: set[str | None], scope: Scope) -> list[str]:
    if scope.stream_id is not None or len(streams) < 2:  # noqa: PLR2004 - several
        return []
    names = ", ".join(sorted("no stream" if stream is None else stream for stream in streams))
    return [f"the rows are of several streams of this name ({names}): choose one with --stream-id"]


def _without_streams(streams: set[str | None], scope: Scope) -> list[str]:
    if scope.stream_id is None or None not in streams:
        return []
    return ["the rows do not name a stream, so that --stream-id selects none of them: leave it out"]


def _repeated(found: list[tuple[Row, Found]], streams: set[str | None]) -> list[str]:
    if len(streams) > 1:
        return []
    counts = Counter(shard.shard_id for _, shard in found)
    return [f"{count} rows are about {shard}: delete all but one" for shard, count in counts.items() if count > 1]


def changes(first: RowsSnapshot, second: RowsSnapshot) -> list[str]:
    """Return what changed between two snapshots, in words: an application that is stopped changes nothing."""
    before, after = _pulses(first), _pulses(second)
    return [
        f"{key}{f' of {owner}' if owner else ''}"
        for key, (pulse, owner) in sorted(after.items())
        if key not in before or before[key][0] != pulse
    ] + [f"{key} (deleted)" for key in sorted(before.keys() - after.keys())]


def _pulses(snapshot: RowsSnapshot) -> dict[str, tuple[object, str | None]]:
    rows: dict[str, tuple[object, str | None]] = {beat.key: (beat.pulse, None) for beat in snapshot.heartbeats}
    rows |= {shard.key: (shard.pulse, shard.owner) for _, shard in snapshot.found.values()}
    return rows | {key: (reason, None) for key, reason in snapshot.unreadable.items()}
