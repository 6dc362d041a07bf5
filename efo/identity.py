"""The sentences about a stream that is not the one of before: what shows it, and what to do (rule R15)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from efo.errors import ServiceError, StreamRecreatedError
from efo.model import Position
from efo.protocol.identity import Evidence, is_refusal

REMEDY: Final = (
    "to read it from its beginning, stop all workers and run `efo leases reset --all --to trim_horizon`, or delete the"
    " leases"
)
"""What to do about leases of a former stream."""


def time_text(seconds: float) -> str:
    """Return a time for a message, in UTC and whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def recreated(stream: str, how: str, remedy: str = REMEDY) -> str:
    """Return the sentence for a stream that is not the one of before. `how`: how that is known."""
    return (
        f"the stream {stream!r} was deleted and created again, or is now that of another account or region: {how};"
        f" {remedy}"
    )


def created_text(stored: float | None, created_at: float | None, what: str = "what was read is") -> str:
    """Return how two times show it. `what`: what belongs to the former stream, with its verb."""
    return (
        f"{what} of the one that was created at {time_text(stored or 0)}, and the present one was created at "
        f"{time_text(created_at or 0)}"
    )


def evidence_text(evidence: Evidence, created_at: float | None) -> str:
    """Return how a lease shows it. `created_at`: when the stream was created, None if unknown."""
    lease = evidence.lease
    match evidence.kind:
        case "created":
            return created_text(lease.stream_created_at, created_at, "the leases are")
        case "older":
            return (
                f"the lease of {lease.key} was created at {time_text(lease.latest_at or 0)}, and the stream at "
                f"{time_text(created_at or 0)}"
            )
        case "hash_keys":
            return f"the lease of {lease.key} has other hash keys than the shard"
        case "is_open":
            return f"the lease of {lease.key} says that the shard was read to its end, and the shard is open"
        case "position":
            return f"the checkpoint of {lease.key} did not come from this shard"


def check_refusal(error: ServiceError, stream: str, shard_id: str, position: Position) -> None:
    """Raise StreamRecreatedError if an error of a shard says that the position is of another shard or stream."""
    if is_refusal(error, position):
        how = f"{shard_id} was to be read from {position.sequence_number} on, which did not come from this shard"
        remedy = f"{REMEDY}; a sink that keeps the position needs another topic, see its documentation"
        raise StreamRecreatedError(recreated(stream, f"{how} ({error.message.rstrip('.')})", remedy)) from error
