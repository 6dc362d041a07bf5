"""`efo put`: puts lines, JSON or a file into a stream."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final
from uuid import uuid4

import trio
from cyclopts import Parameter
from cyclopts.validators import Number

from efo.errors import DeliveryError
from efo.exception_groups import collapse_groups
from efo.producer.opening import open_producer
from efo.producer.settings import ProducerSettings
from efo_service.commands.options import ConfigFile, Json
from efo_service.commands.output import write_json, write_note
from efo_service.config.loading import load_for_stream
from efo_service.config.settings import Settings
from efo_service.drain import SIGNALS
from efo_service.errors import UnavailableError, UsageError
from efo_service.factories.kinesis import open_stream
from efo_service.operations.put import Format, Parse, PutProgress, Source, parser, put_lines
from efo_service.relay.jsonlines import Encoding

EVERY: Final = {True: 0.5, False: 10.0}
"""Seconds between two reports of progress, to a terminal or not."""


def put(
    stream: Annotated[
        str | None, Parameter(help="Name or ARN of the stream. Default: [kinesis] stream of the configuration.")
    ] = None,
    file: Annotated[Path | None, Parameter(help="What to put. Default: stdin.")] = None,
    *,
    form: Annotated[
        Format,
        Parameter(
            name="--format",
            help="lines: each line is the data of a record. json: each line is an object with key and value, as "
            "`efo tail --json` writes it. file: all of it is one record.",
        ),
    ] = "lines",
    key: Annotated[
        str | None,
        Parameter(
            help="Partition key of all records. Default: a random one for each; none on a stream with the record "
            "distribution strategy AUTO."
        ),
    ] = None,
    key_field: Annotated[
        str | None, Parameter(help="The lines are JSON objects; this field of each is the partition key.")
    ] = None,
    encoding: Annotated[Encoding, Parameter(help="Encoding of the values of --format json.")] = "base64",
    rate: Annotated[float | None, Parameter(validator=Number(gt=0), help="Records per second at most.")] = None,
    aggregate: Annotated[bool, Parameter(negative="", help="Put KPL aggregates, which readers must know.")] = False,
    ordered: Annotated[bool, Parameter(negative="", help="Keep the order of the records of each key.")] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Put records into a stream."""
    if key is not None and key_field is not None:
        raise UsageError("--key and --key-field exclude each other")
    if key_field is not None and form != "lines":
        raise UsageError(f"--key-field reads lines; --format {form} has none, or has its keys in the field key")
    if form == "json" and key == "":
        raise UsageError("--key is empty: expected 1 to 256 characters")
    settings = load_for_stream(config, stream)
    make_parser = partial(parser, form, key=key, key_field=key_field, encoding=encoding)
    progress = PutProgress()
    options = ProducerSettings(aggregate=aggregate, ordered=ordered)
    began = time.monotonic()
    try:
        with _opened(file) as source:
            trio.run(_put, settings, options, source, make_parser, progress, form == "file", rate or math.inf)
    finally:
        if progress.taken or progress.empty_lines:
            write_note(f"{progress}, in {time.monotonic() - began:.1f} s")
        if as_json:
            write_json(progress.as_json(time.monotonic() - began))
    if progress.failed:
        raise UnavailableError(f"{progress.failed} of {progress.taken} records were not stored: {progress.reason}")


@contextmanager
def _opened(file: Path | None) -> Iterator[Source]:
    if file is None or str(file) == "-":
        yield getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        return
    try:
        source = file.open("rb", buffering=0)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    with source:
        yield source


async def _put(
    settings: Settings,
    options: ProducerSettings,
    source: Source,
    make_parser: Callable[..., Parse],
    progress: PutProgress,
    whole: bool,  # noqa: FBT001 - trio.run passes on positional arguments only
    rate: float,
) -> None:
    # Python would raise KeyboardInterrupt in any task, also in the one that sends: what it has would be lost.
    with collapse_groups(), trio.open_signal_receiver(*SIGNALS) as signals:
        async with open_stream(settings.kinesis) as kinesis, trio.open_nursery() as nursery:
            nursery.start_soon(_report, progress)
            nursery.start_soon(_interrupt, signals)
            with suppress(DeliveryError):  # `progress` has counted them
                async with open_producer(kinesis, settings=options, observer=progress) as producer:
                    parse = make_parser(other_key=lambda: None if producer.is_auto else uuid4().hex)
                    await put_lines(producer, source, parse, progress, whole=whole, rate=rate)
            nursery.cancel_scope.cancel()


async def _interrupt(signals: AsyncIterator[int]) -> None:
    async for _signal in signals:
        raise KeyboardInterrupt


async def _report(progress: PutProgress) -> None:
    while True:
        await trio.sleep(EVERY[sys.stderr.isatty()])
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{progress} ")
            sys.stderr.flush()
        else:
            write_note(str(progress))
