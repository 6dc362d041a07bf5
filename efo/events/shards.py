"""What happens to shards and streams: which are listed, read, finished, paused and isolated."""

from __future__ import annotations

import msgspec

from efo.model import Checkpoint, Position


class ShardStarted(msgspec.Struct, frozen=True):
    """This worker starts to read a shard after this checkpoint."""

    shard_id: str
    checkpoint: Checkpoint


class ShardFinished(msgspec.Struct, frozen=True):
    """A shard was read to its end, all its records are acked, and SHARD_END is checkpointed (rule R2)."""

    shard_id: str
    children: tuple[str, ...]


class ShardGone(msgspec.Struct, frozen=True):
    """A shard no longer exists. Records after this checkpoint expired before they were read."""

    shard_id: str
    checkpoint: Checkpoint


class StartDelayed(msgspec.Struct, frozen=True):
    """A call that the start needs failed in a way that passes by itself, and is made again (rule R16).

    `call`: AWS's name of the operation, or "leases" for the lease store. `delay`: seconds until then.
    """

    call: str
    error_type: str
    detail: str
    delay: float


class ShardSyncFailed(msgspec.Struct, frozen=True):
    """The stream's shards could not be listed. The next shard sync tries again; known shards are not affected."""

    error_type: str
    detail: str


class ShardsListed(msgspec.Struct, frozen=True):
    """The stream's shards were listed, and a consumer has created leases of new ones. `shards`: how many are listed."""

    shards: int


class StreamIdentified(msgspec.Struct, frozen=True):
    """The leases are of this stream (rule R15). It follows the first listing of its shards.

    `created_at`: when it was created, in seconds since the epoch. `retention_hours`: how long it keeps records. None:
    the service does not tell it to this application (AWS: DescribeStreamSummary).
    """

    created_at: float | None
    retention_hours: float | None


class ParentCycleFound(msgspec.Struct, frozen=True):
    """These leases wait for each other as parents, or one for itself, so their shards are never read. Reported once.

    Their rows are damaged: delete them (`efo leases delete`), and the next shard sync creates those of shards that
    exist. Of a long circle, the first ten are named.
    """

    shard_ids: tuple[str, ...]


class HashRangeHoleFound(msgspec.Struct, frozen=True):
    """No lease has covered these hash keys (both ends included) for some time. A shard sync starts at once."""

    start: int
    end: int


class ShardStopped(msgspec.Struct, frozen=True):
    """This worker stops reading a shard before its end. `error_type`: why; None if it was planned."""

    shard_id: str
    error_type: str | None = None
    detail: str = ""


class ConsumerFailed(msgspec.Struct, frozen=True):
    """An error ended the consumer, or one of many streams: what reads it must look at it, or nothing is read any more.

    `detail`: the text of an error of efo; that of another one may contain data. `places`: where it was raised, the
    innermost frames last, as "file:line function".
    """

    error_type: str
    detail: str
    places: tuple[str, ...]


class ShardIsolated(msgspec.Struct, frozen=True):
    """A shard failed and was isolated: its lease is released, and the other shards go on (rule R11).

    This worker does not read it for `cooldown` seconds.
    """

    shard_id: str
    cooldown: float
    error_type: str
    detail: str = ""


class StreamIsolated(msgspec.Struct, frozen=True):
    """The service refuses one of several streams for good, and the others go on. It is opened again after `cooldown`.

    `cooldown`: seconds.
    """

    stream: str
    cooldown: float
    error_type: str
    detail: str = ""


class StreamRestored(msgspec.Struct, frozen=True):
    """A stream is read again that was isolated since it is another one than its leases are of. `duration`: seconds."""

    stream: str
    error_type: str
    duration: float
    attempts: int


class ShardPaused(msgspec.Struct, frozen=True):
    """A shard was paused: no batches are delivered until it is resumed."""

    shard_id: str


class ShardResumed(msgspec.Struct, frozen=True):
    """A paused shard was resumed."""

    shard_id: str


class ShardRepositioned(msgspec.Struct, frozen=True):
    """A seek moved the reading of a shard after this checkpoint, or to this position."""

    shard_id: str
    to: Checkpoint | Position


class ShardsCounted(msgspec.Struct, frozen=True):
    """The number of shards in each state: waiting_parent, ready, consuming, finished."""

    counts: dict[str, int]
