"""Fencing: once a partition is opened by another writer, the earlier writer cannot commit, even on another machine.

    <partition>/epoch      "<number> <token>"

Opening a partition for writing begins a fencing epoch: the file gets the next number and a random token. A commit
writes its temporary file, checks that its epoch is still the current one, and renames the file. A new writer first
makes its epoch durable, then removes the temporary files of others, and then looks for the newest segment.

So one of three things happens to a commit of the earlier writer: its check fails; or its rename finds no file; or the
new writer finds its segment. There is no other case. A lock already keeps two writers on one machine apart. The epoch
also works on a file system that machines share, if each machine sees what the others have renamed and removed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from efo_service.relay.errors import SinkFencedError, os_errors
from efo_service.relay.files import read_regular, whole_number
from efo_service.relay.storage import sync, sync_directory

EPOCH: Final = "epoch"
_TEMPORARY: Final = "segment*.tmp"


@dataclass(frozen=True, slots=True)
class Epoch:
    """The fencing epoch of one writer. `token`: identifies it. `number`: counts the epochs, for people."""

    directory: Path
    number: int
    token: str

    @property
    def temporary(self) -> Path:
        """The file in which this writer prepares a segment. No other writer uses it."""
        return self.directory / f"segment-{self.token}.tmp"

    def check(self) -> None:
        """Raise SinkFencedError if a later epoch has begun, SinkError if the file cannot be read."""
        with os_errors("read", self.directory / EPOCH):
            now = read_regular(self.directory / EPOCH).decode(errors="replace")
        if now != str(self):
            raise self.fenced()

    def fenced(self) -> SinkFencedError:
        """Return the error for a writer that is fenced."""
        return SinkFencedError(
            f"{self.directory} was opened by another writer after this one (epoch {self.number}): this worker has"
            " lost the shard, and the other one reads uncommitted records again"
        )

    def __str__(self) -> str:
        return f"{self.number} {self.token}\n"


def begin_epoch(directory: Path) -> Epoch:
    """Begin a new fencing epoch of a partition, which ends all earlier ones. Raises SinkFullError and SinkError."""
    path = directory / EPOCH
    with os_errors("write", path):
        epoch = Epoch(directory, read_epoch(directory) + 1, secrets.token_hex(8))
        with removed_on_error(epoch.temporary):
            with epoch.temporary.open("w") as file:
                file.write(str(epoch))
                sync(file)
            epoch.temporary.rename(path)
        sync_directory(directory)
        for leftover in directory.glob(_TEMPORARY):
            leftover.unlink(missing_ok=True)
    return epoch


def read_epoch(directory: Path) -> int:
    """Return the number of a partition's fencing epoch; 0 if it never had a writer, or if the file is invalid.

    Raises SinkError.
    """
    path = directory / EPOCH
    with os_errors("read", path):
        number = read_regular(path).decode(errors="replace").partition(" ")[0] if path.exists() else ""
    try:
        return whole_number(number)
    except ValueError:
        return 0


@contextmanager
def removed_on_error(temporary: Path) -> Iterator[None]:
    """Remove a temporary file if the block raises: a full disk needs the space."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
