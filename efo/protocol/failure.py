"""What to do when a handler fails (rule R11): a policy, and what it says about one failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

from efo.errors import ConfigurationError

Then = Literal["stop", "stop_shard", "skip", "dead_letter"]
"""What happens when trying again is over."""

Action = Literal["retry", "split", "skip", "dead_letter", "stop_shard", "stop"]
"""What happens after one failure. "split": the halves are tried apart, to find the record that fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """How a handler's failures are met. Times are in seconds.

    `attempts`: how often a batch or record is handed to the handler in all; None: as often as `retry_for` allows.
    `retry_for`: how long after the first failure it is still tried. `backoff`, `backoff_limit`: the wait before the
    n-th retry is random between 0 and `backoff` * 2**(n - 1), and `backoff_limit` at most (full jitter).

    `then`: what happens when that was in vain.
    - "stop": everything stops, and the handler's exception is raised. Nothing after it is handled.
    - "stop_shard": the shard stops and its lease is released; this worker does not take it again before `cooldown`
      is over. The others go on.
    - "skip": the record counts as done, and an event tells it.
    - "dead_letter": the record is given to the dead-letter sink, and counts as done when that has returned.

    Only single records are skipped or dead-lettered: a batch that fails is tried again by halves, down to those that
    fail by themselves, so that a poison record never takes its neighbours along. Raises ConfigurationError.
    """

    attempts: int | None = 1
    retry_for: float = inf
    backoff: float = 0.2
    backoff_limit: float = 30.0
    then: Then = "stop"
    cooldown: float = 60.0

    def __post_init__(self) -> None:
        if self.then not in get_args(Then):
            raise ConfigurationError(f"then={self.then!r}: expected one of {', '.join(get_args(Then))}")
        if self.attempts is None and self.retry_for == inf:
            raise ConfigurationError("attempts=None retries without end: give retry_for, the seconds to try for")
        if self.attempts is not None and self.attempts < 1:
            raise ConfigurationError(f"attempts={self.attempts}: expected 1 or more, or None")
        for name in ("retry_for", "backoff", "backoff_limit", "cooldown"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: expected seconds, 0 or more")


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now. `delay`: seconds before a retry."""

    action: Action
    delay: float = 0.0


def decide(
    policy: FailurePolicy, *, failures: int, elapsed: float, records: int, is_half: bool, random: Callable[[], float]
) -> Decision:
    """Return what to do after a failure.

    `failures`: how often this piece has failed, now included; `elapsed`: seconds since it did first. `records`: how
    many it has. `is_half`: whether it is the half of a piece that failed; such a one is tried once before it is split
    further, since waiting was in vain already. `random` returns a number from 0 to 1.
    """
    attempts = 1 if is_half and records > 1 else policy.attempts
    if (attempts is None or failures < attempts) and elapsed < policy.retry_for:
        ceiling = min(policy.backoff_limit, policy.backoff * 2.0 ** min(failures - 1, 60))
        return Decision("retry", min(ceiling * random(), policy.retry_for - elapsed))
    if records > 1 and policy.then in ("skip", "dead_letter"):
        return Decision("split")
    return Decision(policy.then)
