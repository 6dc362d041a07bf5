"""A lease row as named and typed columns, for the stores with a format of efo.

Names and values are those of KCL's lease table, so that leases can be moved to it and back.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

import msgspec

from efo.errors import ConfigurationError
from efo.model import Checkpoint, HashKeyRange, Lease

_YEAR_9999: Final = 253_370_764_800.0
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""What every store can hold."""


def check_time(seconds: float | None) -> float | None:
    """Return a time in seconds since the epoch. Raises ConfigurationError if it is not in the years 1970 to 9999."""
    if seconds is not None and not 0 <= seconds < _YEAR_9999:
        raise ConfigurationError(f"{seconds} is not a time in seconds since 1970")
    return seconds


class LeaseRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The columns of one lease. `msgspec.convert` and msgspec's decoders check the types of stored values."""

    lease_key: str
    lease_owner: str | None
    lease_counter: _Count
    owner_switches_since_checkpoint: _Count
    checkpoint: str
    checkpoint_sub_sequence_number: _Count
    parent_shard_ids: tuple[str, ...]
    child_shard_ids: tuple[str, ...]
    starting_hash_key: str | None
    ending_hash_key: str | None
    latest_at: float | None
    checkpoint_owner: str | None
    pending_checkpoint: str | None
    pending_checkpoint_sub_sequence_number: _Count | None
    pending_checkpoint_state: bytes | None
    throughput_kbps: float | None
    stream_created_at: float | None = None  # not in rows that earlier versions wrote
    unread_since: float | None = None  # the same

    @classmethod
    def of(cls, lease: Lease) -> Self:
        """Return the columns of a lease."""
        hash_keys, pending = lease.hash_key_range, lease.pending_checkpoint
        return cls(
            lease_key=lease.key,
            lease_owner=lease.owner,
            lease_counter=lease.counter,
            owner_switches_since_checkpoint=lease.owner_switches,
            checkpoint=lease.checkpoint.sequence_number,
            checkpoint_sub_sequence_number=lease.checkpoint.sub_sequence_number,
            parent_shard_ids=lease.parents,
            child_shard_ids=lease.children,
            starting_hash_key=hash_keys.starting_hash_key if hash_keys else None,
            ending_hash_key=hash_keys.ending_hash_key if hash_keys else None,
            latest_at=lease.latest_at,
            checkpoint_owner=lease.checkpoint_owner,
            pending_checkpoint=pending.sequence_number if pending else None,
            pending_checkpoint_sub_sequence_number=pending.sub_sequence_number if pending else None,
            pending_checkpoint_state=lease.pending_checkpoint_state,
            throughput_kbps=lease.throughput_kbps,
            stream_created_at=lease.stream_created_at,
            unread_since=lease.unread_since,
        )

    def lease(self) -> Lease:
        """Return the lease of these columns. Raises ConfigurationError if a checkpoint or a time is invalid."""
        start, end, pending = self.starting_hash_key, self.ending_hash_key, self.pending_checkpoint
        return Lease(
            self.lease_key,
            Checkpoint(self.checkpoint, self.checkpoint_sub_sequence_number),
            owner=self.lease_owner,
            counter=self.lease_counter,
            owner_switches=self.owner_switches_since_checkpoint,
            parents=self.parent_shard_ids,
            children=self.child_shard_ids,
            hash_key_range=None if start is None or end is None else HashKeyRange(start, end),
            latest_at=check_time(self.latest_at),
            checkpoint_owner=self.checkpoint_owner,
            pending_checkpoint=(
                None if pending is None else Checkpoint(pending, self.pending_checkpoint_sub_sequence_number or 0)
            ),
            pending_checkpoint_state=self.pending_checkpoint_state,
            throughput_kbps=self.throughput_kbps,
            stream_created_at=check_time(self.stream_created_at),
            unread_since=check_time(self.unread_since),
        )


COLUMN_NAMES = LeaseRow.__struct_fields__
"""The column names, in order."""
