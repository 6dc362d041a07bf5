"""`efo fake`: serves a fake Kinesis for tests, for clients in any language."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import trio
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console

from efo.testing.errors import FakeError
from efo.testing.fake import FakeKinesis
from efo.testing.faults.script import FaultScript, load_faults
from efo.testing.server.listener import Address, environment
from efo.testing.settings import FakeSettings
from efo_service.commands.options import Json, require_fake
from efo_service.commands.output import TextTable, print_table, write_json
from efo_service.errors import UnavailableError, UsageError


def fake(
    *,
    port: Annotated[
        int,
        Parameter(validator=Number(gte=0, lte=65535), help="Port on 127.0.0.1. 0 takes a free port."),
    ] = 4567,
    tls: Annotated[bool, Parameter(help="Serve TLS, with a certificate authority of the fake.")] = True,
    streams: Annotated[str, Parameter(help="Streams to create, with their numbers of shards: orders:4,clicks:1.")] = "",
    faults: Annotated[Path | None, Parameter(help="Fault script (TOML): what fails, and when.")] = None,
    record: Annotated[Path | None, Parameter(help="Write everything that SubscribeToShard sends to this file.")] = None,
    replay: Annotated[Path | None, Parameter(help="Serve the recording in this file.")] = None,
    throttle_writes: Annotated[
        bool, Parameter(negative="", help="Limit writes to 1 MiB and 1,000 records per second and shard, as AWS does.")
    ] = False,
    speed: Annotated[
        float | None, Parameter(validator=Number(gt=0), help="Replay so many times as fast as it was recorded.")
    ] = None,
    fast: Annotated[
        bool, Parameter(negative="", help="Replay as fast as possible, without the recorded timing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Serve FakeKinesis until SIGTERM or Ctrl-C."""
    require_fake()
    if replay is not None and record is not None:
        raise UsageError("--record and --replay exclude each other: use one of them")
    if speed is not None and (fast or replay is None):
        raise UsageError("--speed belongs to --replay, without --fast, which is an infinite speed")
    shards = _parse_streams(streams)
    settings = FakeSettings(throttle_writes=throttle_writes)
    script = load_faults(faults) if faults is not None else FaultScript()

    async def run() -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals, ExitStack() as recording:
            async with FakeKinesis(settings=settings, clock=time.time, faults=script) as kinesis:
                _create(kinesis, shards)
                if replay is not None:
                    shards.update(dict.fromkeys(kinesis.replay(replay, speed=math.inf if fast else speed or 1.0), 0))
                if record is not None:
                    recording.enter_context(kinesis.record(record))
                await _serve(kinesis, list(shards), signals, port=port, tls=tls, as_json=as_json)

    trio.run(run)


async def _serve(
    kinesis: FakeKinesis,
    streams: list[str],
    signals: AsyncIterator[int],
    *,
    port: int,
    tls: bool,
    as_json: bool,
) -> None:
    try:
        async with kinesis.serve(port=port, tls=tls) as address:
            _write_address(address, streams, as_json=as_json)
            async for _signal in signals:
                return
    except OSError as error:
        raise UnavailableError(f"port {port} on 127.0.0.1: {error.strerror}: choose another with --port") from error


def _create(kinesis: FakeKinesis, shards: dict[str, int]) -> None:
    for name, count in shards.items():
        try:
            kinesis.create_stream(name, count)
        except FakeError as error:
            raise UsageError(f"--streams: {error.message}") from None


def _parse_streams(text: str) -> dict[str, int]:
    shards: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, colon, count = part.strip().partition(":")
        if colon and not (count.isascii() and count.isdigit() and len(count) < 10):  # noqa: PLR2004 - far above limits
            raise UsageError(f"--streams {part.strip()!r}: expected NAME:SHARDS, for example orders:4,clicks:1")
        shards[name] = int(count) if colon else 1
    return shards


def _write_address(address: Address, streams: list[str], *, as_json: bool) -> None:
    variables = environment(address)
    ca_file = None if address.ca_file is None else str(address.ca_file)
    if as_json:
        values = {"url": address.url, "ca_file": ca_file, "streams": streams, "environment": variables}
        write_json(values)
        sys.stdout.flush()
        return
    table = TextTable("", "FakeKinesis")
    table.add_row("url", address.url)
    table.add_row("CA file", ca_file or "none: no TLS")
    table.add_row("streams", ", ".join(streams) or "none: create them with CreateStream")
    print_table(table)
    console = Console(soft_wrap=True, highlight=False)
    console.print("Environment variables for AWS SDKs and tools:\n")
    for name, value in variables.items():
        console.print(f"export {name}={value}", markup=False)
    console.print("\nPress Ctrl-C to stop.")
