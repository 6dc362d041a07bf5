"""What the cases of streams without partition keys share: a stream, a reader that keeps keys, and the command `efo`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

import efo
from efo.protocol.aggregation import AGGREGATE_KEY, AggregateEntry, aggregate
from efo.testing import FakeKinesis
from proofs.edges.egress import CREDENTIALS, efo_running
from proofs.situations.situation import CANARY, Outcome

STREAM, SHARDS = "orders", 4
KEY: Final = f"key {CANARY}"
_POLL_INTERVAL: Final = 0.25


def data(number: int) -> bytes:
    """Return the data of a record."""
    return b"%d %s" % (number, CANARY.encode())


def lost(got: Iterable[bytes], count: int) -> dict[str, float]:
    """Return the count of the records from 0 on that are missing."""
    return {"records_lost_silently": len({data(number) for number in range(count)}.difference(got))}


@asynccontextmanager
async def served(distribution: Any = "AUTO", shards: int = SHARDS) -> AsyncIterator[tuple[FakeKinesis, dict[str, Any]]]:
    """Serve a fake with one stream; yield it and the options that lead efo to it."""
    os.environ.update({**CREDENTIALS, "AWS_SECRET_ACCESS_KEY": CANARY})
    async with FakeKinesis(clock=time.time) as fake, fake.serve() as address:
        fake.create_stream(STREAM, shards, distribution=distribution)
        yield fake, {"endpoint_url": address.url, "ca_file": str(address.ca_file)}


async def consume(options: Mapping[str, Any], **arguments: Any) -> None:
    """Consume the stream until cancelled."""
    await efo.consume(application="a", leases="memory:", **{"stream": STREAM, **arguments, **options})


class Reader:
    """Reads until it has `count` records. `keys`: the partition key of each, by its data."""

    def __init__(self, count: int) -> None:
        self.keys: dict[bytes, str | None] = {}
        self.twice = 0
        self._count = count
        self._done = trio.Event()

    async def handle(self, batch: efo.Batch) -> None:
        """Keep the records of a batch."""
        for record in batch:
            self.twice += record.data in self.keys
            self.keys[record.data] = record.partition_key
        if len(self.keys) >= self._count:
            self._done.set()

    async def run(self, options: Mapping[str, Any], *, seconds: float = 30.0, **settings: Any) -> None:
        """Read with these settings, at most so many seconds."""
        chosen = efo.ConsumerSettings(poll_seconds=_POLL_INTERVAL, **settings)
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(consume, options, handler=self.handle, settings=chosen))
                await self._done.wait()
                nursery.cancel_scope.cancel()

    def outcome(self, expected: Mapping[bytes, str | None]) -> Outcome:
        """Compare what was read with the records that were put."""
        wrong = sum(self.keys.get(each, "") != key for each, key in expected.items())
        missing = len(expected.keys() - self.keys.keys())
        did = f"{len(self.keys)} of {len(expected)} records, {wrong} with a wrong key, {self.twice} twice"
        return Outcome(did, wrong == missing == self.twice == 0, {"records_lost_silently": missing})


def put_all(fake: FakeKinesis) -> dict[bytes, str | None]:
    """Put records of each kind that AUTO allows; return their keys as a consumer must see them."""
    expected: dict[bytes, str | None] = {data(number): None for number in range(40)}
    fake.put_many(STREAM, [(None, each) for each in expected])
    fake.put(STREAM, KEY, data(40))
    expected[data(40)] = KEY
    for first, outer in ((41, None), (61, AGGREGATE_KEY), (81, KEY)):  # of nobody, of the KPL, of another producer
        users = {data(number): f"{KEY} {number}" for number in range(first, first + 20)}
        fake.put(STREAM, outer, aggregate(AggregateEntry(key, each) for each, key in users.items()))
        expected |= users
    return expected


async def run_efo(
    *arguments: str, options: Mapping[str, str], stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run the command; return its exit status and stdout, which has payloads if the user asks for them."""
    command = [sys.executable, "-m", "efo_service", *arguments]
    variables = {**os.environ, **_variables(options), **(environment or {})}
    done = await trio.run_process(
        command, env=variables, stdin=stdin, capture_stdout=True, capture_stderr=True, check=False
    )
    print(done.stderr.decode(), file=sys.stderr)
    return done.returncode, done.stdout.decode()


def _variables(options: Mapping[str, str]) -> dict[str, str]:
    return {
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "EFO_KINESIS__STREAM": STREAM,
        "EFO_KINESIS__ENDPOINT_URL": options["endpoint_url"],
        "EFO_KINESIS__CA_FILE": options["ca_file"],
        "EFO_LEASES__PATH": "leases.sqlite",
        "EFO_SERVICE__PORT": "0",
    }


def efo_run(options: Mapping[str, str], **environment: str) -> AbstractAsyncContextManager[None]:
    """Run `efo run` while the context is open, then end it with SIGTERM."""
    return efo_running("run", environment={**_variables(options), **environment})


def text_of(path: str) -> str:
    """Return the text of a file, none if it does not exist."""
    return Path(path).read_text() if Path(path).exists() else ""
