"""What is wrong with a worker, in sentences with their remedies: from the facts that its consumer knows. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from efo.errors import AccessDeniedError, IsolateShardError
from efo.events import RecordsExpired
from efo.health import Condition, IsolatedShard, ShardReading, checkpoint_age, condition, quiet_for
from efo.identity import time_text
from efo.protocol.remedies import remedy
from efo.telemetry.filtering import LeftOut
from efo.telemetry.log import filtering_text
from efo.telemetry.outages import KnownOutage, System

_NAMED: Final = 3
"""How many shards a sentence names."""


class Problem(NamedTuple):
    """A sentence: what is wrong, and its remedy. `stops_reading`: whether the worker is not ready because of it."""

    text: str
    stops_reading: bool


class LastError(msgspec.Struct, frozen=True):
    """The last error of a part, or of what it uses. `since`: when its outage began, seconds since the epoch.

    `system`: kinesis, sink, lease_store, certificate, ... `count`: failures until now. `is_over`: whether it works.
    """

    system: str
    error_type: str
    text: str
    since: float
    count: int
    remedy: str
    is_over: bool


def last_error(outage: KnownOutage, now: float) -> LastError:
    """Return the error of an outage. `now`: seconds since the epoch."""
    do = remedy(outage.error_type) or f"look in the log for {outage.system}_outage_began"
    since = round(now - outage.seconds, 3)
    text = outage.detail or outage.error_type
    return LastError(outage.system, outage.error_type, text, since, outage.failures, do, outage.is_over)


def continued(error: LastError, before: LastError | None) -> LastError:
    """Return an error that has come now, with the beginning and the failures of one `before` it that is not over."""
    if before is None or before.is_over:
        return error
    return msgspec.structs.replace(error, since=before.since, count=before.count + 1)


class _Told(NamedTuple):
    """How a condition is reported. `what`: after the names of the shards and before the seconds."""

    what: str
    remedy: str
    stops_reading: bool = True


_REPORTED: Final[dict[Condition, _Told]] = {
    "frozen": _Told(
        "frozen: the subscription is open, and no event has arrived for {seconds:.0f} s, though an idle shard gets one "
        "about every 5 s",
        "efo subscribes again after 35 s without a byte; if that does not help, look at the AWS Health Dashboard and "
        "at the network between this worker and Kinesis",
    ),
    "disconnected": _Told(
        "not subscribed for {seconds:.0f} s{error}",
        "look at the network and the credentials of this worker, and at other consumers of the same name; many shards "
        "at once wait for [consumer] subscribes_per_second",
    ),
    "unread": _Told(
        "not read for {seconds:.0f} s: the sink takes nothing, so events wait, or the subscription was closed",
        "look at the sink, and in the log for sink_outage_began",
    ),
    "uncommitted": _Told(
        "not committed: the sink has not taken for {seconds:.0f} s what was read{error}",
        "make the sink answer; what was read waits, and is committed when it works again",
    ),
    "no_lease": _Told(
        "no longer read: the lease could not be renewed, and no other worker is known to have it",
        "make the lease store reachable from this worker; it then takes its leases again",
    ),
    "paused": _Told("paused", "resume it", stops_reading=False),
}
"""All conditions but "current", the worst first."""


_FAN_OUT_DENIED: Final = (
    "permit kinesis:SubscribeToShard, kinesis:RegisterStreamConsumer and kinesis:DescribeStreamConsumer"
)
_FAN_OUT_REMEDY: Final = "look in the log for read_mode_changed; efo tries again every five minutes"
_SYSTEMS: Final[dict[System, str]] = {
    "kinesis": "Kinesis", "lease_store": "the lease store", "sink": "the sink", "cloudwatch": "CloudWatch",
}  # fmt: skip


def fan_out_problem(error_type: str, detail: str) -> Problem:
    """Return what is wrong if shards are polled, since fan-out failed with this error."""
    is_denied = error_type == AccessDeniedError.error_type
    do = _FAN_OUT_DENIED if is_denied else remedy(error_type) or _FAN_OUT_REMEDY
    text = f"enhanced fan-out is not possible, so the shards are polled ({detail or error_type}): {do}"
    return Problem(text, stops_reading=False)


def outage_problem(outage: KnownOutage) -> Problem:
    """Return what is wrong while a system fails. Whether shards are read nevertheless, their conditions tell."""
    cause = f"{outage.error_type}: {outage.detail}" if outage.detail else outage.error_type
    do = remedy(outage.error_type) or f"look in the log for {outage.system}_outage_began"
    text = f"{_SYSTEMS[outage.system]} has failed for {outage.seconds:.0f} s, {outage.failures} times ({cause}): {do}"
    return Problem(text, stops_reading=False)


def filtering_problem(filtered: Mapping[str, LeftOut], shards: int) -> Problem:
    """Return what is reported of user records that were filtered out of aggregates, by shard id (rule R17)."""
    records = sum(found.records for found in filtered.values())
    mode = next(iter(filtered.values())).mode
    text = f"{_named(sorted(filtered), shards)}: {records} user records of aggregates were filtered out"
    return Problem(f"{text}: {filtering_text(mode)}", stops_reading=False)


def dropped_problem(dropped: Mapping[str, LeftOut], shards: int, *, is_old: bool) -> Problem:
    """Return what is reported of records that a limit of age dropped, by shard id. `is_old`: not skipped unread."""
    records, names = sum(found.records for found in dropped.values()), _named(sorted(dropped), shards)
    if is_old:
        text = f"{names}: {records} records older than [relay] max_record_age_seconds were dropped"
    else:
        text = f"{names}: a backlog was skipped, since it was longer than [relay] skip_when_behind_seconds: see"
        text += " records_dropped"
    return Problem(f"{text}: raise the limit, or read faster, to get them", stops_reading=False)


def expired_problem(events: Sequence[RecordsExpired]) -> Problem:
    """Return what records have expired unread, in one sentence for all shards."""
    names = ", ".join(sorted(event.shard_id for event in events)[:_NAMED])
    more = f" and {len(events) - _NAMED} more" if len(events) > _NAMED else ""
    since, until = min(event.since for event in events), max(event.until for event in events)
    return Problem(
        f"{names}{more}: records that arrived between {time_text(since)} and {time_text(until)} expired before they "
        "were read, if there were any, and nobody can read them any more: increase the retention period of the stream "
        "above the longest stop and the longest lag of this application",
        stops_reading=False,
    )


def shard_problems(
    shards: Sequence[ShardReading],
    now: float,
    *,
    unsaved_after: float,
    subscribe_error: tuple[str, str] | None = None,
) -> Iterator[Problem]:
    """Yield what is wrong with the reading of these shards, one sentence for all that share a condition.

    `unsaved_after`: the checkpoint age in seconds from which it is a problem. `subscribe_error`: why the last call of
    SubscribeToShard failed, its `error_type` and text; None if it did not.
    """
    by_condition: dict[Condition, list[ShardReading]] = defaultdict(list)
    for shard in shards:
        by_condition[condition(shard, now)].append(shard)
    for name, reported in _REPORTED.items():
        if affected := by_condition.get(name):
            longest = max(affected, key=lambda shard: _seconds(shard, now))
            seconds, error, do = _seconds(longest, now), "", reported.remedy
            why = subscribe_error if name == "disconnected" else None
            if name == "uncommitted" and longest.overdue is not None:
                why = (longest.overdue.error_type or "no answer", longest.overdue.detail)
            if why is not None:
                error, do = f" ({why[1] or why[0]})", remedy(why[0]) or do
            what = reported.what.format(seconds=seconds, error=error)
            yield Problem(f"{_names(affected, shards)}: {what}: {do}", reported.stops_reading)
    yield from _unsaved(shards, lambda shard: checkpoint_age(shard, now), unsaved_after)


def isolated_problems(
    isolated: Sequence[IsolatedShard], shards: Sequence[ShardReading], *, keeps_positions: bool
) -> Iterator[Problem]:
    """Yield what is wrong with isolated shards that nobody is known to read, a sentence for each of the first.

    The worker is not ready if it reads no other shard. `keeps_positions`: of the sink; then a lease skips nothing.
    """
    known = {shard.shard_id: shard for shard in isolated}
    found = [
        known.get(shard.shard_id) or IsolatedShard(shard.shard_id, IsolateShardError.error_type, 0.0)
        for shard in shards
        if shard.shard_id in known or shard.state == "isolated"
    ]
    are_all = len(found) == len(shards)
    for shard in found[:_NAMED]:
        why = f"{shard.error_type}: {shard.detail}" if shard.detail else shard.error_type
        at = f" at record {shard.record}" if shard.record else ""
        skip = f"; to skip the record: {_skip(shard, keeps_positions=keeps_positions)}" if shard.record else ""
        again = f"tries again in {shard.seconds_left:.0f} s" if shard.seconds_left else "tries again now"
        yield Problem(
            f"{shard.shard_id}: isolated{at}, and no other worker is known to read it ({why}): "
            f"{remedy(shard.error_type) or 'remove the cause'}; this worker {again}{skip}",
            are_all,
        )
    if len(found) > _NAMED:
        yield Problem(f"{len(found) - _NAMED} more shards are isolated: GET /status has all", are_all)


def _skip(shard: IsolatedShard, *, keeps_positions: bool) -> str:
    if keeps_positions:
        return 'set [relay] dead_letters or on_refused_record = "skip", and send SIGHUP'
    return f"efo leases reset {shard.shard_id} --to {shard.record}"


def _seconds(shard: ShardReading, now: float) -> float:
    """Return for how long a shard is in its condition."""
    overdue = shard.overdue
    return quiet_for(shard, now) if overdue is None else max(now - overdue.since, quiet_for(shard, now))


def _unsaved(shards: Sequence[ShardReading], age: Callable[[ShardReading], float], after: float) -> Iterator[Problem]:
    affected = [shard for shard in shards if age(shard) >= after]
    if affected:
        yield Problem(
            f"{_names(affected, shards)}: records were delivered {max(map(age, affected)):.0f} s ago that no saved "
            "checkpoint includes, so a worker that takes over reads them again: look at the sink and the lease store, "
            "and in the log for sink_outage_began and lease_store_outage_began",
            stops_reading=False,
        )


def _names(affected: Sequence[ShardReading], shards: Sequence[ShardReading]) -> str:
    return _named(sorted(shard.shard_id for shard in affected), len(shards))


def _named(affected: Sequence[str], shards: int) -> str:
    names = ", ".join(affected[:_NAMED])
    if len(affected) == 1:
        return names
    more = f" and {len(affected) - _NAMED} more" if len(affected) > _NAMED else ""
    return f"{len(affected)} of {shards} shards ({names}{more})"
