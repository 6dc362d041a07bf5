"""One application moves: the library reads and stops, `efo migrate` takes its checkpoints, efo reads on, and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

import efo
from efo.exception_groups import collapse_groups
from proofs.migration.cases import Case
from proofs.migration.documented import write_rows
from proofs.paths import ROOT
from proofs.peers.lines import Output
from proofs.peers.peers import Peer
from proofs.peers.program import Configuration, running
from proofs.peers.servers import Fake, Site, stamped

_SHARDS: Final = 2
_KEYS: Final = 211
_CHUNK: Final = 200
_START_TIMEOUT: Final = 900.0
"""Seconds to the first records. KCL takes two minutes with a new table, more on a busy machine."""
_READ_TIMEOUT: Final = 300.0
_LINGER: Final = 6.0
"""Seconds after the last new record, for repeated ones and for a checkpoint."""


class MigrationError(Exception):
    """A migration did not do what it must. The message says what."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one reader received after a migration: records that are missing, and records that were read before."""

    missing: int
    repeated: int


@dataclass(slots=True)
class Move:
    """An application of a library on a stream of the fake, and the command that migrates it."""

    case: Case
    fake: Fake
    config: Configuration
    source: str
    directory: Path
    progress: Callable[[str], None]
    put: int = 0
    reports: list[dict[str, Any]] = field(default_factory=list)

    def put_more(self, count: int = _CHUNK) -> range:
        """Put numbered records, and return their numbers."""
        numbers = range(self.put, self.put + count)
        records = [(f"key-{number % _KEYS}", stamped(number, 100)) for number in numbers]
        self.fake.kinesis.put_many(self.config.stream, records)
        self.put = numbers.stop
        return numbers

    async def with_library(self, program: Peer, *, reshard: bool) -> list[int]:
        """Let the library read all that was put, and a little more, and stop; return the numbers that it read."""
        output = Output()
        async with running(program, self.config, output) as process:

            def has_all() -> bool:
                return set(numbers).issubset({number for _, number in output.seen})

            numbers = range(self.put - _CHUNK, self.put)
            await process.until(has_all, _START_TIMEOUT, f"the records {numbers}")
            if reshard:
                self.fake.kinesis.split(self.config.stream, self.fake.kinesis.open_shards(self.config.stream)[0])
                numbers = self.put_more()
                await process.until(has_all, _READ_TIMEOUT, f"the records {numbers}")
            await trio.sleep(_LINGER)
            # The library checkpoints when it gets something after its interval: so all of the above is saved.
            numbers = self.put_more()
            await process.until(has_all, _READ_TIMEOUT, f"the records {numbers}")
            await trio.sleep(_LINGER)
            await process.stop()
        return [number for _, number in output.seen]

    async def with_efo(self) -> list[int]:
        """Let efo read until it has what was put last; return the numbers that it read."""
        seen: list[int] = []
        expected = set(range(self.put - _CHUNK, self.put))
        complete = trio.Event()

        async def handle(batch: efo.Batch) -> None:
            await trio.lowlevel.checkpoint()
            seen.extend(int(record.data.partition(b" ")[0]) for record in batch)
            if expected.issubset(seen):
                complete.set()

        async def read() -> None:
            await efo.consume(
                self.fake.kinesis.kinesis(self.config.stream),
                handle,
                application=self.config.application,
                leases=self.directory / "leases.sqlite",
                worker_id="efo-1",
                observer=efo.events.ignore_events,
            )

        with collapse_groups(), trio.move_on_after(_READ_TIMEOUT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await complete.wait()
                await trio.sleep(_LINGER)
                nursery.cancel_scope.cancel()
        return seen

    async def migrate(self, *options: str) -> dict[str, Any]:
        """Call `efo migrate`; return its report. Raises MigrationError."""
        command = [sys.executable, "-m", "efo_service", "migrate", self.case.library, "--json", "--yes", *options]
        done = await trio.run_process(
            command, env=self._environment(), capture_stdout=True, capture_stderr=True, check=False
        )
        if done.returncode:
            raise MigrationError(f"efo migrate {' '.join(options)}: {done.returncode}: {done.stderr.decode()[-2000:]}")
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
        self.reports.append(report)
        return report

    def _environment(self) -> dict[str, str]:
        config = self.config
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "EFO_"))}
        return kept | {
            "PYTHONPATH": f"{ROOT}:{ROOT / 'service'}:{os.environ.get('PYTHONPATH', '')}",
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_REGION": config.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
            "EFO_KINESIS__STREAM": config.stream,
            "EFO_KINESIS__ENDPOINT_URL": config.endpoint,
            "EFO_KINESIS__CA_FILE": config.ca_file,
            "EFO_CONSUMER__APPLICATION": config.application,
            "EFO_LEASES__PATH": str(self.directory / "leases.sqlite"),
            "EFO_LEASES__FAILOVER_SECONDS": "3",
            "EFO_MIGRATE_CHECKPOINTS": self.source,
        }


async def run_case(case: Case, fake: Fake, site: Site, url: str, progress: Callable[[str], None]) -> dict[str, Part]:
    """Move an application to efo and back; return what each side received. Raises MigrationError, PeerError."""
    stream = f"{case.name}-orders"
    fake.kinesis.create_stream(stream, _SHARDS)
    arn = fake.kinesis.register(stream, case.name).arn
    config = site.configuration(
        endpoint=fake.url,
        ca_file=fake.ca_file,
        application=stream,
        stream=stream,
        consumer=case.name,
        consumer_arn=arn,
        report="numbers",
        checkpoint_seconds=1.0,
    )
    source = url if case.serve else f"dynamodb:{stream}?region=us-east-1&endpoint_url={site.dynamodb}"
    move = Move(case, fake, config, source, Path(config.directory), progress)
    program = case.program(url)
    move.put_more()
    if program is None:
        move.fake.kinesis.split(stream, fake.kinesis.open_shards(stream)[0])
        move.put_more()
        await write_rows(site.dynamodb, config, fake.kinesis)
    else:
        progress(f"{case.name}: the library reads")
        await move.with_library(program, reshard=True)
    before = move.put
    move.put_more()
    progress(f"{case.name}: to efo")
    await move.migrate()
    await move.migrate("--write", "--look", "1")
    parts = {"efo": _compare(await move.with_efo(), before, move.put)}
    before = move.put
    await move.migrate("--back", "--write", "--partial", "--look", "1")
    move.put_more()
    if program is not None:
        progress(f"{case.name}: back to the library")
        parts["back"] = _compare(await move.with_library(program, reshard=False), before, move.put)
    return parts


def _compare(seen: list[int], before: int, end: int) -> Part:
    """Compare what was read with the records from `before` to `end`."""
    return Part(len(set(range(before, end)) - set(seen)), sum(number < before for number in seen))


def version_of(command: tuple[str, ...]) -> str:
    """Return the first line that a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.partition("\n")[0]
