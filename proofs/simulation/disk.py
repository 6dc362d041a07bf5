"""A simulated disk: files in memory, with what a crash leaves of them, and paths through which the log reaches them.

A process that is killed loses nothing that it has written. A power failure loses what was not synced: of a file, any
part of what was added since its last sync; of a directory, its last changes since its last sync, in any number but in
order, as with a journal. Each process has its own view of the disk, with the faults that the plan sets.
"""

from __future__ import annotations

import errno
import io
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import total_ordering
from random import Random
from typing import Any, Final, Literal, Self, TypeAlias

import pyarrow as pa

from efo_service.log.segments import arrow_file
from efo_service.relay import storage

FULL_SECONDS: Final = 15.0
"""The longest time that the disk is full, in seconds."""

DiskEvent = Literal["full", "error", "killed", "power_failed"]


class ProcessKilled(BaseException):
    """The process was killed at a call of the disk, or is dead already."""


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """How likely each call fails: it meets an error (EIO) or a full disk (ENOSPC), or kills its process or all."""

    error: float = 0.0
    full: float = 0.0
    kill: float = 0.0
    power: float = 0.0


@dataclass(slots=True, eq=False)
class _File:
    """A file. `synced`: its content at the last sync. `changed_at`: seconds since the epoch."""

    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    changed_at: float = 0.0


@dataclass(slots=True, eq=False)
class _Directory:
    """A directory. `synced`: its entries at the last sync. `journal`: the changes since then, None for a removal."""

    entries: dict[str, _Node] = field(default_factory=dict)
    synced: dict[str, _Node] = field(default_factory=dict)
    journal: list[dict[str, _Node | None]] = field(default_factory=list)

    def change(self, changes: dict[str, _Node | None]) -> None:
        self.journal.append(changes)
        _apply(self.entries, changes)

    def sync(self) -> None:
        self.synced, self.journal = dict(self.entries), []


_Node: TypeAlias = _File | _Directory


