"""What happens in a world, as values: the world tells them, the checks judge them, a digest compares two runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from efo.events import Event
from efo.model import Checkpoint

Mark: TypeAlias = tuple[int, int]
"""A user record's place in its shard: sequence number and sub-sequence number."""


@dataclass(frozen=True, slots=True)
class Put:
    """A user record was put: the `number`-th of its key, from 0. `millis`: when, by the service's clock."""

    shard: str
    mark: Mark
    key: str
    number: int
    millis: int = 0


@dataclass(frozen=True, slots=True)
class Resharded:
    """A split or a merge closed `parents` and opened `children`."""

    parents: tuple[str, ...]
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A worker begins a reading of a shard, after this checkpoint. `worker_id`: as in the lease.

    `by_key`: several keys are handled at once.
    """

    worker: str
    worker_id: str
    shard: str
    checkpoint: Checkpoint
    by_key: bool = False


@dataclass(frozen=True, slots=True)
class Sought:
    """The reading goes on after this checkpoint: what its sink has is done."""

    worker: str
    shard: str
    to: Checkpoint


@dataclass(frozen=True, slots=True)
class Handled:
    """These records took effect, at once."""

    worker: str
    shard: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class SetAside:
    """A record was skipped or dead-lettered, by policy, and its reader was told so."""

    worker: str
    shard: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Acked:
    """The reader acks these records now."""

    worker: str
    shard: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Saved:
    """The lease store has a new checkpoint."""

    worker: str
    shard: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A worker's way to the lease store fails, hangs or is slow, whether or not a write takes place."""

    worker: str


@dataclass(frozen=True, slots=True)
class Created:
    """The lease store has a new lease. `since_millis`: what LATEST means there, by the service's clock."""

    shard: str
    checkpoint: Checkpoint
    since_millis: int | None = None


@dataclass(frozen=True, slots=True)
class Deleted:
    """The lease store has a lease no more."""

    worker: str
    shard: str


@dataclass(frozen=True, slots=True)
class ChildrenSaved:
    """The lease store has the ids of a shard's children."""

    shard: str
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """The lease store has another holder of a shard: the worker of this id, None for nobody. `worker` wrote it."""

    worker: str
    worker_id: str
    shard: str
    holder: str | None


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker has noticed that a lease is no longer its own."""

    worker: str
    shard: str
    reason: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A reading is over. `error`: of what kind, if it failed."""

    worker: str
    shard: str
    is_finished: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Crashed:
    """A worker is gone, as by SIGKILL: it does nothing any more."""

    worker: str
    worker_id: str


@dataclass(frozen=True, slots=True)
class Exited:
    """A worker's `run` has returned. `error`: what it raised."""

    worker: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """Another diagnostic event of efo's."""

    worker: str
    event: Event


@dataclass(frozen=True, slots=True)
class Acted:
    """The world did something that needs no judging."""

    what: str


@dataclass(frozen=True, slots=True)
class Broken:
    """Something that must not happen has happened."""

    what: str


Line: TypeAlias = (
    Put
    | Resharded
    | Opened
    | Sought
    | Handled
    | SetAside
    | Acked
    | Saved
    | StoreFailed
    | Created
    | Deleted
    | ChildrenSaved
    | Held
    | Lost
    | Closed
    | Crashed
    | Exited
    | Told
    | Acted
    | Broken
)


class Story:
    """All that happened, in order, with the virtual time of each. `listener` is told each line at once."""

    def __init__(self, clock: Callable[[], float], listener: Callable[[float, Line], None]) -> None:
        self.lines: list[tuple[float, Line]] = []
        self._clock = clock
        self._listener = listener

    def tell(self, line: Line) -> None:
        """Add a line."""
        now = self._clock()
        self.lines.append((now, line))
        self._listener(now, line)

    def digest(self) -> str:
        """Return a fingerprint of every line and its time."""
        text = sha256()
        for at, line in self.lines:
            text.update(f"{at!r} {line!r}\n".encode())
        return text.hexdigest()

    def end(self, lines: int, *, shard: str = "") -> str:
        """Return the last lines as text; of one shard, if it is given."""
        wanted = [(at, line) for at, line in self.lines if shard in repr(line)]
        return "\n".join(f"{at:10.3f}  {line}" for at, line in wanted[-lines:])
