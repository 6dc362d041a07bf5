"""A stream is deleted and created again: how each form, the service and its commands tell it; times in the future."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

import efo
from efo.testing import FakeKinesis, FakeKinesisThread, FakeSettings
from proofs.edges.cases.identity import COUNT, NEW, OLD, REMEDY, STREAM, in_virtual_time, kept, open_world
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("identity")


# --- each form, and the operator's view ------------------------------------------------------------------------


class Served:
    """A fake on a port, and the environment of a process that reads it."""

    def __init__(self, fake: FakeKinesisThread) -> None:
        self.fake = fake
        self.where: dict[str, Any] = {"endpoint_url": fake.url, "ca_file": str(fake.ca_file)}
        os.environ.update(AWS_ACCESS_KEY_ID="AK", AWS_SECRET_ACCESS_KEY=f"{CANARY}secret", AWS_REGION="us-east-1")
        fake.create_stream(STREAM, 2)
        self.put(OLD)

    def put(self, text: str, stream: str = STREAM) -> None:
        """Put records."""
        self.fake.put_many(stream, [(f"{CANARY}{n}", f"{text}{n}".encode()) for n in range(COUNT)])

    def recreate(self) -> None:
        """Delete the stream, create it again, and put new records."""
        self.fake.call(lambda inner: inner.delete_stream(STREAM))
        self.fake.create_stream(STREAM, 2)
        self.put(NEW)


def _served(function: Callable[[Served], Outcome]) -> Outcome:
    with FakeKinesisThread(settings=FakeSettings(stream_deleting=0.0)) as fake:
        return function(Served(fake))


def _reported(error: BaseException | None, got: set[bytes]) -> Outcome:
    did = f"{type(error).__name__}, {len(got)} old records before"
    return Outcome(
        did, isinstance(error, efo.errors.StreamRecreatedError) and REMEDY in str(error) and len(got) == COUNT
    )


@cases.case("refused with the remedy, as in the library for trio")
def by_efo_sync() -> Outcome:
    """Read with a for loop, and again after the stream was created again."""

    def read(served: Served) -> Outcome:
        got: set[bytes] = set()

        def once() -> None:
            opening = efo.sync.open_consumer(STREAM, application="a", leases="leases.sqlite", **served.where)
            with opening as consumer:
                for batch in consumer:
                    got.update(record.data for record in batch)
                    consumer.ack(batch)
                    if len(got) >= COUNT:
                        return

        once()
        served.recreate()
        return _reported(_error_of(once), got)

    return _served(read)


@cases.case("refused with the remedy, as in the library for trio")
def by_efo_aio() -> Outcome:
    """Read with asyncio, and again after the stream was created again."""
    import asyncio  # noqa: PLC0415 - of this case alone

    def read(served: Served) -> Outcome:
        got: set[bytes] = set()

        async def once() -> None:
            opening = efo.aio.open_consumer(STREAM, application="a", leases="leases.sqlite", **served.where)
            async with opening as consumer:
                async for batch in consumer:
                    got.update(record.data for record in batch)
                    consumer.ack(batch)
                    if len(got) >= COUNT:
                        return

        asyncio.run(once())
        served.recreate()
        return _reported(_error_of(lambda: asyncio.run(once())), got)

    return _served(read)


def _error_of(function: Callable[[], object]) -> BaseException | None:
    try:
        function()
    except BaseException as group:  # noqa: BLE001 - judged by its type
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return error
    return None


def _efo(*arguments: str, shows_records: bool = False) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "efo_service.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    sys.stderr.write("" if shows_records else f"{done.stdout}\n{done.stderr}\n")
    return done


def configure(served: Served, text: str = f'[kinesis]\nstream = "{STREAM}"\n') -> None:
    os.environ.update(EFO_KINESIS__ENDPOINT_URL=served.fake.url, EFO_KINESIS__CA_FILE=str(served.fake.ca_file))
    common = '[leases]\npath = "leases.sqlite"\nfailover_seconds = 1\n[consumer]\ncheckpoint_seconds = 1\n'
    Path("efo.toml").write_text(f'{text}{common}read_mode = "polling"\n[relay]\ndirectory = "log"\n', encoding="utf-8")


def relay(until: Callable[[str], bool], *, seconds: float = 40.0, port: int = 0) -> tuple[int, list[dict[str, Any]]]:
    """Run the service until it ends or `until` says so of what it printed; return its exit code and its log."""
    environment = {**os.environ, "EFO_SERVICE__PORT": str(port), "EFO_SERVICE__LOG_LEVEL": "debug"}
    with Path("service.log").open("w+", encoding="utf-8") as log:
        command = [sys.executable, "-m", "efo_service.cli", "run", "--config", "efo.toml"]
        with subprocess.Popen(command, stdout=log, stderr=log, env=environment) as child:
            ends = time.monotonic() + seconds
            while child.poll() is None and time.monotonic() < ends:
                time.sleep(0.2)
                if until(Path("service.log").read_text(encoding="utf-8")):
                    break
            child.terminate()
    printed = Path("service.log").read_text(encoding="utf-8")
    sys.stderr.write(printed)
    lines = []
    for line in printed.splitlines():
        with suppress(ValueError):
            lines.append(json.loads(line))
    return child.returncode, lines


def _exported(topic: str = STREAM) -> str:
    options = ("--config", "efo.toml", "--stream", topic, "--topic", topic, "--encoding", "utf-8")
    return _efo("log", "export", *options, shows_records=True).stdout


@cases.case("78 with one sentence; doctor and log verify say so; reset and adoption heal it", seconds=180)
def the_service_relays_a_recreated_stream() -> Outcome:
    """Relay into the log, as an operator does."""

    def run(served: Served) -> Outcome:
        configure(served)
        first, _ = relay(lambda _: _exported().count(OLD) == COUNT)
        served.recreate()
        code, lines = relay(lambda _: False)
        shown = [line for line in lines if line.get("level") != "debug"]
        reported = [line for line in shown if "was deleted and created again" in str(line)]
        doctor = _efo("doctor", "--config", "efo.toml", "--timeout", "30")
        verify = _efo("log", "verify", "--config", "efo.toml")
        _efo("leases", "reset", "--config", "efo.toml", "--all", "--to", "trim_horizon", "--yes")
        _efo("log", "adopt", "--config", "efo.toml", "--yes")
        last, _ = relay(lambda _: _exported().count(NEW) == COUNT)
        unread = COUNT - _exported().count(NEW)
        codes = (first, code, doctor.returncode, verify.returncode, last)
        is_reported = len(reported) == 1 and all(
            "created again" in done.stdout + done.stderr for done in (doctor, verify)
        )
        did = f"exit codes {codes}, {len(reported)} lines, {unread} of {COUNT} unread after the remedy"
        return Outcome(did, codes == (0, 78, 78, 1, 0) and is_reported and not unread)

    return _served(run)


@cases.case("the other stream is read; this one has two lines in all, and is not ready", seconds=120)
def one_of_two_streams_of_the_service_is_recreated() -> Outcome:
    """Relay two streams."""

    def run(served: Served) -> Outcome:
        served.fake.create_stream("clicks", 1)
        configure(served, f"[streams.{STREAM}]\n[streams.clicks]\n")
        relay(lambda _: _exported().count(OLD) == COUNT)
        served.recreate()
        served.put(NEW, "clicks")
        seen: list[str] = []

        def until(printed: str) -> bool:
            if "stream_failed" in printed and _exported("clicks").count(NEW) == COUNT:
                seen.append(page_of(printed, "status"))
                return True
            return False

        code, lines = relay(until)
        failed = [line for line in lines if line.get("event") == "stream_failed" and line.get("level") != "debug"]
        is_reported = bool(seen) and "was deleted and created again" in seen[0]
        did = f"exit {code}, {len(failed)} lines of the failure, clicks has {_exported('clicks').count(NEW)}"
        return Outcome(f"{did}, status {'tells' if is_reported else 'does not tell'}", len(failed) == 1 and is_reported)

    return _served(run)


def page_of(printed: str, page: str) -> str:
    """Ask the service that printed this for a page."""
    _, _, rest = printed.partition('"url": "http://')
    address, _, _ = rest.partition('"')
    with urllib.request.urlopen(f"http://{address}/{page}", timeout=10) as response:
        text: str = response.read().decode()
    return text


# --- a position in the future ----------------------------------------------------------------------------------


@cases.case("a mistake of configuration, before anything is read")
async def the_initial_position_is_tomorrow() -> Outcome:
    """Write local time, or milliseconds."""
    with trio.move_on_after(10):
        async with FakeKinesis(clock=time.time) as fake:
            fake.create_stream(STREAM)
            tomorrow = efo.ConsumerSettings(initial_position=efo.Position.at_timestamp(time.time() + 86_400))
            run = partial(efo.consume, fake.kinesis(STREAM), application="a", leases="memory:", settings=tomorrow)
            try:
                await run(_nothing)
            except efo.errors.ConfigurationError as error:
                return Outcome(str(error)[:150], "is in the future" in str(error))
    return Outcome("it reads", is_right=False)


async def _nothing(_batch: efo.Batch) -> None:
    await trio.lowlevel.checkpoint()


@cases.case("now, by the service's clock: the records that follow are read")
def the_initial_position_is_a_minute_ahead() -> Outcome:
    """Let the clocks of two hosts differ."""

    async def main() -> Outcome:
        async with open_world("polling") as world:
            ahead = efo.Position.at_timestamp(world.fake.clock() + 60.0)
            world.settings = replace(world.settings, initial_position=ahead)
            await world.run(during=partial(world.put, NEW))
            return kept(world)

    return in_virtual_time(main)


@cases.case("78 of check-config, doctor and run, naming the setting")
def the_services_initial_position_is_in_the_future() -> Outcome:
    """Mistype the year."""

    def run(served: Served) -> Outcome:
        configure(served)
        os.environ["EFO_CONSUMER__INITIAL_POSITION"] = "2099-01-01T00:00:00Z"
        done = [_efo(command, "--config", "efo.toml") for command in ("check-config", "doctor", "run")]
        codes = [each.returncode for each in done]
        is_named = all("initial_position" in each.stderr.lower() for each in done)
        return Outcome(f"exit codes {codes}, {'named' if is_named else 'not named'}", codes == [78] * 3 and is_named)

    return _served(run)
