"""What a worker knows of the reading of each shard, and what follows from it: its lag, and what is wrong with it.

The consumer keeps these facts, a few times for each shard. Status, metrics, readiness and problems are derived from
them, by the functions below, when somebody asks. So all of them say the same, and a shard that nobody asks about costs
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

import msgspec

from efo.model import Checkpoint

QUIET_AFTER: Final = 10.0
"""Seconds without an event after which a shard is no longer known to be current. An idle shard gets an event about
every 5 s, so this is two of them."""

SubscriptionState = Literal["waiting", "connecting", "live", "renewing", "ended", "failed"]
"""The state of a subscription, see `efo.protocol.subscription.State`."""

ShardState = SubscriptionState | Literal["unsubscribed", "no_lease", "isolated"]
"""The state of a shard's subscription. "unsubscribed": there is none, as the shard is paused, idle, or not yet started.
"no_lease", "isolated": this worker stopped reading the shard, as it could not renew the lease, or as the shard failed,
and knows of no other worker that reads it."""

ActiveReadMode = Literal["fanout", "polling"]
"""How shards are read now."""

OVERDUE_AFTER: Final = 5.0
"""Seconds that one commit of a reader may take, its retries included, until the shard is no longer current."""

Condition = Literal["current", "paused", "unread", "uncommitted", "frozen", "disconnected", "no_lease", "isolated"]
"""Whether a shard is read and what was read is committed, and if not, why.

current         events arrive, or have until 10 s ago
paused          the application has paused it
unread          the reader takes nothing, so that events wait, or the subscription was closed: back-pressure (rule R9)
uncommitted     the sink has not taken what was read for 5 s: it fails, or does not answer
frozen          the subscription is open, and nothing has arrived on it for 10 s
disconnected    there has been no subscription for 10 s: the calls fail, or wait for the subscribe budget
no_lease        the lease could not be renewed, so this worker stopped reading; no other worker is known to read it
isolated        the shard failed and was isolated (rule R11); no other worker is known to read it
"""


class IsolatedShard(msgspec.Struct, frozen=True):
    """A shard that failed, and that this worker does not read for now, or has not acked anything of since (rule R11).

    `error_type`, `detail`: why. `seconds_left`: until this worker may read it again; 0: it does. `record`: the one that
    failed, as the text of its checkpoint; None if it was not one record, or is not known.
    """

    shard_id: str
    error_type: str
    seconds_left: float
    detail: str = ""
    record: str | None = None


class Overdue(msgspec.Struct, frozen=True):
    """What a reader waits for before it can ack: its sink, since when, and the failure that is tried again.

    `since`: seconds of the consumer's clock. `error_type`, `detail`: empty while there is no answer.
    """

    since: float
    error_type: str = ""
    detail: str = ""


class ShardReading(msgspec.Struct, frozen=True):
    """The facts about one shard. Times are seconds of the consumer's clock.

    `checkpoint`: the one that the acks allow; it may not be saved yet. `known_since`: when the reading started, or
    was last repositioned. `subscribed_at`: when the subscription was first wanted, None if there is none.
    `last_event_at`, `millis_behind_latest`: of the last event since `known_since`, None before it. `has_pending`:
    whether something has arrived that the reader has not taken. `wanted_since`: since when the reader waits for an
    event, None while it does not. `read_mode`: how it is read, None while it is not. `unsaved_since`: when records
    were first delivered that no saved checkpoint includes, None if there are none. `saved_at`: when the checkpoint
    was last saved, or the reading started. `unacked_since`, `unacked_behind`: when the oldest record was delivered
    that is not acked, None if all are, and how many seconds it was behind the tip then. `overdue`: what its reader
    waits for, None if for nothing. `pending_since`: when the event arrived that its reader has not taken yet.
    """

    shard_id: str
    checkpoint: Checkpoint
    state: ShardState
    known_since: float
    saved_at: float
    subscribed_at: float | None = None
    last_event_at: float | None = None
    millis_behind_latest: int | None = None
    is_paused: bool = False
    has_pending: bool = False
    unsaved_since: float | None = None
    wanted_since: float | None = 0.0
    read_mode: ActiveReadMode | None = None
    unacked_since: float | None = None
    unacked_behind: float = 0.0
    overdue: Overdue | None = None
    pending_since: float | None = None


class LeaseCounts(msgspec.Struct, frozen=True):
    """What the lease table shows. `leases`: by state (held, unowned, expired). `workers`: those that hold any.

    `shards`: by state (waiting_parent, ready, consuming, finished).
    """

    leases: dict[str, int]
    workers: int
    shards: dict[str, int]


class Readings(Protocol):
    """Where these facts come from: a consumer. May be called from any thread."""

    def now(self) -> float:
        """Return the time of the consumer's clock."""
        ...

    def shards(self) -> Sequence[ShardReading]:
        """Return the facts about each shard that this worker reads, or stopped reading with no known successor."""
        ...

    def isolated(self) -> Sequence[IsolatedShard]:
        """Return the shards that failed, and that this worker has not read successfully since."""
        ...

    def counts(self) -> LeaseCounts | None:
        """Return what the lease table shows; None if it was not read for so long that it is unknown."""
        ...


