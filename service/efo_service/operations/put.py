"""Puts lines into a stream at a rate, and counts what becomes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Protocol

import trio

from efo.errors import ConfigurationError
from efo.events import Event, PutRecordsCalled, RecordsDelivered, RecordsNotDelivered
from efo.producer.producer import Producer
from efo.third_party_errors import reason_of
from efo_service.errors import UsageError
from efo_service.operations.put_lines import Lines, Parse

READ_SIZE: Final = 64 * 1024
_SLACK: Final = 0.01
"""Seconds that a record may be early: sleeps that are shorter cost more than they even out."""


class Source(Protocol):
    """A file without a buffer, whose lock a thread that is left behind would hold while Python ends."""

    def read(self, size: int, /) -> bytes | None:
        """Return what there is, up to `size` bytes; none at the end; None if that is not known yet."""
        ...

    def fileno(self) -> int:
        """Return the number of its descriptor."""
        ...


@dataclass(slots=True)
class PutProgress:
    """What `efo put` has done so far. `latency`: the highest, in seconds. An observer of its producer.

    `taken`: records that were read and put. `empty_lines`: lines that were left out. `stored`, `failed`: what became of
    the records. `kinesis_records`: what they were stored as. `again`: Kinesis records that were sent again. `requests`:
    of PutRecords.
    """

    taken: int = 0
    empty_lines: int = 0
    data_bytes: int = 0
    stored: int = 0
    failed: int = 0
    kinesis_records: int = 0
    requests: int = 0
    again: int = 0
    latency: float = 0.0
    reason: str = ""

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case RecordsDelivered():
                self.stored += event.records
                self.kinesis_records += event.kinesis_records
                self.latency = max(self.latency, event.latency)
            case RecordsNotDelivered():
                self.failed += event.records
                self.reason = event.detail or event.error_type
            case PutRecordsCalled():
                self.requests += 1
                self.again += event.again
            case _:
                pass

    def as_json(self, seconds: float) -> dict[str, Any]:
        """Return the summary."""
        return {
            "records": self.taken,
            "empty_lines": self.empty_lines,
            "data_bytes": self.data_bytes,
            "stored": self.stored,
            "failed": self.failed,
            "kinesis_records": self.kinesis_records,
            "requests": self.requests,
            "sent_again": self.again,
            "max_latency": round(self.latency, 3),
            "seconds": round(seconds, 3),
        }

    def __str__(self) -> str:
        failed = f", {self.failed:,} failed" if self.failed else ""
        empty = f"; empty lines left out: {self.empty_lines:,}" if self.empty_lines else ""
        return f"{self.taken:,} records put, {self.stored:,} stored{failed}{empty}"


async def put_lines(
    producer: Producer[bytes],
    source: Source,
    parse: Parse,
    progress: PutProgress,
    *,
    whole: bool = False,
    rate: float = math.inf,
) -> None:
    """Put the lines of a source. `rate`: records per second at most. `whole`: all of it is one record.

    Raises UsageError for a line that is no record; the lines before it are put.
    """
    try:
        await _put_lines(producer, source, parse, progress, Lines(whole=whole), rate)
    except UsageError:
        await producer.flush()  # left by an exception, it would send for `close_timeout_seconds` only
        raise


async def _put_lines(
    producer: Producer[bytes], source: Source, parse: Parse, progress: PutProgress, lines: Lines, rate: float
) -> None:
    began = trio.current_time()
    is_open = True
    while is_open:
        # A pipe may have nothing for hours. The thread is left behind when the command is interrupted.
        content = await trio.to_thread.run_sync(source.read, READ_SIZE, abandon_on_cancel=True)
        if content is None:  # another process has set the pipe or the terminal to O_NONBLOCK, and it is empty now
            await trio.lowlevel.wait_readable(source.fileno())
            continue
        is_open = bool(content)
        for number, line in lines.feed(content) if content else lines.end():
            due = began + progress.taken / rate
            if due > trio.current_time() + _SLACK:
                await trio.sleep_until(due)
            record = parse(number, line)
            try:
                await producer.put(*record)
            except ConfigurationError as error:
                raise UsageError(f"line {number}: {reason_of(error)}") from None
            progress.taken += 1
            progress.data_bytes += len(record.data)
        progress.empty_lines = lines.empty
