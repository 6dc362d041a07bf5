"""Errors of sinks and of the embedded log."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final

from efo.errors import EfoError
from efo.third_party_errors import reason_of

if TYPE_CHECKING:
    from pathlib import Path


class SinkError(EfoError):
    """A sink could not write records. If it is `retryable`, the relay repeats the commit.

    `reopens`: whether the shard sink must be opened again before. False: a failed commit left nothing behind, or its
    repetition looks by itself what became of it.
    """

    reopens: ClassVar[bool] = True
    error_type = "sink"


class SinkUnavailableError(SinkError):
    """A sink cannot be reached or does not respond, or its disk does not work. This passes."""

    retryable = True
    error_type = "sink_unavailable"


class SinkFullError(SinkError):
    """The disk or the quota is full. No record is lost: those that were not committed are read again."""

    retryable = True
    reopens = False
    error_type = "sink_full"


class SinkLockedError(SinkError):
    """Another writer has the shard's partition open: two workers act as owner of the shard."""

    retryable = True
    error_type = "sink_locked"


class SinkFencedError(SinkError):
    """Another worker owns the shard now: the commits of this one are rejected."""

    error_type = "sink_fenced"


class SinkClosedError(SinkError):
    """The shard sink is closed: its context was left, or it failed earlier."""

    error_type = "sink_closed"


CLOSED: Final = "this shard sink is closed: open the sink for the shard again"
"""The message of SinkClosedError."""


class SinkOrderError(SinkError):
    """A batch starts at or before the last record written: records would be duplicated or out of order."""

    error_type = "sink_order"


class RecordRefusedError(SinkError):
    """The sink can never write this record. An operator decides where it goes. `record`: the text of its checkpoint."""

    error_type = "record_refused"

    def __init__(self, message: str, record: str | None = None) -> None:
        super().__init__(message)
        self.record = record


class SinkDefectError(SinkError):
    """A sink failed in a way that it does not know. Perhaps one of the records causes it."""

    error_type = "sink_defect"


class LogError(SinkError):
    """The log cannot be used as it is. The message says what an operator must do."""

    error_type = "log"


class SegmentCorruptError(LogError):
    """A segment is damaged. It is never skipped, since its records would be lost silently."""

    error_type = "segment_corrupt"


class SegmentMissingError(LogError):
    """The log has a gap: committed records are missing."""

    error_type = "segment_missing"


class LogIncompleteError(LogError):
    """The log lacks records that its catalog, its directories or the leases prove. It is not continued by a guess."""

    error_type = "log_incomplete"


class SegmentGoneError(LogError):
    """A listed segment does not exist any more: it was compacted or has expired. List again."""

    retryable = True
    error_type = "segment_gone"


class LogVersionError(LogError):
    """A newer efo wrote this log."""

    error_type = "log_version"


class LogOwnerError(LogError):
    """The topic or partition belongs to another stream or shard."""

    error_type = "log_owner"


class TopicNotFoundError(LogError):
    """The log has no topic of this name."""

    error_type = "topic_not_found"


class StoreError(SinkError):
    """An object store refused a request, and repeating it does not help."""

    error_type = "object_store"


class StoreUnavailableError(StoreError):
    """An object store did not answer, or asked to come back later. A write without an answer may have happened."""

    retryable = True
    reopens = False
    error_type = "object_store_unavailable"


class StoreDeniedError(StoreError):
    """An object store does not know these credentials, or they do not have the right."""

    error_type = "object_store_denied"


class StoreUnfitError(StoreError):
    """An object store takes conditional writes whose condition is false: a log on it could lose records."""

    error_type = "object_store_unfit"


_FULL = {errno.ENOSPC, errno.EDQUOT}
_PASSING = {
    errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.ESTALE, errno.ENODEV, errno.ENXIO,
    errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
}  # fmt: skip
"""What a disk, permissions or the limits of a process cause: an operator mends it while the service waits.

Not ENOENT: a directory that is gone may be a mount that is gone, and would be made anew there."""


@contextmanager
def os_errors(action: str, path: Path) -> Iterator[None]:
    """Translate OSError into SinkFullError, SinkUnavailableError or SinkError.

    `action`: a verb for the message, such as "write".
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or reason_of(error)
        if error.errno in _FULL:
            raise SinkFullError(
                f"no space to {action} {path}: {reason}; free some space or move the log, no record was lost"
            ) from error
        kind = SinkUnavailableError if error.errno in _PASSING else SinkError
        raise kind(f"cannot {action} {path}: {reason}") from error
