"""Which checkpoint a record processor of KCL asks for, and by which of KCL's exceptions it is refused. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from efo.errors import LeaseError, LeaseLostError
from efo.model import Checkpoint, Record, checkpoint_of, is_decimal

SHUTDOWN: Final = "ShutdownException"
THROTTLING: Final = "ThrottlingException"
INVALID_STATE: Final = "InvalidStateException"
ILLEGAL_ARGUMENT: Final = "IllegalArgumentException"
"""The names of KCL's exceptions, which its processors know."""


class KclCheckpointError(Exception):
    """A checkpoint that is refused. `name`: of KCL's exception."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def refusal_of(error: LeaseError) -> str:
    """Return the name of KCL's exception for a checkpoint that could not be saved.

    ThrottlingException is what processors are written to try again after, and so it is for every outage of the store.
    """
    if isinstance(error, LeaseLostError):
        return SHUTDOWN
    return THROTTLING if error.retryable else INVALID_STATE


@dataclass(slots=True)
class Permitted:
    """What a processor may checkpoint: from its last checkpoint to the last record that it was given, both included."""

    last: Checkpoint
    largest: Checkpoint

    @classmethod
    def after(cls, checkpoint: Checkpoint) -> Permitted:
        """Return what is permitted before the first record."""
        return cls(checkpoint, checkpoint)

    def give(self, record: Record) -> None:
        """Note that the processor is given this record, and all before it."""
        self.largest = checkpoint_of(record)
        self.last = min(self.last, self.largest)  # a seek moves back

    def resolve(self, sequence_number: object, sub_sequence_number: object) -> Checkpoint:
        """Return the checkpoint that is asked for, and take it as the last. Raises KclCheckpointError.

        Without a sequence number, it is that of everything that the processor was given.
        """
        if sequence_number is None:
            self.last = self.largest
            return self.last
        sequence, sub = _text(sequence_number), _number(sub_sequence_number)
        if sequence is None or sub is None or not is_decimal(sequence):
            raise KclCheckpointError(ILLEGAL_ARGUMENT)
        checkpoint = Checkpoint(sequence, sub)
        if not self.last <= checkpoint <= self.largest:
            raise KclCheckpointError(ILLEGAL_ARGUMENT)
        self.last = checkpoint
        return checkpoint


def _text(value: object) -> str | None:
    """Return a sequence number as text, None if it cannot be one. KCL takes a number, too."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    """Return a sub-sequence number, None if it is none."""
    if value is None:
        return 0
    if isinstance(value, str) and is_decimal(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