def _apply(entries: dict[str, _Node], changes: dict[str, _Node | None]) -> None:
    for name, node in changes.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Disk:
    """The disk that all workers of a world share.

    `clock`: seconds since the epoch. `has_locks`: whether a lock keeps two processes apart; otherwise they run on
    machines that do not see each other's locks. `faults` are those of the next calls.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        rng: Random,
        *,
        faults: DiskFaults = DiskFaults(),
        has_locks: bool = True,
    ) -> None:
        self.faults = faults
        self.clock = clock
        self.rng = rng
        self.has_locks = has_locks
        self.full_until = -1.0
        self.locks: dict[tuple[str, ...], _LockFile] = {}
        self._root = _Directory()

    def node(self, parts: tuple[str, ...]) -> _Node | None:
        """Return the file or directory at a path, None if there is none."""
        node: _Node | None = self._root
        for part in parts:
            node = node.entries.get(part) if isinstance(node, _Directory) else None
        return node

    def fail_power(self) -> None:
        """Lose everything that was not synced, in part or wholly."""
        self.locks.clear()
        self._restart(self._root)

    def _restart(self, directory: _Directory) -> None:
        entries = dict(directory.synced)
        for changes in directory.journal[: self.rng.randint(0, len(directory.journal))]:
            _apply(entries, changes)
        directory.entries = entries
        directory.sync()
        for node in entries.values():
            if isinstance(node, _Directory):
                self._restart(node)
            elif node.content != node.synced:
                kept = self.rng.randint(0, len(node.content))
                node.synced = node.synced + bytes(node.content[len(node.synced) : kept])
                node.content = bytearray(node.synced)

    def rot(self, parts: tuple[str, ...]) -> None:
        """Flip a bit of a file."""
        file = self.node(parts)
        assert isinstance(file, _File)  # noqa: S101 - the caller chose a file
        file.content[self.rng.randrange(len(file.content))] ^= 1 << self.rng.randrange(8)
        file.synced = bytes(file.content)

    def write_back(self, directory: _Directory | None = None) -> None:
        """Make everything durable, as a running kernel does in time."""
        directory = directory or self._root
        directory.sync()
        for node in directory.entries.values():
            if isinstance(node, _Directory):
                self.write_back(node)
            else:
                node.synced = bytes(node.content)


class DiskView:
    """The disk as one process sees it. `is_dead`: it was killed, and no call of it has an effect.

    `report`: called with each fault. A view without faults, for the checks, has `is_exempt`.
    """

    def __init__(
        self, disk: Disk, report: Callable[[DiskEvent], None] = lambda _event: None, *, is_exempt: bool = False
    ) -> None:
        self.disk = disk
        self.is_dead = False
        self._report = report
        self._is_exempt = is_exempt

    @property
    def root(self) -> Any:
        """The root directory, which the log takes as its root."""
        return DiskPath(self, ())

    def die(self) -> None:
        """End the process: its locks are released."""
        self.is_dead = True
        for parts in [parts for parts, held in self.disk.locks.items() if held.view is self]:
            del self.disk.locks[parts]

    def call(self, path: DiskPath, *, allocates: bool = False) -> None:
        """Make a call of the disk, which may fail. Raises OSError and ProcessKilled."""
        if self._is_exempt:
            return
        if self.is_dead:
            raise ProcessKilled
        disk, faults = self.disk, self.disk.faults
        draw = disk.rng.random()
        if draw < faults.kill:
            self.die()
            disk.write_back()
            self._report("killed")
            raise ProcessKilled
        if draw < faults.kill + faults.power:
            self.die()
            disk.fail_power()
            self._report("power_failed")
            raise ProcessKilled
        if draw < faults.kill + faults.power + faults.error:
            self._report("error")
            disk.write_back()  # what the failed call was to make durable may be durable
            raise OSError(errno.EIO, "Input/output error", str(path))
        if allocates:
            if draw > 1 - faults.full:
                disk.full_until = disk.clock() + disk.rng.uniform(0.0, FULL_SECONDS)
            if faults.full and disk.clock() < disk.full_until:
                self._report("full")
                raise OSError(errno.ENOSPC, "No space left on device", str(path))


@dataclass(frozen=True, slots=True)
class _Status:
    st_mode: int
    st_size: int
    st_mtime: float


@total_ordering
class DiskPath:
    """A path on a simulated disk: the methods of `pathlib.Path` that the log uses."""

    __slots__ = ("parts", "view")

    def __init__(self, view: DiskView, parts: tuple[str, ...]) -> None:
        self.view = view
        self.parts = parts

    def __truediv__(self, name: str) -> DiskPath:
        return DiskPath(self.view, (*self.parts, *name.split("/")))

    def __str__(self) -> str:
        return "/" + "/".join(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiskPath) and self.parts == other.parts

    def __lt__(self, other: DiskPath) -> bool:
        return self.parts < other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    @property
    def name(self) -> str:
        """The last part."""
        return self.parts[-1] if self.parts else ""

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def parent(self) -> DiskPath:
        """The directory that contains it."""
        return DiskPath(self.view, self.parts[:-1])

    def with_suffix(self, suffix: str) -> DiskPath:
        """Return the path with another suffix."""
        return self.parent / (self.name.rpartition(".")[0] + suffix)

    def exists(self) -> bool:
        """Return whether it exists."""
        self.view.call(self)
        return self._node is not None

    def is_dir(self) -> bool:
        """Return whether it is a directory."""
        self.view.call(self)
        return isinstance(self._node, _Directory)

    def stat(self) -> _Status:
        """Return its kind, its size and the time of its last change."""
        self.view.call(self)
        match self._existing:
            case _File(content=content, changed_at=changed_at):
                return _Status(stat.S_IFREG | 0o600, len(content), changed_at)
            case _:
                return _Status(stat.S_IFDIR | 0o700, 0, 0.0)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - as in Path
        """Make a directory."""
        self.view.call(self, allocates=True)
        if parents and self.parts and self.view.disk.node(self.parts[:-1]) is None:
            self.parent.mkdir(parents=True)
        if self._node is None:
            self._parent.change({self.name: _Directory()})
        elif not exist_ok:
            raise FileExistsError(errno.EEXIST, "File exists", str(self))

    def open(self, mode: str = "r") -> DiskFile:
        """Open a file for writing: "w" and "wb" empty it."""
        self.view.call(self, allocates=True)
        node = self._node
        if not isinstance(node, _File):
            node = _File(changed_at=self.view.disk.clock())
            self._parent.change({self.name: node})
        elif mode.startswith("w"):
            node.content.clear()
        return DiskFile(self, node)

    def write_file(self, chunks: Iterable[bytes | pa.Buffer]) -> None:
        """Write a file, and make its content durable; see storage.py."""
        file = self.open("wb")
        for chunk in chunks:
            file.write(chunk)
        file.sync()

    def read_bytes(self) -> bytes:
        """Return the content of a file."""
        self.view.call(self)
        return bytes(self._as_file(self._existing).content)

    def rename(self, target: DiskPath) -> DiskPath:
        """Rename a file within its directory."""
        self.view.call(self)
        if self.parts[:-1] != target.parts[:-1]:
            raise NotImplementedError("the log renames only within a directory")
        self._parent.change({self.name: None, target.name: self._existing})
        return target

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove a file."""
        self.view.call(self)
        if self._node is not None or not missing_ok:
            self._as_file(self._existing)
            self._parent.change({self.name: None})

    def iterdir(self) -> Iterator[DiskPath]:
        """Yield the paths in a directory, in order."""
        self.view.call(self)
        yield from (self / name for name in sorted(self._directory.entries))

    def glob(self, pattern: str) -> Iterator[DiskPath]:
        """Yield the paths that match a pattern, in order; none if the directory does not exist."""
        first, _, rest = pattern.partition("/")
        if not isinstance(self._node, _Directory):
            return
        for path in self.iterdir():
            if fnmatchcase(path.name, first):
                yield from path.glob(rest) if rest else (path,)

    @property
    def _node(self) -> _Node | None:
        return self.view.disk.node(self.parts)

    @property
    def _existing(self) -> _Node:
        if (node := self._node) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(self))
        return node

    def _as_file(self, node: _Node) -> _File:
        if not isinstance(node, _File):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(self))
        return node

    @property
    def _directory(self) -> _Directory:
        return self._as_directory(self._existing)

    @property
    def _parent(self) -> _Directory:
        return self._as_directory(self.view.disk.node(self.parts[:-1]))

    def _as_directory(self, node: _Node | None) -> _Directory:
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(self))
        return node

    def names(self) -> list[str]:
        """Return the names in a directory."""
        self.view.call(self)
        return list(self._directory.entries)

    def arrow_file(self) -> pa.NativeFile:
        """Open the file for Arrow."""
        return pa.BufferReader(self.read_bytes())

    def sync_directory(self) -> None:
        """Make the names in a directory durable."""
        self.view.call(self)
        self._directory.sync()

    def lock(self, *, wait: bool = True) -> _LockFile:
        """Lock a file. No process waits for a lock: what holds one for a time never asks to wait."""
        self.open("ab")
        if not self.view.disk.has_locks:
            return _LockFile(self.view, ())
        if self.parts in self.view.disk.locks:
            if wait:
                raise NotImplementedError("no process waits for a lock while it works on files")
            raise BlockingIOError(errno.EWOULDBLOCK, "Resource temporarily unavailable", str(self))
        held = self.view.disk.locks[self.parts] = _LockFile(self.view, self.parts)
        return held


