"""What happens when a handler fails (rule R11): the policy, and its decision about one failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, Literal, get_args

from efo.checks import check_async, check_count, check_number, shown
from efo.errors import ConfigurationError
from efo.model import Record
from efo.protocol.backoff import backoff

FinalAction = Literal["stop", "isolate", "skip", "dead_letter"]
"""What happens when retries are exhausted."""

FailureAction = Literal["retry", "split", "skip", "dead_letter", "isolate", "stop"]
"""What happens after one failure. "split": each half is tried by itself, to find the record that fails."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that its handler could not process, for the dead-letter sink.

    `error`: the exception of the last attempt. `attempts`: how often the handler was called with this record alone.
    """

    stream: str
    shard_id: str
    record: Record
    error: Exception
    attempts: int


DeadLetterSink = Callable[[DeadLetter], Awaitable[None]]
"""Stores a dead letter. When it returns, the record counts as done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """What happens when a handler raises. Times are in seconds.

    `attempts`: how often the handler is called with a batch or record in all; None: until `retry_for` is over.
    `retry_for`: how long after the first failure it is retried. `backoff`, `backoff_limit`: the wait before the n-th
    retry is random between 0 and `backoff` * 2**(n - 1), at most `backoff_limit` (full jitter).

    `then`: what happens when retries are exhausted.
    - "stop": everything stops, and the handler's exception is raised. No later record is processed.
    - "isolate": the shard stops and its lease is released. This worker does not read it for `cooldown` seconds. Other
      shards go on.
    - "skip": the record counts as done, and a RecordSkipped event is reported.
    - "dead_letter": the record is passed to `dead_letter`, and counts as done when that returns.

    Only single records are skipped or dead-lettered. A batch that fails is split into halves, down to the records that
    fail by themselves, so that a poison record never takes others with it. Raises ConfigurationError.
    """

    attempts: int | None = 1
    retry_for: float = inf
    backoff: float = 0.2
    backoff_limit: float = 30.0
    then: FinalAction = "stop"
    cooldown: float = 60.0
    dead_letter: DeadLetterSink | None = None

    def __post_init__(self) -> None:
        if self.then not in get_args(FinalAction):
            raise ConfigurationError(f"then={shown(self.then)}: expected one of {', '.join(get_args(FinalAction))}")
        check_number("retry_for", self.retry_for, zero=True, infinite=True, unit=" seconds")
        for name in ("backoff", "backoff_limit", "cooldown"):
            check_number(name, getattr(self, name), zero=True, unit=" seconds")
        if self.attempts is not None:
            check_count("attempts", self.attempts, unit=", or None")
            if self.attempts == 1 and self.retry_for != inf:
                raise ConfigurationError("retry_for has no effect with attempts=1: set attempts=None, or more than 1")
        elif self.retry_for == inf:
            raise ConfigurationError("attempts=None without retry_for retries forever: set retry_for (seconds)")
        if self.then == "dead_letter" and self.dead_letter is None:
            raise ConfigurationError('then="dead_letter" needs dead_letter: an async function that stores the record')
        if self.then != "dead_letter" and self.dead_letter is not None:
            raise ConfigurationError(f'dead_letter is never used with then="{self.then}": set then="dead_letter"')
        if self.dead_letter is not None:
            check_async(self.dead_letter, "dead_letter", "dead_letter")


_STRICTNESS: Final[tuple[FinalAction, ...]] = ("skip", "dead_letter", "isolate", "stop")


def strictest(policies: Iterable[FailurePolicy]) -> FailurePolicy:
    """Return the policy that gives up the least; of several such, the one with the fewest attempts."""
    return max(policies, key=lambda policy: (_STRICTNESS.index(policy.then), -(policy.attempts or inf)))


OnError = FailurePolicy | Callable[[Exception], FailurePolicy]
"""One policy for all failures, or a function that returns the policy for an exception."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens now. `delay`: seconds before a retry."""

    action: FailureAction
    delay: float = 0.0


def decide(
    policy: FailurePolicy, *, failures: int, elapsed: float, records: int, is_half: bool, random: Callable[[], float]
) -> Decision:
    """Return what happens after a failure.

    `failures`: how often this batch slice has failed, including now. `elapsed`: seconds since its first failure.
    `records`: the number of its records. `is_half`: whether it is half of a slice that failed. A half is tried once
    before it is split again, since waiting has not helped. `random` returns a number from 0 to 1.
    """
    attempts = 1 if is_half and records > 1 else policy.attempts
    if (attempts is None or failures < attempts) and elapsed < policy.retry_for:
        delay = backoff(failures, initial=policy.backoff, limit=policy.backoff_limit, random=random)
        return Decision("retry", min(delay, policy.retry_for - elapsed))
    if records > 1 and policy.then in ("skip", "dead_letter"):
        return Decision("split")
    return Decision(policy.then)
