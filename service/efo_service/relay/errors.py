"""What may go wrong in a sink or in the embedded log."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from efo.errors import EfoError

if TYPE_CHECKING:
    from pathlib import Path


class SinkError(EfoError):
    """A sink could not take or keep what it was given: the shard's way in is closed, open it again."""

    error_type = "sink"


class SinkFullError(SinkError):
    """The disk or the quota is full. Nothing is lost: what was not committed is read again."""

    retryable = True
    error_type = "sink_full"


class SinkLockedError(SinkError):
    """Another writer has the shard's partition open: two workers believe that they own the shard."""

    retryable = True
    error_type = "sink_locked"


class SinkFencedError(SinkError):
    """Another worker has the shard now: nothing that this one writes counts any more."""

    error_type = "sink_fenced"


class SinkClosedError(SinkError):
    """The shard's way in was closed, by leaving its context or by an earlier failure."""

    error_type = "sink_closed"


class SinkOrderError(SinkError):
    """A batch starts at or before the last record written: it would be duplicated or out of order."""

    error_type = "sink_order"


class RecordRefusedError(SinkError):
    """The sink can never take this record; nothing of its batch was taken. Where to put it is the operator's to say."""

    error_type = "record_refused"


class LogError(SinkError):
    """What stands in the log cannot be used as it is; the message says what an operator must do."""

    error_type = "log"


class SegmentCorruptError(LogError):
    """A segment is damaged. It is never skipped: its records would be missing without a word."""

    error_type = "segment_corrupt"


class SegmentMissingError(LogError):
    """The log has a hole: records that were committed are not there."""

    error_type = "segment_missing"


class SegmentGoneError(LogError):
    """A segment that was listed is not there any more: it was rolled up or has expired. List again."""

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


_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def os_errors(doing: str, path: Path) -> Iterator[None]:
    """Translate the operating system's errors: the one seam between the file system and the sink's errors."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            raise SinkFullError(
                f"no room to {doing} {path}: {reason}. Free some space or move the log; nothing was lost"
            ) from error
        raise SinkError(f"cannot {doing} {path}: {reason}") from error