class DiskFile:
    """A file of a simulated disk, open for writing."""

    def __init__(self, path: DiskPath, node: _File) -> None:
        self._path = path
        self._node = node

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        pass

    def write(self, data: str | bytes | pa.Buffer) -> int:
        """Append to the file. A disk that is full may take a part of it."""
        view = self._path.view
        content = data.encode() if isinstance(data, str) else bytes(data)
        try:
            view.call(self._path, allocates=True)
        except OSError:
            self._node.content += content[: view.disk.rng.randint(0, len(content))]
            raise
        self._node.content += content
        self._node.changed_at = view.disk.clock()
        return len(content)

    def sync(self) -> None:
        """Make the content durable."""
        self._path.view.call(self._path)
        self._node.synced = bytes(self._node.content)


class _LockFile(io.BytesIO):
    """A lock that is held until it is closed. `parts`: the path of its file."""

    def __init__(self, view: DiskView, parts: tuple[str, ...]) -> None:
        super().__init__()
        self.view = view
        self._parts = parts

    def close(self) -> None:
        """Release the lock. It never fails."""
        if self.view.disk.locks.get(self._parts) is self:
            del self.view.disk.locks[self._parts]
        super().close()


# --- the storage of the log ------------------------------------------------------------------------------

storage.write_file.register(DiskPath, DiskPath.write_file)
storage.sync.register(DiskFile, DiskFile.sync)
storage.sync_directory.register(DiskPath, DiskPath.sync_directory)
storage.names.register(DiskPath, DiskPath.names)
storage.lock.register(DiskPath, DiskPath.lock)
arrow_file.register(DiskPath, DiskPath.arrow_file)
