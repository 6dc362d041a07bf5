"""The records of `efo put`, from lines of text, of JSON, or a whole file; put at a rate, and counted."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import msgspec
import trio

from efo.errors import ConfigurationError
from efo.events import Event, PutRecordsCalled, RecordsDelivered, RecordsNotDelivered
from efo.producer.producer import Producer, ProducerRecord
from efo.text import other_encoding, without_mark
from efo.third_party_errors import reason_of
from efo_service.errors import UsageError
from efo_service.relay.jsonlines import Encoding

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


Format = Literal["lines", "json", "file"]
"""lines: a line is the data of a record. json: a line is what `efo tail --json` writes for one. file: one record."""

MAX_LINE: Final = 16 * 1024 * 1024
"""The most bytes of a line: more than the largest record of Kinesis, 10 MiB, in base64."""

Parse = Callable[[int, bytes], ProducerRecord[bytes]]
"""Makes a record of a line. Takes the line's number, for messages, and the line. Raises UsageError."""


class Lines:
    """Splits what arrives into lines; with `whole`, all of it is one. A line has no line break at its end.

    `empty`: how many were left out, since Kinesis takes no record without data.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._rest = bytearray()
        self._number = 0
        self.empty = 0

    def feed(self, content: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that end in this content, with their numbers. Empty lines are left out. Raises UsageError."""
        self._rest += content
        if not self._whole and b"\n" in content:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            for line in lines:
                yield from self._line(line.removesuffix(b"\r"))
        if len(self._rest) > MAX_LINE:
            what = "the file" if self._whole else f"line {self._number + 1}"
            raise UsageError(f"{what} has more than {MAX_LINE} bytes: no stream accepts such a record")

    def end(self) -> Iterator[tuple[int, bytes]]:
        """Yield the last line, if it did not end with a line break."""
        if self._rest or self._whole:
            yield from self._line(bytes(self._rest))

    def _line(self, line: bytes) -> Iterator[tuple[int, bytes]]:
        self._number += 1
        if self._number == 1 and not self._whole:
            if encoding := other_encoding(line):
                raise UsageError(f"the text is {encoding}: convert it to UTF-8, or send it whole with --format file")
            line = without_mark(line)
        if line:
            yield self._number, line
        else:
            self.empty += 1


def parser(
    form: Format, *, key: str | None, key_field: str | None, encoding: Encoding, other_key: Callable[[], str | None]
) -> Parse:
    """Return a function that makes a record of a line.

    `key`: the partition key of all records. `key_field`: a field of the JSON object in each line that has its key.
    Without both, each record has the key that `other_key` returns. `encoding`: of values in JSON.
    """
    if form == "json":
        return lambda number, line: _from_json(number, line, encoding, key)
    if key_field is not None:
        return lambda number, line: ProducerRecord(line, _field(number, _object(number, line), key_field))
    return lambda _number, line: ProducerRecord(line, other_key() if key is None else key)


def _from_json(number: int, line: bytes, encoding: Encoding, key: str | None) -> ProducerRecord[bytes]:
    members = _object(number, line)
    value = members.get("value")
    if not isinstance(value, str):
        raise UsageError(f'line {number}: expected an object with "value", and "key" where it has one, which are texts')
    explicit = members.get("explicit_hash_key")
    if explicit is not None and not isinstance(explicit, str):
        raise UsageError(f"line {number}: explicit_hash_key is no text of decimal digits")
    own = None if members.get("key") is None else _field(number, members, "key")  # null: it was put without one
    return ProducerRecord(_decoded(number, value, encoding), key or own, explicit)


def _decoded(number: int, value: str, encoding: Encoding) -> bytes:
    if encoding == "utf-8":
        return value.encode(errors="surrogatepass")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise UsageError(f"line {number}: the value is not base64; if it is text, use --encoding utf-8") from None


def _object(number: int, line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except UnicodeDecodeError:
        raise UsageError(f"line {number} is no JSON object: it is not UTF-8 text") from None
    except (msgspec.DecodeError, RecursionError):
        raise UsageError(f"line {number} is no JSON object") from None


def _field(number: int, members: dict[str, Any], name: str) -> str:
    value = members.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise UsageError(f"line {number}: the field {name!r} has no text and no integer, which would be the key")
    return str(value)
