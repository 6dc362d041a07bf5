"""Runs all checks on one server: starts it, runs the checks in order, and compares what was read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from efo.errors import EfoError
from proofs.interop.servers import checks, resharding, stream
from proofs.interop.servers.comparison import Comparison
from proofs.interop.servers.launcher import Progress, ServerError, running
from proofs.interop.servers.reader import EARLY, reading
from proofs.interop.servers.results import CheckContext, Result
from proofs.interop.servers.servers import Server
from proofs.interop.servers.stream import BATCH

Check = Callable[[CheckContext], Awaitable[Result]]

SHORT_CHECKS: Final[dict[str, Check]] = {
    "registration": checks.registration,
    "unknown stream": checks.unknown_stream,
    "unknown shard": checks.unknown_shard,
    "AT_, AFTER_SEQUENCE_NUMBER": checks.sequence_numbers,
    "split": resharding.split,
    "merge": resharding.merge,
}
"""In running order. No server has more than four subscriptions at a time: LocalStack hangs with a few more."""

ALL_CHECKS: Final[dict[str, Check]] = {
    "registration": checks.registration,
    "unknown stream": checks.unknown_stream,
    "unknown shard": checks.unknown_shard,
    "AT_, AFTER_SEQUENCE_NUMBER": checks.sequence_numbers,
    "AT_TIMESTAMP": checks.at_timestamp,
    "LATEST": checks.latest,
    "consumer gone": checks.consumer_gone,
    "volume": partial(checks.volume, records=120, size=20_000),
    "split": resharding.split,
    "merge": resharding.merge,
    "LATEST, open shards": checks.open_shards,
}

LIFE_CHECKS: Final[dict[str, Check]] = {"whole life": checks.whole_life}
"""Takes five minutes."""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome for one server. `comparison`: of the `main` application, which reads during all checks.

    `renewals`: how many of its subscriptions were renewed. `results`: by name of the check.
    """

    server: Server
    comparison: Comparison
    renewals: int
    results: dict[str, Result]

    @property
    def passed(self) -> bool:
        """Whether nothing is lost, duplicated or out of order, and no check failed."""
        return self.comparison.passed and all(result.outcome != "failed" for result in self.results.values())


async def run_checks(server: Server, chosen: dict[str, Check], records: int, progress: Progress) -> Report:
    """Start a server and run the checks. Raise ServerError if the server does not start, or exits."""
    with TemporaryDirectory(prefix=f"efo-{server.name}-") as directory:
        progress("starting")
        async with running(server, Path(directory), progress) as endpoint:
            progress("creating the stream")
            try:
                async with stream.open_stream(endpoint) as created:
                    context = CheckContext(endpoint, created)
                    results = await _read_all(context, chosen, records, progress)
                    endpoint.check()
                    return Report(server, context.comparison(), context.main.renewals, results)
            except (BotoCoreError, ClientError) as error:
                raise endpoint.failed(f"rejected a call of the producer: {error}") from error


async def _read_all(
    context: CheckContext, chosen: dict[str, Check], records: int, progress: Progress
) -> dict[str, Result]:
    """Let the `main` application read from TRIM_HORIZON: first with early renewals, then again with the usual ones."""
    results: dict[str, Result] = {}

    async def run(name: str, check: Check) -> None:
        try:
            results[name] = await check(context)
        except (EfoError, ServerError) as error:
            context.endpoint.check()
            results[name] = Result("failed", str(error))
        progress(f"{name}: {results[name]}")

    await context.stream.put(BATCH)
    try:
        async with reading(context.endpoint, "main", context.main, timing=EARLY):
            await run("renewal", partial(checks.renewal, records=records))
        async with reading(context.endpoint, "main", context.main):
            for name, check in chosen.items():
                await run(name, check)
            await context.caught_up()
            await context.main.one_more_event()
    except EfoError as error:
        results["main"] = Result("failed", f"stopped reading: {error}")
    return results
