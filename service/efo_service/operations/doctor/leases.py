"""Checks of the lease store: it can be read, and leases and log belong to the stream that exists now (rule R15)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from efo.errors import ConfigurationError, ServiceError
from efo.identity import REMEDY, created_text, time_text
from efo.kinesis.client import KinesisClient
from efo.leases.store import Inspectable, Inspection
from efo.model import Position
from efo.protocol.identity import are_same
from efo.settings import refuse_future
from efo_service.exit_codes import Exit
from efo_service.operations.doctor.machine import directory_problem, in_thread
from efo_service.operations.doctor.running import Check, Outcome, failed, not_tested, passed
from efo_service.relay.sink import LOG_REMEDY

_REMEDIES: Final[Mapping[str, str]] = {
    "sqlite": "give this user rights to read and write the file of [leases] path",
    "dynamodb": "allow these actions of dynamodb: on the table, in the policies of these credentials",
    "postgres": "as the owner, GRANT the role these permissions: see docs/leases.md",
    "redis": "grant the user the permissions in docs/leases.md",
    "log": "allow these credentials to write below [relay] directory: see docs/log.md",
}
"""What to do if a write is not permitted, by [leases] store."""


def lease_checks(make: Callable[[], Inspectable], store: str, path: Path | None, way: str = "") -> list[Check]:
    """Return the checks of the lease store.

    `make`: returns the store, which is not open. `store`: its kind. `path`: its file, if it is one. `way`: by which
    proxy it is called, to append to what was found.
    """
    found: list[Inspection] = []

    async def read() -> Outcome:
        found.append(await make().inspect())
        outcome = judge_reading(found[0], store)
        return replace(outcome, detail=outcome.detail + way)

    async def write() -> Outcome:
        return judge_writing(found[0], store)

    server = "check the server of [leases], its address and the network"
    if store == "log":
        server = "check [relay] directory, its store_options and the network"
    checks = [
        Check("lease store", read, server if path is None else f"check the file {path} and its disk"),
        Check("lease store writes", write, server, ("lease store",)),
    ]
    if path is not None:
        look = in_thread(lambda: directory_problem(path.parent) or passed(f"files can be created in {path.parent}"))
        checks.insert(0, Check("lease directory", look, f"check the file system of {path.parent}"))
    return checks


# --- what it means: pure ---------------------------------------------------------------------------------------


def judge_reading(inspection: Inspection, store: str) -> Outcome:
    """Return what was found in a store that can be read."""
    if not inspection.exists:
        return passed(f"{store} can be reached and has no leases yet: `efo run` creates what it needs")
    version = "" if inspection.version is None else f", format version {inspection.version}"
    leases = "" if inspection.leases is None else f", {inspection.leases} leases of this application and stream"
    return passed(f"{store} can be read{version}{leases}")


def judge_writing(inspection: Inspection, store: str) -> Outcome:
    """Return whether a store permits the writes of a worker."""
    if inspection.denied is None:
        return not_tested(f"only a write shows whether {store} permits it")
    if inspection.denied:
        return failed(f"{store} does not permit: {', '.join(inspection.denied)}", _REMEDIES[store])
    return passed("permitted")


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