def event_age(shard: ShardReading, now: float) -> float | None:
    """Return the seconds since the last event; None before the first."""
    return None if shard.last_event_at is None else max(0.0, now - shard.last_event_at)


def checkpoint_age(shard: ShardReading, now: float) -> float:
    """Return the seconds since records were delivered that no saved checkpoint includes; 0 if there are none."""
    return 0.0 if shard.unsaved_since is None else max(0.0, now - shard.unsaved_since)


def lag(shard: ShardReading, now: float) -> float | None:
    """Return the seconds since what was acked was known to be current: 0 at the tip of the shard. None: not yet known.

    That is the lag of reading, or the time for which the oldest record that is not acked has waited, if it is longer.
    A sink that commits nothing lags, although all is read.
    """
    reading = read_lag(shard, now)
    if shard.unacked_since is None:
        return reading
    return max(reading or 0.0, shard.unacked_behind + unacked_age(shard, now))


def unacked_age(shard: ShardReading, now: float) -> float:
    """Return the seconds since the oldest record was delivered that is not acked; 0 if all are."""
    return 0.0 if shard.unacked_since is None else max(0.0, now - shard.unacked_since)


def read_lag(shard: ShardReading, now: float) -> float | None:
    """Return the seconds since what was read was known to be current: 0 at the tip of the shard. None: not yet known.

    An event tells how far it was behind the tip. That holds for 10 s, until two events of an idle shard are missing;
    then the time since the event is added. Without any event, the lag is at least the time since the reading started.
    """
    behind = (shard.millis_behind_latest or 0) / 1000
    quiet = now - (shard.known_since if shard.last_event_at is None else shard.last_event_at)
    if quiet >= QUIET_AFTER and shard.state != "ended":
        return behind + quiet
    return None if shard.last_event_at is None else behind


def quiet_for(shard: ShardReading, now: float) -> float:
    """Return for how many seconds nothing has come, although it was wanted (rule R8).

    That is the time since the last event, the subscription, or the reader's wait for an event, whichever was last.
    """
    since = shard.known_since if shard.last_event_at is None else shard.last_event_at
    return max(0.0, now - max(since, shard.subscribed_at or since, shard.wanted_since or since))


def condition(shard: ShardReading, now: float) -> Condition:
    """Return whether the shard is read and committed, and if not, why."""
    if shard.state == "no_lease" or shard.state == "isolated":  # noqa: PLR1714 - mypy narrows it only so
        return shard.state
    if shard.overdue is not None and now - shard.overdue.since >= OVERDUE_AFTER:
        return "uncommitted"
    if shard.is_paused:
        return "paused"
    if shard.state in {"ended", "failed"} or quiet_for(shard, now) < QUIET_AFTER:
        return "current"
    if shard.has_pending or shard.wanted_since is None or shard.state == "unsubscribed":
        return "unread"
    return "frozen" if shard.state in {"live", "renewing"} else "disconnected"
