"""One server from beginning to end: started, put through the exercises, judged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from efo.errors import EfoError
from proofs.interop.servers import exercises, resharding, stream
from proofs.interop.servers.findings import Finding, Subject
from proofs.interop.servers.judgement import Verdict
from proofs.interop.servers.reader import EARLY, reading
from proofs.interop.servers.running import Say, ServerError, running
from proofs.interop.servers.servers import Server
from proofs.interop.servers.stream import BATCH

Exercise = Callable[[Subject], Awaitable[Finding]]

SHORT: Final[dict[str, Exercise]] = {
    "registration": exercises.registration,
    "unknown stream": exercises.unknown_stream,
    "unknown shard": exercises.unknown_shard,
    "AT_, AFTER_SEQUENCE_NUMBER": exercises.sequence_numbers,
    "split": resharding.split,
    "merge": resharding.merge,
}
"""In their order. No server gets more than four subscriptions at a time: LocalStack hangs with a few more."""

WHOLE: Final[dict[str, Exercise]] = {
    "registration": exercises.registration,
    "unknown stream": exercises.unknown_stream,
    "unknown shard": exercises.unknown_shard,
    "AT_, AFTER_SEQUENCE_NUMBER": exercises.sequence_numbers,
    "AT_TIMESTAMP": exercises.at_timestamp,
    "LATEST": exercises.latest,
    "consumer gone": exercises.consumer_gone,
    "volume": partial(exercises.volume, records=120, size=20_000),
    "split": resharding.split,
    "merge": resharding.merge,
    "LATEST, open shards": exercises.open_shards,
}

LIFE: Final[dict[str, Exercise]] = {"whole life": exercises.whole_life}
"""Takes five minutes."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a server's trial: of each exercise, and of the one application that read all along."""

    server: Server
    verdict: Verdict
    renewals: int
    findings: dict[str, Finding]

    @property
    def is_right(self) -> bool:
        """Whether nothing was lost, doubled or out of order, and no exercise failed."""
        return self.verdict.is_right and all(finding.outcome != "failed" for finding in self.findings.values())


async def attempt(server: Server, chosen: dict[str, Exercise], records: int, say: Say) -> Report:
    """Start a server, and put efo through the exercises. Raises ServerError: it does not start, or broke off."""
    with TemporaryDirectory(prefix=f"efo-{server.name}-") as directory:
        say("starting")
        async with running(server, Path(directory), say) as endpoint:
            say("creating the stream")
            try:
                async with stream.opened(endpoint) as created:
                    subject = Subject(endpoint, created)
                    findings = await _read_all(subject, chosen, records, say)
                    endpoint.check()
                    return Report(server, subject.verdict(), subject.main.renewals, findings)
            except (BotoCoreError, ClientError) as error:
                raise endpoint.failed(f"refused what the driver asked: {error}") from error


async def _read_all(subject: Subject, chosen: dict[str, Exercise], records: int, say: Say) -> dict[str, Finding]:
    """Let the main application read, from TRIM_HORIZON: first with early renewals, then, again, at the usual age."""
    findings: dict[str, Finding] = {}

    async def do(name: str, exercise: Exercise) -> None:
        try:
            findings[name] = await exercise(subject)
        except (EfoError, ServerError) as error:
            subject.endpoint.check()
            findings[name] = Finding("failed", str(error))
        say(f"{name}: {findings[name]}")

    await subject.stream.put(BATCH)
    try:
        async with reading(subject.endpoint, "main", subject.main, timing=EARLY):
            await do("renewal", partial(exercises.renewal, records=records))
        async with reading(subject.endpoint, "main", subject.main):
            for name, exercise in chosen.items():
                await do(name, exercise)
            await subject.caught_up()
            await subject.main.one_more_event()
    except EfoError as error:
        findings["main"] = Finding("failed", f"it stopped reading: {error}")
    return findings
