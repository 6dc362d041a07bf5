"""Records that have many values: JSON lines, JSON arrays, and the batches of CloudWatch Logs.

The value of such a record is a sequence, or has one. So a handler gets all values of a record together, and the record
is acked, retried, skipped or dead-lettered as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar, overload

import msgspec

from efo.checks import check_callable, check_count
from efo.deserializers.base import Deserializer, refused, text, with_data
from efo.deserializers.compressed import MAX_SIZE, gzip, unpacked, zstd
from efo.deserializers.json_bounds import MAX_VALUES, Facts, JsonBounds, facts_of
from efo.deserializers.json_data import check_kind, name_of_kind, safe_reason
from efo.deserializers.schemas import confluent, glue
from efo.model import Record

T = TypeVar("T")

MAX_EVENTS: Final = 50_000
"""The default of `max_values` of `cloudwatch_logs`: each log event is a value, and a call of the inner deserializer."""


@overload
def json_lines(kind: type[T], *, strict: bool = True, max_values: int = MAX_VALUES) -> Deserializer[list[T]]: ...
@overload
def json_lines(kind: Any = Any, *, strict: bool = True, max_values: int = MAX_VALUES) -> Deserializer[list[Any]]: ...
def json_lines(kind: Any = Any, *, strict: bool = True, max_values: int = MAX_VALUES) -> Deserializer[list[Any]]:
    """Return a deserializer of JSON lines (NDJSON): one value in each line. Empty lines have none.

    `kind`, `strict`, `max_values`: as for `json`, for all lines of a record together. If one line is wrong, the record
    is; the error says which, `$[2]` for the third value. Raises ConfigurationError.
    """
    check_kind("json_lines", kind)
    check_count("max_values", max_values)
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind, strict=strict)
    bounds = JsonBounds(facts_of(kind), max_values, is_msgspec=True)

    def deserialize(record: Record) -> list[Any]:
        data = record.data
        if len(data) > bounds.small and (problem := bounds.problem(_as_array(data))):
            raise refused(record, problem)
        try:
            return decoder.decode_lines(data)
        except (ValueError, RecursionError) as error:
            raise refused(record, f"not JSON lines that fit {name_of_kind(kind)}: {safe_reason(error)}") from None

    return deserialize


def _as_array(data: bytes) -> bytes:
    """Return JSON lines as an array, for what counts values: a line break outside a text separates two of them."""
    return b"[%s]" % b",".join(line for line in data.split(b"\n") if line.strip())


class LogEvent(msgspec.Struct, Generic[T], frozen=True):
    """One event of CloudWatch Logs. `message`: the value of the inner deserializer. `at`: when it happened, UTC."""

    id: str
    at: datetime
    message: T
    extracted_fields: Mapping[str, Any] = {}


class CloudWatchLogs(msgspec.Struct, Generic[T], frozen=True):
    """What a subscription filter of CloudWatch Logs puts as one record: some events of one log stream.

    Iterate over it for its events. `is_control`: whether CloudWatch only checked that it can write to the stream. Such
    a message has no events.
    """

    owner: str
    log_group: str
    log_stream: str
    subscription_filters: tuple[str, ...]
    events: tuple[LogEvent[T], ...]
    is_control: bool = False

    def __iter__(self) -> Iterator[LogEvent[T]]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    timestamp: int
    message: str
    extracted_fields: dict[str, Any] = {}


class _Message(msgspec.Struct, frozen=True, rename="camel"):
    message_type: str
    log_events: tuple[_Event, ...]
    owner: str = ""
    log_group: str = ""
    log_stream: str = ""
    subscription_filters: tuple[str, ...] = ()


@overload
def cloudwatch_logs(*, max_values: int = MAX_EVENTS) -> Deserializer[CloudWatchLogs[str]]: ...
@overload
def cloudwatch_logs(inner: Deserializer[T], *, max_values: int = MAX_EVENTS) -> Deserializer[CloudWatchLogs[T]]: ...
def cloudwatch_logs(
    inner: Deserializer[Any] | None = None, *, max_values: int = MAX_EVENTS
) -> Deserializer[CloudWatchLogs[Any]]:
    """Return a deserializer of what CloudWatch Logs puts by a subscription filter: `gzip(cloudwatch_logs(json(Line)))`.

    `inner`: gets the message of each event, in UTF-8; by default it is a text. If one message is wrong, the record is.
    `max_values`: as for `json`. Raises ConfigurationError.
    """
    inner = text() if inner is None else inner
    check_callable("inner", inner, "a deserializer", "record")
    check_count("max_values", max_values)
    read = partial(_log_message, JsonBounds(Facts(), max_values, is_msgspec=True))

    def deserialize(record: Record) -> CloudWatchLogs[Any]:
        message = read(record)
        is_control = message.message_type == "CONTROL_MESSAGE"
        events = () if is_control else message.log_events
        values = _spread(record, (event.message.encode() for event in events), inner)
        try:
            return CloudWatchLogs(
                message.owner,
                message.log_group,
                message.log_stream,
                message.subscription_filters,
                tuple(
                    LogEvent(e.id, datetime.fromtimestamp(e.timestamp / 1000, UTC), value, e.extracted_fields)
                    for e, value in zip(events, values, strict=True)
                ),
                is_control,
            )
        except (ValueError, OverflowError, OSError):
            raise refused(record, "not a message of CloudWatch Logs: a timestamp is no time") from None

    return deserialize


def _log_message(bounds: JsonBounds, record: Record) -> _Message:
    if problem := bounds.problem(record.data):
        raise refused(record, problem)
    try:
        message = _LOGS.decode(record.data)
    except (ValueError, RecursionError) as error:
        raise refused(record, f"not a message of CloudWatch Logs: {safe_reason(error)}") from None
    if message.message_type not in ("DATA_MESSAGE", "CONTROL_MESSAGE"):
        raise refused(record, "not a message of CloudWatch Logs: another messageType")
    return message


_LOGS: Final = msgspec.json.Decoder(_Message)


def _spread(record: Record, parts: Iterator[bytes], inner: Deserializer[T]) -> list[T]:
    """Return the values of the parts of a record. What they decompress together is bounded as if they were one."""
    values: list[T] = []
    began = unpacked.size
    for part in parts:
        values.append(inner(with_data(record, part)))
        if unpacked.size - began > MAX_SIZE:
            raise refused(record, f"parts of more than {MAX_SIZE:,} bytes together, without compression")
    return values


# --- layers, for the command line and the pipeline ---------------------------------------------------------------

Layer = Literal[
    "gzip", "gzip_or_plain", "zstd", "zstd_or_plain", "confluent", "glue", "json_lines", "json_array", "cloudwatch_logs"
]
"""What may be around values. The last three have many of them, or none."""
_Parts = Deserializer[Sequence[bytes]]


def unwrapping(layers: Sequence[Layer]) -> _Parts:
    """Return a deserializer that takes layers off, the outermost first, and returns the bytes of all values.

    Raises MissingExtraError, and KeyError for what is no layer.
    """
    reader: _Parts = _itself
    for layer in reversed(layers):
        reader = _SPLITS[layer](reader) if layer in _SPLITS else _WRAPS[layer](reader)
    return reader


def has_many(layers: Sequence[Layer]) -> bool:
    """Return whether a record may have another number of values than one."""
    return any(layer in _SPLITS for layer in layers)


def _itself(record: Record) -> Sequence[bytes]:
    return (record.data,)


def _lines(record: Record) -> Iterator[bytes]:
    _check_parts(record, record.data.count(b"\n"))
    return (line for each in record.data.split(b"\n") if (line := each.strip()))


def _elements(record: Record) -> Iterator[bytes]:
    _check_parts(record, record.data.count(b","))
    try:
        return map(bytes, _ARRAY.decode(record.data))
    except (ValueError, RecursionError) as error:
        raise refused(record, f"not a JSON array: {safe_reason(error)}") from None


_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_LOG_BOUNDS: Final = JsonBounds(Facts(), MAX_EVENTS, is_msgspec=True)


def _messages(record: Record) -> Iterator[bytes]:
    message = _log_message(_LOG_BOUNDS, record)
    events = () if message.message_type == "CONTROL_MESSAGE" else message.log_events
    return (event.message.encode() for event in events)


def _check_parts(record: Record, most: int) -> None:
    if most > MAX_VALUES:
        raise refused(record, f"more than {MAX_VALUES:,} values")


def _splitting(split: Callable[[Record], Iterator[bytes]]) -> Callable[[_Parts], _Parts]:
    def wrap(inner: _Parts) -> _Parts:
        return lambda record: [part for parts in _spread(record, split(record), inner) for part in parts]

    return wrap


_SPLITS: Final[Mapping[str, Callable[[_Parts], _Parts]]] = {
    "json_lines": _splitting(_lines),
    "json_array": _splitting(_elements),
    "cloudwatch_logs": _splitting(_messages),
}
_WRAPS: Final[Mapping[str, Callable[[_Parts], _Parts]]] = {
    "gzip": gzip,
    "gzip_or_plain": partial(gzip, or_plain=True),
    "zstd": zstd,
    "zstd_or_plain": partial(zstd, or_plain=True),
    "confluent": confluent,
    "glue": glue,
}
