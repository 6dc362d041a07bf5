"""The result of a check, and what the checks of all kinds share: the server, its stream and the main reader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from efo.errors import InternalFailureError
from efo.events import SubscribeAttempted
from proofs.interop.servers.comparison import Comparison, Item, compare
from proofs.interop.servers.launcher import Endpoint
from proofs.interop.servers.reader import TIMEOUT, Reader
from proofs.interop.servers.stream import Stream

_FAILURES: Final = 2
"""Failures of the same call after which it counts as not supported: a single one may be an accident."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check. "lacking": the server does not support it, and efo still followed its rules."""

    outcome: Literal["ok", "lacking", "failed"]
    detail: str = ""

    def __str__(self) -> str:
        shown = {"ok": "ok", "lacking": "not supported by the server", "failed": "FAILED"}[self.outcome]
        return f"{shown}: {self.detail}" if self.detail else shown


OK: Final = Result("ok")
TIMED_OUT: Final = Result("failed", f"nothing conclusive within {TIMEOUT:.0f} s")
HTTP_500: Final = Result("lacking", "the call fails with HTTP 500, and efo retries it with backoff")


@dataclass(frozen=True, slots=True)
class CheckContext:
    """A running server with its stream. `main`: the application that reads during all checks.

    `unread`: shards that `main` must not read, because the server does not report the end of their parents.
    """

    endpoint: Endpoint
    stream: Stream
    main: Reader = field(default_factory=Reader)
    unread: set[str] = field(default_factory=set)

    def expected(self) -> list[Item]:
        """Return the records that `main` must have read."""
        return [item for item in self.stream.items if item.shard not in self.unread]

    async def caught_up(self) -> bool:
        """Wait until `main` has read all expected records; return whether it did in time."""
        return await self.main.until(lambda: len(self.main.items) >= len(self.expected()))

    def comparison(self) -> Comparison:
        """Compare what `main` has read with what it must have read."""
        return compare(self.expected(), self.main.items)


def result_of(comparison: Comparison) -> Result:
    """Return the result of an application whose records were compared."""
    return OK if comparison.passed else Result("failed", str(comparison))


def subscribe_fails(reader: Reader) -> bool:
    """Return whether SubscribeToShard fails repeatedly with an internal failure for this reader."""
    failures = reader.events_of(SubscribeAttempted, error_type=InternalFailureError.error_type)
    return len(failures) >= _FAILURES
