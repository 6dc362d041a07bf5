"""The story of a world: what happened, as values. The checks read each one, and a digest compares two runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from efo.events import Event
from efo.model import Checkpoint

Mark: TypeAlias = tuple[int, int]
"""The position of a user record in its shard: sequence number and sub-sequence number."""


@dataclass(frozen=True, slots=True)
class Put:
    """A user record was put.

    `number`: its number among the records of its key, from 0. `millis`: when it was put, by the clock of the service.
    `has_key`: whether its Kinesis record has a partition key; if not, `key` only names it.
    """

    shard: str
    mark: Mark
    key: str
    number: int
    millis: int = 0
    has_key: bool = True


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An aggregate was put, whose user records have lines of their own.

    `outside`: how many have hash keys outside the shard's range. `is_put_again`: its producer puts those again.
    `generations`: how much older the shard is that the producer made it for.
    """

    shard: str
    sequence: int
    outside: int
    is_put_again: bool = False
    generations: int = 0


@dataclass(frozen=True, slots=True)
class Positioned:
    """Shards that were never read start AT_TIMESTAMP, at this time by the clock of the service."""

    millis: int


@dataclass(frozen=True, slots=True)
class Resharded:
    """A split or a merge closed `parents` and opened `children`. `millis`: when, by the clock of the service."""

    parents: tuple[str, ...]
    children: tuple[str, ...]
    millis: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """A worker started a shard task after this checkpoint.

    `worker`: one process of a worker. `worker_id`: the id that the process writes to the lease. `by_key`: the task
    handles several keys at once.
    """

    worker: str
    worker_id: str
    shard: str
    checkpoint: Checkpoint
    by_key: bool = False


@dataclass(frozen=True, slots=True)
class Repositioned:
    """A shard task continues after this checkpoint: its sink already has the records up to it."""

    worker: str
    shard: str
    to: Checkpoint


@dataclass(frozen=True, slots=True)
class Waited:
    """A worker had to wait until another one closed the sink of this shard."""

    worker: str
    shard: str


@dataclass(frozen=True, slots=True)
class Disked:
    """Something happened on the disk of the log, at a call of this worker.

    `what`: full, error, killed, power_failed, compacted or expired.
    """

    worker: str
    what: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Records that a sink refuses are durable as dead letters, were skipped, or isolated their shard (no marks)."""

    worker: str
    shard: str
    marks: tuple[Mark, ...]
    outcome: Literal["dead_lettered", "skipped", "isolated"]


RottedFile = Literal["sealed", "newest", "catalog", "reader"]
"""A file of the log: a segment that is not the newest, the newest, the catalog, or the offsets of a reader."""


@dataclass(frozen=True, slots=True)
class Rotted:
    """A bit of a file of the log flipped."""

    file: RottedFile


@dataclass(frozen=True, slots=True)
class Lived:
    """Something happened to a stream besides its records (see lives.py). `what`: the name of the mark."""

    what: str


LeaseFileCrash = Literal["killed", "power_failed"]
"""How a crash comes over the SQLite file of the leases: its process is killed, or the power fails for all."""


@dataclass(frozen=True, slots=True)
class LeaseFileCrashed:
    """A crash came at a step of a worker on the SQLite file of the leases. `where`: at which step, and its outcome."""

    worker: str
    how: LeaseFileCrash
    where: str


@dataclass(frozen=True, slots=True)
class Handled:
    """These records took effect, all at the same moment."""

    worker: str
    shard: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class SkippedByPolicy:
    """A record was skipped or dead-lettered by the failure policy, and an event reported it."""

    worker: str
    shard: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Acked:
    """The reader is about to ack these records."""

    worker: str
    shard: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Saved:
    """The lease row has a new checkpoint."""

    worker: str
    shard: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A call of a worker to the lease store fails, hangs or is slow. A write may still take effect."""

    worker: str


@dataclass(frozen=True, slots=True)
class Created:
    """The lease table has a new lease. `since_millis`: the time that LATEST stands for, by the clock of the service."""

    shard: str
    checkpoint: Checkpoint
    since_millis: int | None = None


@dataclass(frozen=True, slots=True)
class Deleted:
    """A lease was deleted from the lease table."""

    worker: str
    shard: str


@dataclass(frozen=True, slots=True)
class ChildrenSaved:
    """The lease row has the ids of the children of its shard."""

    shard: str
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """The holder of a lease changed. `holder`: the id of the new holder, or None. `worker` wrote the change."""

    worker: str
    worker_id: str
    shard: str
    holder: str | None


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker noticed that it lost a lease."""

    worker: str
    shard: str
    reason: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A shard task ended. `error`: the type of its error, if it failed."""

    worker: str
    shard: str
    is_finished: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Crashed:
    """A worker process was killed, as by SIGKILL."""

    worker: str
    worker_id: str


@dataclass(frozen=True, slots=True)
class Exited:
    """`Consumer.run` of a worker process returned. `error`: the type of the exception that it raised."""

    worker: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """Any other diagnostic event of efo."""

    worker: str
    event: Event


@dataclass(frozen=True, slots=True)
class Acted:
    """The world did something that needs no check."""

    what: str


SECOND_STREAM: Final = "a second consumer, of another stream"
SECOND_APPLICATION: Final = "a second consumer, of another application"
"""What a world does that has two consumers."""
DISTRIBUTED: Final = "the record distribution strategy is AUTO"
BY_KEY: Final = "the record distribution strategy is USER_PARTITION_KEY"
"""What a world does whose stream changes its strategy."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The world found something that must not happen."""

    what: str


Line: TypeAlias = (
    Put
    | Aggregated
    | Positioned
    | Resharded
    | Opened
    | Repositioned
    | Waited
    | Disked
    | Refused
    | Rotted
    | Lived
    | LeaseFileCrashed
    | Handled
    | SkippedByPolicy
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
    | Reported
    | Acted
    | Violation
)


class Story:
    """All lines in order, each with its virtual time. `listener` is called with each new line."""

    def __init__(self, clock: Callable[[], float], listener: Callable[[float, Line], None]) -> None:
        self.lines: list[tuple[float, Line]] = []
        self._clock = clock
        self._listener = listener

    def add(self, line: Line) -> None:
        """Add a line."""
        now = self._clock()
        self.lines.append((now, line))
        self._listener(now, line)

    def digest(self) -> str:
        """Return a hash of all lines and their times."""
        text = sha256()
        for at, line in self.lines:
            text.update(f"{at!r} {line!r}\n".encode())
        return text.hexdigest()

    def tail(self, lines: int, *, shard: str = "") -> str:
        """Return the last `lines` lines as text; only those that name `shard`, if it is given."""
        selected = [(at, line) for at, line in self.lines if shard in repr(line)]
        return "\n".join(f"{at:10.3f}  {line}" for at, line in selected[-lines:])
