"""What a crash leaves of a SQLite file in WAL mode: the contents of its files, as values. Pure.

SQLite's order of writes, as `strace` shows it (synchronous=FULL): a commit appends frames to the WAL and syncs it. If
the whole WAL is in the database, it starts the WAL again: first a new header, which it syncs, then frames over the old
ones. A checkpoint syncs the WAL, writes pages into the database and syncs that. The index of the WAL is shared memory:
a process that is killed leaves it to the others, and the first process after a crash of all builds it anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

SECTOR: Final = 512
WAL_HEADER: Final = 32


@dataclass(frozen=True, slots=True)
class Image:
    """The contents of the database, of its WAL and of the index of the WAL. None: the file is missing."""

    database: bytes
    wal: bytes | None
    index: bytes | None


def killed_in_commit(before: Image, after: Image, rng: Random) -> Image:
    """Return what a process leaves that is killed while it writes frames: its last byte is missing."""
    return Image(before.database, _prefix(before.wal or b"", after.wal or b"", rng), before.index)


def killed_in_checkpoint(before: Image, after: Image, rng: Random) -> Image:
    """Return what a process leaves that is killed while it writes pages into the database."""
    return Image(_prefix(before.database, after.database, rng), before.wal, before.index)


def failed_in_commit(before: Image, after: Image, rng: Random, *, is_synced: bool) -> Image:
    """Return what a power failure leaves that comes before the commit is synced.

    `is_synced`: whether each commit is synced. Otherwise the earlier ones in the WAL may be lost too.
    """
    old, new = before.wal or b"", after.wal or b""
    if not is_synced:
        return Image(before.database, _part(b"", new, rng), None)
    if old[:WAL_HEADER] != new[:WAL_HEADER]:  # it is synced before any frame is written
        if rng.random() < 0.2:
            return Image(before.database, _prefix(old[:WAL_HEADER], new[:WAL_HEADER], rng) + old[WAL_HEADER:], None)
        old = new[:WAL_HEADER] + old[WAL_HEADER:]
    return Image(before.database, _part(old, new, rng), None)


def failed_in_checkpoint(before: Image, after: Image, rng: Random) -> Image:
    """Return what a power failure leaves that comes before the database is synced."""
    return Image(_part(before.database, after.database, rng), before.wal, None)


def failed_between(now: Image, rng: Random, *, is_synced: bool) -> Image:
    """Return what a power failure leaves that comes between two statements. `is_synced`: as in `failed_in_commit`."""
    wal = now.wal if is_synced or now.wal is None else _part(b"", now.wal, rng)
    return Image(now.database, wal, None)


def _prefix(before: bytes, after: bytes, rng: Random) -> bytes:
    """Return `before` with some of the first changes, in the order of the bytes, but not with all."""
    changed = [n for n in range(len(after)) if n >= len(before) or before[n] != after[n]]
    if not changed:
        return before
    end = rng.randint(changed[0], changed[-1])
    return after[:end] + before[end:]


def _part(before: bytes, after: bytes, rng: Random) -> bytes:
    """Return `before` with any part of the changes: sectors are written in any order, and some in part."""
    share = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
    size = rng.choice((len(before), len(after), rng.randint(*sorted((len(before), len(after))))))
    old = before.ljust(size, b"\0")
    content = bytearray(old[:size])
    for start in range(0, size, SECTOR):
        if rng.random() < share:
            end = start + (SECTOR if share == 1.0 or rng.random() < 0.8 else rng.randrange(SECTOR))
            content[start : min(end, size)] = after[start : min(end, size)]
    return bytes(content[:size])
