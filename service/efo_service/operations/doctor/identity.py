"""Checks whether leases and log belong to the stream that exists now (rule R15), and where unread shards start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import trio

from efo.errors import ConfigurationError, ServiceError
from efo.identity import REMEDY, created_text, time_text
from efo.kinesis.client import KinesisClient
from efo.leases.store import Inspectable
from efo.model import Position
from efo.protocol.identity import are_same
from efo.settings import refuse_future
from efo_service.exit_codes import Exit
from efo_service.operations.doctor.outcomes import Outcome, failed, not_tested, passed
from efo_service.operations.doctor.running import Check
from efo_service.relay.sink import LOG_REMEDY

_RETRY: Final = "try again later"


def identity_checks(
    open_client: Callable[[], Awaitable[KinesisClient]],
    make_leases: Callable[[], Inspectable],
    of_topics: Callable[[], Mapping[str, float]],
    initial: Position,
) -> list[Check]:
    """Return the checks.

    `of_topics`: returns, by the topics of the log, when the streams were created that they are of; it blocks.
    """

    async def identity() -> Outcome:
        kinesis = await open_client()
        try:
            created_at = (await kinesis.control_plane.describe_stream()).created_at
        except ServiceError as error:
            return not_tested(f"DescribeStreamSummary is not possible ({error.error_type})")
        of_leases = (await make_leases().inspect()).created_at
        topics = await trio.to_thread.run_sync(of_topics, abandon_on_cancel=True)
        return judge_identity(created_at, of_leases, topics)

    async def start() -> Outcome:
        kinesis = await open_client()
        return judge_start(initial, (kinesis.service_time or kinesis.clock)())

    checks = [Check("stream identity", identity, _RETRY, ("stream", "lease store"))]
    if initial.timestamp is not None:
        checks.append(Check("initial position", start, _RETRY, ("stream",)))
    return checks


# --- what it means: pure ---------------------------------------------------------------------------------------


def judge_identity(created_at: float | None, of_leases: Iterable[float], of_topics: Mapping[str, float]) -> Outcome:
    """Return whether leases and topics are of the stream that was created at this time."""
    if created_at is None:
        return not_tested("the service does not say when the stream was created")
    for time in of_leases:
        if not are_same(time, created_at):
            what = created_text(time, created_at, "the stream was deleted and created again: the leases are")
            return failed(what, REMEDY, Exit.CONFIGURATION)
    for where, time in of_topics.items():
        if not are_same(time, created_at):
            what = f"the stream was deleted and created again: the topic {where} is"
            return failed(created_text(time, created_at, what), LOG_REMEDY, Exit.CONFIGURATION)
    return passed(f"the stream was created at {time_text(created_at)}; no leases and no topic of another one")


def judge_start(initial: Position, now: float) -> Outcome:
    """Return whether shards that were never read can start there. `now`: the service's time."""
    try:
        refuse_future(initial.timestamp or 0.0, now, "[consumer] initial_position")
    except ConfigurationError as error:
        return failed(str(error), "write latest, or a time that is over", Exit.CONFIGURATION)
    return passed(f"shards that were never read start at {time_text(initial.timestamp or 0.0)}")
