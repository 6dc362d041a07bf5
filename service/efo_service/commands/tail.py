"""`efo tail`: shows the records of a stream, without leases and without a fan-out consumer."""

from __future__ import annotations

import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import trio
from cyclopts import Parameter
from cyclopts.validators import Number

from efo.deserializers.many import Layer, unwrapping
from efo.errors import ConfigurationError, ResourceNotFoundError
from efo.kinesis.client import KinesisClient
from efo.model import Position, Record
from efo.settings import pinned
from efo_service.commands.options import ConfigFile, Json
from efo_service.commands.output import write_note
from efo_service.config.loading import load_for_stream
from efo_service.config.settings import Settings
from efo_service.errors import UnavailableError, UsageError
from efo_service.exit_codes import Exit
from efo_service.factories.kinesis import open_stream
from efo_service.operations.recording import Format, formatter, matcher
from efo_service.operations.tail import Tail, Tailer
from efo_service.relay.jsonlines import Encoding
from efo_service.times import parse_time

IDLE_AFTER: Final = 10.0
"""Seconds without a record until a terminal is shown what is read."""
_DATE_STEP: Final = 1.0
"""The service's time is known from the header `Date`, which is up to this many seconds late."""
_CLOSED: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


def tail(
    stream: Annotated[
        str | None, Parameter(help="Name or ARN of the stream. Default: [kinesis] stream of the configuration.")
    ] = None,
    *,
    start: Annotated[
        str,
        Parameter(
            name="--from",
            allow_leading_hyphen=True,
            help="latest, trim_horizon, a time like 2026-01-31T12:00:00Z, or how long ago: -30s, -15m, -6h, -1d.",
        ),
    ] = "latest",
    until: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True, help="End when all shards are at this time: now, a time, or how long ago."
        ),
    ] = None,
    limit: Annotated[int | None, Parameter(validator=Number(gte=1), help="End after this many records.")] = None,
    shard: Annotated[
        list[str] | None, Parameter(negative="", help="Show this shard and its descendants. Repeat it for others.")
    ] = None,
    key: Annotated[str | None, Parameter(help="Show the records with this partition key.")] = None,
    text: Annotated[
        str | None, Parameter(name="--filter", help="Show the records whose data contains this text.")
    ] = None,
    regex: Annotated[
        str | None, Parameter(help="Show the records whose data, as text, matches this regular expression somewhere.")
    ] = None,
    unwrap: Annotated[
        list[Layer] | None,
        Parameter(
            negative="",
            help="Take this layer off the data before it is matched and shown. Repeat it for inner layers. Of "
            "json_lines, json_array and cloudwatch_logs each value is shown.",
        ),
    ] = None,
    form: Annotated[
        Format,
        Parameter(
            name="--format",
            help="text: time, shard, key and data. json: one object per record, as `efo log export` writes it. "
            "raw: the data and a line break.",
        ),
    ] = "text",
    encoding: Annotated[Encoding, Parameter(help="Encoding of the data in JSON.")] = "base64",
    width: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), help="Columns of a line of text on a terminal. Default: the terminal's."),
    ] = None,
    interval: Annotated[
        float,
        Parameter(
            validator=Number(gte=0.2, lte=3600), help="Seconds between two GetRecords calls for a shard: 0.2 to 3600."
        ),
    ] = 1.0,
    config: ConfigFile = None,
    as_json: Json = False,
) -> int | None:
    """Show the records of a stream."""
    if as_json:
        form = "json"
    settings = load_for_stream(config, stream)
    layers = unwrapping(unwrap) if unwrap else None
    keeps = matcher(text, regex, key)
    columns = (width or shutil.get_terminal_size().columns) if sys.stdout.isatty() else None
    line = formatter(form, settings.kinesis.stream_name, encoding=encoding, width=columns)

    def request(now: float) -> Tail:
        """Return what to read. `now`: the service's time."""
        position = parse_start(start, now)
        end = None if until is None else parse_until(until, now)
        if end is not None and position.timestamp is not None and end < position.timestamp:
            raise UsageError(f"--until {until} is before --from {start}: nothing can be between them")
        return Tail(
            start=position,
            until=end,
            limit=limit,
            keeps=keeps,
            shards=tuple(shard or ()),
            unwrap=layers,
            interval=interval,
            aggregates=settings.consumer.aggregates,
        )

    request(time.time())  # refuses wrong times before anything is called
    try:
        trio.run(_tail, settings, request, line)
    except BrokenPipeError:  # the reader closed the pipe: discard what Python flushes at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:  # the normal end
        return Exit.INTERRUPTED
    return None


async def _tail(settings: Settings, request: Callable[[float], Tail], line: Callable[[str, Record], bytes]) -> None:
    def show(shard_id: str, records: Sequence[Record]) -> None:
        write(b"".join(line(shard_id, record) for record in records))

    async with open_stream(settings.kinesis) as kinesis, trio.open_nursery() as nursery:
        # The first response tells the service's time, which positions in time are measured with.
        await _check_stream(kinesis, settings.kinesis.stream)
        tailer = Tailer(kinesis, request((kinesis.service_time or kinesis.clock)()), show, write_note)
        if sys.stderr.isatty():
            nursery.start_soon(_say_if_idle, tailer)
        await tailer.run()
        nursery.cancel_scope.cancel()


async def _check_stream(kinesis: KinesisClient, stream: str) -> None:
    try:
        await kinesis.control_plane.list_shards()
    except ResourceNotFoundError as error:
        raise UnavailableError(
            f"the stream {stream} was not found: check its name, the region and whose credentials these are ({error})"
        ) from error


async def _say_if_idle(tailer: Tailer) -> None:
    """Say once that nothing arrives, and what is being read: the operator may have expected something."""
    await trio.sleep(IDLE_AFTER)
    if not tailer.shown:
        write_note(f"no records for {IDLE_AFTER:g} s: {tailer.state()}")


def write(content: bytes) -> None:
    """Write to stdout at once.

    Raises BrokenPipeError if its reader is gone, even if there is nothing to write, and UnavailableError.
    """
    if content:
        try:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UnavailableError(f"stdout cannot be written: {error.strerror}") from error
        return
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except OSError:  # no file
        return
    if any(event & _CLOSED for _, event in poll.poll(0)):
        raise BrokenPipeError


def parse_start(text: str, now: float) -> Position:
    """Return the position of --from. `now`: seconds since the epoch. Raises UsageError."""
    match text.lower():
        case "latest":
            return Position.latest()
        case "trim_horizon":
            return Position.trim_horizon()
    if (at := parse_time(text, now)) is None:
        raise UsageError(
            f"--from {text}: expected latest, trim_horizon, a time with its zone like 2026-01-31T12:00:00Z, or how "
            "long ago, like -15m"
        )
    try:
        return pinned(Position.at_timestamp(at), now, "--from")
    except ConfigurationError as error:
        raise UsageError(str(error)) from None


def parse_until(text: str, now: float) -> float:
    """Return the time of --until in seconds since the epoch. Raises UsageError."""
    at = now + _DATE_STEP if text.lower() == "now" else parse_time(text, now)
    if at is None:
        raise UsageError(
            f"--until {text}: expected now, a time with its zone like 2026-01-31T12:00:00Z, or how long ago, like -15m"
        )
    return at
