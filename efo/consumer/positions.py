"""From checkpoints to positions of SubscribeToShard, and back. Pure."""

from __future__ import annotations

from efo.model import Checkpoint, Position, PositionType


def start_position(checkpoint: Checkpoint, initial: Position) -> Position:
    """Return where a subscription starts that continues after this checkpoint (rule R5).

    It starts AT the checkpoint's record and not after it, since the record may be an aggregate that was processed in
    part. The records up to the checkpoint are dropped. Sentinels other than TRIM_HORIZON stand for `initial`.
    """
    match checkpoint.sequence_number:
        case "TRIM_HORIZON":
            return Position.trim_horizon()
        case "LATEST" | "AT_TIMESTAMP":
            return initial
        case number:
            return Position.at(number)


def checkpoint_before(position: Position) -> Checkpoint:
    """Return the checkpoint before this position, as far as a checkpoint can express it."""
    match position.type:
        case PositionType.AFTER_SEQUENCE_NUMBER:
            return Checkpoint(position.sequence_number or "")
        case PositionType.AT_SEQUENCE_NUMBER:
            return Checkpoint.TRIM_HORIZON
        case sentinel:
            return Checkpoint(sentinel.value)
