"""Which stream something belongs to: a stream is its name and the time at which it was created (rule R15). Pure.

A lease names that time, so that a stream which was deleted and created again is not mistaken for its predecessor. Rows
of KCL and of earlier versions of efo do not have it, and some servers, or an IAM policy, do not tell it. Then the
leases and the listed shards are compared: what of a shard never changes must be the same. What a listing that lags
behind a reshard can show as well is only a suspicion, which the service confirms or refutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from efo.errors import ServiceError
from efo.model import Checkpoint, HashKeyRange, Lease, Position, Shard

TOLERANCE: Final = 1.0
"""Seconds by which two times of one creation may differ: a protocol may drop the milliseconds."""
MARGIN: Final = 60.0
"""Seconds by which the time in a lease must be before the creation of the stream, to prove that the lease is older."""
INVALID_ARGUMENT: Final = "InvalidArgumentException"
_NUMBER: Final = "StartingSequenceNumber"

_LAYOUT: Final = 2  # of sequence numbers, as KCL's SequenceNumberValidator reads them
_LAYOUT_SHIFT: Final = 184
_SHARD_SHIFT: Final = 4
_SHARD_MASK: Final = 0xFFFF_FFFF

Kind = Literal["created", "older", "hash_keys", "is_open", "position"]
"""What shows it.

created      the lease names another time of creation
older        the lease was created before the stream
hash_keys    the shard has other hash keys, which never change
is_open      the lease says that the shard was read to its end, and the shard is listed as open
position     the checkpoint is before the shard's first sequence number, or carries another shard's number
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows that a lease is not of the stream that exists now."""

    kind: Kind
    lease: Lease

    @property
    def is_certain(self) -> bool:
        """Whether it proves that. Otherwise the service must confirm it: a listing may be late, or a layout unknown."""
        return self.kind not in {"is_open", "position"}


def are_same(created_at: float | None, other: float | None) -> bool | None:
    """Return whether two times of creation are those of one stream; None if one of them is unknown."""
    return None if created_at is None or other is None else abs(created_at - other) <= TOLERANCE


def evidence_against(leases: Iterable[Lease], shards: Sequence[Shard], created_at: float | None) -> list[Evidence]:
    """Return what shows that leases are not of the stream with these shards, the surest first; empty if nothing does.

    `created_at`: when the stream was created, None if unknown. A lease that names this time is of this stream,
    whatever else it says.
    """
    listed = {shard.shard_id: shard for shard in shards}
    found: list[Evidence] = []
    for lease in leases:
        is_same = are_same(lease.stream_created_at, created_at)
        if is_same is False:
            return [Evidence("created", lease)]
        kind = None if is_same else _older(lease, created_at) or _unlike(lease, listed)
        if kind is not None:
            found.append(Evidence(kind, lease))
    return sorted(found, key=lambda evidence: (not evidence.is_certain, evidence.lease.key))


def has_changed(before: Mapping[str, str], shards: Sequence[Shard]) -> bool:
    """Return whether a listing cannot be of the stream of an earlier one, or may be older than it.

    `before`: the starting sequence numbers of the shards of the earlier one, by their ids. They never change, and new
    shards have higher numbers: the newest shard is listed as long as nothing follows it.
    """
    now = {shard.shard_id: shard.starting_sequence_number for shard in shards}
    return has_other_starts(before, shards) or max(now, default="") < max(before, default="")


def has_other_starts(before: Mapping[str, str], shards: Sequence[Shard]) -> bool:
    """Return whether a shard of an earlier listing now starts at another sequence number, as only another one can."""
    return any(before[shard.shard_id] != shard.starting_sequence_number for shard in shards if shard.shard_id in before)


def is_refusal(error: ServiceError, position: Position) -> bool:
    """Return whether the service says that a position is of another shard or stream.

    AWS's texts: "Invalid StartingSequenceNumber. It encodes shardId-..., while it was used in a call to a shard with
    shardId-...", and "StartingSequenceNumber ... is invalid because it did not come from this stream".
    """
    return position.sequence_number is not None and error.code == INVALID_ARGUMENT and _NUMBER in error.message


def shard_number_of(sequence_number: str) -> int | None:
    """Return the number of the shard that a sequence number carries; None if its layout is another one.

    AWS documents no layout; this is the one that KCL checks. It is a reason to ask the service, and no proof.
    """
    value = int(sequence_number)
    return value >> _SHARD_SHIFT & _SHARD_MASK if value >> _LAYOUT_SHIFT == _LAYOUT else None


def _older(lease: Lease, created_at: float | None) -> Kind | None:
    """Return whether the time that LATEST stands for, when the lease was created, is before the stream."""
    if created_at is None or lease.latest_at is None or lease.checkpoint != Checkpoint.LATEST:
        return None
    return "older" if lease.latest_at < created_at - MARGIN else None


def _unlike(lease: Lease, listed: Mapping[str, Shard]) -> Kind | None:
    """Return how the listed shard of a lease differs from it."""
    shard, checkpoint = listed.get(lease.key), lease.checkpoint
    if shard is None:
        return None
    if lease.hash_key_range is not None and _bounds(lease.hash_key_range) != _bounds(shard.hash_key_range):
        return "hash_keys"
    if lease.is_finished:
        return "is_open" if shard.is_open else None
    if checkpoint.is_sentinel:
        return None
    number, first = checkpoint.sequence_number, shard.starting_sequence_number
    carried, own = shard_number_of(number), shard_number_of(first)
    is_of_another = carried is not None and own is not None and carried != own
    return "position" if is_of_another or int(number) < int(first) else None


def _bounds(keys: HashKeyRange) -> tuple[int, int]:
    return int(keys.starting_hash_key), int(keys.ending_hash_key)
