"""`efo record`: writes what SubscribeToShard sends to a file, for `efo fake --replay`."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import trio
from cyclopts import Parameter
from cyclopts.validators import Number

from efo.events import ConsumerDeregistered, Event
from efo.exception_groups import collapse_groups
from efo.kinesis.registration import Registration
from efo.testing.recording.recorder import RecordingWriter
from efo_service.commands.options import ConfigFile, Json
from efo_service.commands.output import write_json, write_line, write_note
from efo_service.commands.tail import parse_start
from efo_service.config.loading import load_for_stream
from efo_service.config.settings import Settings
from efo_service.errors import UnavailableError, UsageError
from efo_service.factories.kinesis import open_stream
from efo_service.operations.recording import StreamRecorder

_PROGRESS_SECONDS: Final = 10.0
_OWNER_ONLY: Final = 0o600
"""The file has the records of the stream."""


def record(
    stream: Annotated[
        str | None, Parameter(help="Name or ARN of the stream. Default: [kinesis] stream of the configuration.")
    ] = None,
    *,
    output: Annotated[Path, Parameter(help="A new file. It will have the records of the stream.")],
    start: Annotated[
        str,
        Parameter(
            name="--from",
            allow_leading_hyphen=True,
            help="latest, trim_horizon, a time like 2026-01-31T12:00:00Z, or how long ago: -30s, -15m, -6h, -1d.",
        ),
    ] = "latest",
    seconds: Annotated[
        float | None, Parameter(validator=Number(gt=0), help="End after this time. Default: SIGTERM or Ctrl-C.")
    ] = None,
    shard: Annotated[
        list[str] | None, Parameter(negative="", help="Record this shard and its descendants. Repeat it for others.")
    ] = None,
    consumer: Annotated[
        str | None,
        Parameter(
            help="A fan-out consumer, which stays. Default: one named APPLICATION-record, deregistered at the end."
        ),
    ] = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Record what SubscribeToShard sends."""
    settings = load_for_stream(config, stream)
    parse_start(start, time.time())  # refuses a wrong time before anything is called
    name = consumer or f"{settings.consumer.application}-record"
    if name == settings.consumer.fan_out_consumer:
        raise UsageError(
            f"--consumer {name}: this is the consumer of the application, whose subscriptions a recording would take: "
            "choose another name"
        )
    ended: list[ConsumerDeregistered] = []
    try:
        with _create(output) as file:
            run = partial(_record, settings, file, name, ended if consumer is None else None)
            writer = trio.run(run, start, seconds, tuple(shard or ()))
    except OSError as error:  # of the file: errors of the network are TransportError
        raise UnavailableError(f"{output} cannot be written: {error.strerror or error}") from error
    values = {"file": str(output), "calls": writer.calls, "bytes": writer.data_bytes, "consumer": name}
    if as_json:
        write_json(values)
    else:
        write_line(f"{output}: {writer.calls} calls, {writer.data_bytes} bytes")
    if consumer is not None or any(event.error_type for event in ended):
        why = "".join(f" ({event.detail or event.error_type})" for event in ended)
        write_note(
            f"the fan-out consumer stays registered and costs: `efo consumers deregister {name} --force` ends that{why}"
        )


def _create(output: Path) -> BinaryIO:
    """Create the file, for its owner alone. Raises UsageError."""
    try:
        return os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "wb")
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}: choose a new file") from None


async def _record(
    settings: Settings,
    file: BinaryIO,
    name: str,
    ended: list[ConsumerDeregistered] | None,
    start: str,
    seconds: float | None,
    shards: tuple[str, ...],
) -> RecordingWriter:
    """Record until the time is over, a signal arrives, or all shards have ended.

    `name`: of the fan-out consumer. `ended`: gets how it was deregistered at the end (rule R13); None: it stays.
    """
    writer = RecordingWriter(file)
    with collapse_groups(), trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def until_signal() -> None:
                async for _signal in signals:
                    nursery.cancel_scope.cancel()

            def observe(event: Event) -> None:
                if isinstance(event, ConsumerDeregistered) and ended is not None:
                    ended.append(event)

            nursery.start_soon(until_signal)  # from the start: a consumer may take minutes to become ACTIVE
            async with AsyncExitStack() as stack:
                kinesis = await stack.enter_async_context(open_stream(settings.kinesis))
                tags = settings.consumer.consumer_tags
                registration = Registration(kinesis.control_plane, name, observe, tags=tags)
                if ended is not None:
                    stack.push_async_callback(registration.end)
                consumer = await registration.ensure()
                if sys.stderr.isatty():
                    nursery.start_soon(_show_progress, writer)
                recorder = StreamRecorder(
                    kinesis,
                    consumer.arn,
                    writer,
                    subscribes_per_second=settings.consumer.subscribes_per_second,
                    note=write_note,
                )
                position = parse_start(start, (kinesis.service_time or kinesis.clock)())
                with trio.move_on_after(math.inf if seconds is None else seconds):
                    await recorder.run(position, shards)
            nursery.cancel_scope.cancel()
    return writer


async def _show_progress(writer: RecordingWriter) -> None:
    while True:
        await trio.sleep(_PROGRESS_SECONDS)
        write_note(f"{writer.calls} calls, {writer.data_bytes} bytes")
