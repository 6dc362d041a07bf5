"""Fencing: a partition's writer that was followed by another cannot commit any more, wherever the two run.

    <partition>/epoch      "<number> <token>"

Opening a partition for writing starts an epoch: the file gets the next number and a token of its own. A commit writes
its temporary file, looks whether the epoch is still its own, and renames. A new epoch is made durable first, then all
temporary files of others are removed, and only then is the newest segment looked for. So a commit of the writer before
is refused when it looks, or its rename finds no file, or its segment is there before the new writer looks: there is no
moment in between. A lock keeps two writers of one machine apart already; the epoch holds as well on a file system that
several machines share, as far as it shows each what the others have renamed and removed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from efo_service.relay.errors import SinkFencedError, os_errors

EPOCH: Final = "epoch"
_TEMPORARY: Final = "segment*.tmp"


@dataclass(frozen=True, slots=True)
class Epoch:
    """One writer's time at a partition. `token` tells it from any other, `number` counts them for people."""

    directory: Path
    number: int
    token: str

    @property
    def temporary(self) -> Path:
        """The file in which this writer prepares a segment: nobody else's."""
        return self.directory / f"segment-{self.token}.tmp"

    def check(self) -> None:
        """Raise SinkFencedError if a later epoch has begun, SinkError if that cannot be told."""
        with os_errors("read", self.directory / EPOCH):
            now = (self.directory / EPOCH).read_text(errors="replace")
        if now != str(self):
            raise self.fenced()

    def fenced(self) -> SinkFencedError:
        """Return the error that says that another writer has followed."""
        return SinkFencedError(
            f"{self.directory} was opened by another writer, after this one (epoch {self.number}): this worker has"
            " lost the shard. What it did not commit is read again by the other"
        )

    def __str__(self) -> str:
        return f"{self.number} {self.token}\n"


def take_epoch(directory: Path) -> Epoch:
    """Begin a new epoch of a partition, and end every earlier one. Raises SinkFullError, SinkError."""
    path = directory / EPOCH
    with os_errors("write", path):
        epoch = Epoch(directory, read_epoch(directory) + 1, secrets.token_hex(8))
        with no_leftover(epoch.temporary):
            with epoch.temporary.open("w") as file:
                file.write(str(epoch))
                file.flush()
                os.fsync(file.fileno())
            epoch.temporary.rename(path)
        sync_directory(directory)
        for leftover in directory.glob(_TEMPORARY):
            leftover.unlink(missing_ok=True)
    return epoch


def read_epoch(directory: Path) -> int:
    """Return the number of a partition's epoch; 0 if it never had a writer, or if the file makes no sense."""
    path = directory / EPOCH
    number = path.read_text(errors="replace").partition(" ")[0] if path.exists() else ""
    return int(number) if number.isascii() and number.isdigit() else 0


@contextmanager
def no_leftover(temporary: Path) -> Iterator[None]:
    """Remove a temporary file that is not made use of after all: a full disk needs its room."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
