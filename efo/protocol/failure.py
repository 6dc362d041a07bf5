"""The failure policy of a handler, and its decision about one failure (rule R11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

from efo.errors import ConfigurationError

FinalAction = Literal["stop", "stop_shard", "skip", "dead_letter"]
"""What happens when all retries have failed."""

Action = Literal["retry", "split", "skip", "dead_letter", "stop_shard", "stop"]
"""What happens after one failure. "split": each half is handled by itself, to find the record that fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """What to do when a handler fails. All times are in seconds.

    `attempts`: the number of handler calls for a batch or record, including the first; None: limited by `retry_for`.
    `retry_for`: the time after the first failure in which retries are made.
    `backoff`, `backoff_limit`: the wait before retry n is random between 0 and `backoff` * 2**(n - 1), and at most
    `backoff_limit` (full jitter).
    `cooldown`: see "stop_shard".

    `then`: what happens when all retries have failed.
    - "stop": the consumer stops and raises the handler's exception. No later record is handled.
    - "stop_shard": the shard stops and its lease is released. The other shards continue. This worker does not take the
      shard again within `cooldown`.
    - "skip": the record counts as done, and an event reports it.
    - "dead_letter": the record goes to the dead-letter sink and counts as done when the sink has returned.

    Only single records are skipped or dead-lettered. A batch that fails is retried in halves, down to the records that
    fail by themselves. So a poison record never affects its neighbours.

    Raises ConfigurationError if a value is invalid.
    """

    attempts: int | None = 1
    retry_for: float = inf
    backoff: float = 0.2
    backoff_limit: float = 30.0
    then: FinalAction = "stop"
    cooldown: float = 60.0

    def __post_init__(self) -> None:
        if self.then not in get_args(FinalAction):
            raise ConfigurationError(f"then={self.then!r}: expected one of {', '.join(get_args(FinalAction))}")
        if self.attempts is None and self.retry_for == inf:
            raise ConfigurationError("attempts=None without retry_for retries forever: set retry_for (seconds)")
        if self.attempts is not None and self.attempts < 1:
            raise ConfigurationError(f"attempts={self.attempts}: expected 1 or more, or None")
        for name in ("retry_for", "backoff", "backoff_limit", "cooldown"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: expected 0 or more seconds")


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now. `delay`: seconds to wait before a retry."""

    action: Action
    delay: float = 0.0


def decide(
    policy: FailurePolicy, *, failures: int, elapsed: float, records: int, is_half: bool, random: Callable[[], float]
) -> Decision:
    """Return what to do after a failure.

    `failures`: the number of failures of this batch slice, including this one.
    `elapsed`: seconds since its first failure.
    `records`: the number of its records.
    `is_half`: whether it is half of a batch slice that failed. It is then tried once before it is split further: the
    retries of the whole slice have failed already.
    `random`: returns a number from 0 to 1.
    """
    attempts = 1 if is_half and records > 1 else policy.attempts
    if (attempts is None or failures < attempts) and elapsed < policy.retry_for:
        ceiling = min(policy.backoff_limit, policy.backoff * 2.0 ** min(failures - 1, 60))
        return Decision("retry", min(ceiling * random(), policy.retry_for - elapsed))
    if records > 1 and policy.then in ("skip", "dead_letter"):
        return Decision("split")
    return Decision(policy.then)
