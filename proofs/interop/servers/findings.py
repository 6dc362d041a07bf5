"""What comes of an exercise, and what the exercises of all kinds share: the server, its stream, the main reader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from efo.errors import InternalFailureError
from efo.events import SubscribeAttempted
from proofs.interop.servers.judgement import Item, Verdict, judge
from proofs.interop.servers.reader import PATIENCE, Reader
from proofs.interop.servers.running import Endpoint
from proofs.interop.servers.stream import Stream

_FAILURES: Final = 2
"""Failures of the same call after which it is the server's way, and not an accident."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of an exercise. "lacking": the server does not do it, and efo kept to its rules all the same."""

    outcome: Literal["ok", "lacking", "failed"]
    detail: str = ""

    def __str__(self) -> str:
        shown = {"ok": "ok", "lacking": "not supported by the server", "failed": "FAILED"}[self.outcome]
        return f"{shown}: {self.detail}" if self.detail else shown


OK: Final = Finding("ok")
TIMED_OUT: Final = Finding("failed", f"no sign of it within {PATIENCE:.0f} s")
HTTP_500: Final = Finding("lacking", "it fails with HTTP 500, on which efo tries again, with backoff")


@dataclass(frozen=True, slots=True)
class Subject:
    """A server with its stream. `main` is the application that reads from the beginning to the end.

    `unread`: shards that `main` may not read, because the end of their parents is not told.
    """

    endpoint: Endpoint
    stream: Stream
    main: Reader = field(default_factory=Reader)
    unread: set[str] = field(default_factory=set)

    def expected(self) -> list[Item]:
        """Return what `main` ought to have read."""
        return [item for item in self.stream.items if item.shard not in self.unread]

    async def caught_up(self) -> bool:
        """Wait until `main` has read all that it may."""
        return await self.main.until(lambda: len(self.main.items) >= len(self.expected()))

    def verdict(self) -> Verdict:
        """Judge what `main` has read."""
        return judge(self.expected(), self.main.items)


def found(verdict: Verdict) -> Finding:
    """Return the finding of an application's own reading."""
    return OK if verdict.is_right else Finding("failed", str(verdict))


def fails(reader: Reader) -> bool:
    """Tell whether the server fails whenever this reader subscribes."""
    failures = reader.told(SubscribeAttempted, error_type=InternalFailureError.error_type)
    return len(failures) >= _FAILURES
