"""The parser of SubscribeToShard events: every event that it accepts, the standard library's `json` reads the same.

An input is the payload of an event, of an exception message or of an error response, or the headers of a message.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from efo.errors import EventError, ServiceError
from efo.protocol.eventstream import EventStreamMessage
from efo.protocol.messages import SubscribeToShardEvent, parse_error_response, parse_message
from proofs.fuzz.cursor import Cursor
from proofs.fuzz.frames import EVENT_HEADERS, model_headers
from proofs.fuzz.target import Target, require

_EVENT, _EXCEPTION, _ERROR_RESPONSE, _HEADERS = range(4)
_STATUS: Final = 400
_MAX_DIGITS: Final = 129


def check(data: bytes) -> None:
    """Parse the input, and compare an event with the result of `json`."""
    cursor = Cursor(data)
    match cursor.byte() % 4:
        case 0:
            _check_event(cursor.rest())
        case 1:
            name = cursor.take(cursor.byte()).decode(errors="replace")
            headers = {":message-type": "exception", ":exception-type": name}
            require(
                isinstance(parse_message(EventStreamMessage(headers, cursor.rest())), ServiceError),
                "an exception message is not parsed as an error",
            )
        case 2:
            error = parse_error_response(_STATUS + cursor.byte(), cursor.rest())
            require(bool(error.code), "an error response has no error code")
        case _:
            headers_read = model_headers(cursor.take(cursor.byte()))
            try:
                parsed = parse_message(EventStreamMessage(headers_read or {}, cursor.rest()))
            except EventError:
                return
            require(
                parsed is None or isinstance(parsed, SubscribeToShardEvent | ServiceError),
                "the result is neither an event nor an error",
            )


def _check_event(payload: bytes) -> None:
    try:
        event = parse_message(EventStreamMessage(EVENT_HEADERS, payload))
    except EventError:
        return
    require(isinstance(event, SubscribeToShardEvent), "an event is parsed as another message")
    assert isinstance(event, SubscribeToShardEvent)  # noqa: S101 - for the type checker
    _check_rules(event)
    try:
        # The parser ignores unknown members, so they may have bytes that are not valid UTF-8.
        text = payload.decode(errors="surrogateescape")
        model = json.loads(text, strict=False, parse_int=Decimal, parse_float=Decimal)
    except RecursionError:
        return
    _check_same(event, model)


def _check_rules(event: SubscribeToShardEvent) -> None:
    children = event.child_shards or ()
    require(
        (event.continuation_sequence_number is None) == bool(children),
        "rule R2: an event has either a continuation or children",
    )
    require(all(child.parent_shards for child in children), "a child has no parents")
    numbers = [record.sequence_number for record in event.records]
    numbers += [event.continuation_sequence_number or "0"]
    for number in numbers:
        require(
            number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS,
            "a sequence number is malformed",
        )
        require(int(number) >= 0, "a sequence number is negative")


def _check_same(event: SubscribeToShardEvent, model: Mapping[str, Any]) -> None:
    require(event.continuation_sequence_number == model.get("ContinuationSequenceNumber"), "the continuation differs")
    require(event.millis_behind_latest == model["MillisBehindLatest"], "MillisBehindLatest differs")
    require(len(event.records) == len(model["Records"]), "the number of records differs")
    for record, item in zip(event.records, model["Records"], strict=True):
        require(record.sequence_number == item["SequenceNumber"], "a sequence number differs")
        require(record.partition_key == item.get("PartitionKey"), "a partition key differs")
        require(record.data == base64.b64decode(item["Data"]), "the data of a record differs")
        require(record.encryption_type == item.get("EncryptionType"), "an encryption type differs")
        arrival = float(item.get("ApproximateArrivalTimestamp") or 0)
        require(record.approximate_arrival_timestamp == arrival, "an arrival timestamp differs")
    for child, item in zip(event.child_shards or (), model.get("ChildShards") or (), strict=True):
        keys = item["HashKeyRange"]
        expected = (item["ShardId"], tuple(item["ParentShards"]), keys["StartingHashKey"], keys["EndingHashKey"])
        hash_keys = child.hash_key_range
        parsed = (child.shard_id, child.parent_shards, hash_keys.starting_hash_key, hash_keys.ending_hash_key)
        require(parsed == expected, "a child shard differs")


_RECORD: Final = {
    "SequenceNumber": "49590338271490256608559692538361571095921575989136588898",
    "ApproximateArrivalTimestamp": 1700000000.123,
    "Data": "aGVsbG8=",
    "PartitionKey": "k\u00e9y",
    "EncryptionType": "NONE",
}
_BARE_RECORD: Final = {name: _RECORD[name] for name in ("SequenceNumber", "Data")}
"""Without what a record may lack: a stream that distributes records itself takes them without a key."""
_CHILD: Final = {
    "ShardId": "shardId-000000000001",
    "ParentShards": ["shardId-000000000000"],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "170141183460469231731687303715884105727"},
}


def seeds() -> Iterator[bytes]:
    """Make payloads as Kinesis sends them."""
    continuation = {"ContinuationSequenceNumber": _RECORD["SequenceNumber"]}
    for members in (
        continuation,
        continuation | {"Records": [_RECORD, _RECORD]},
        continuation | {"Records": [_BARE_RECORD, _RECORD | dict.fromkeys(_RECORD.keys() - _BARE_RECORD.keys())]},
        continuation | {"ChildShards": []},
        {"ChildShards": [_CHILD, _CHILD]},
        {"ContinuationSequenceNumber": None, "Records": [_RECORD], "ChildShards": [_CHILD]},
        continuation | {"ChildShards": [_CHILD]},
        {},
    ):
        body: dict[str, Any] = {"Records": [], "MillisBehindLatest": 0} | members
        yield bytes([_EVENT]) + json.dumps(body).encode()
        yield bytes([_EVENT]) + json.dumps(body, ensure_ascii=False).encode()
    name = b"ResourceInUseException"
    yield bytes([_EXCEPTION, len(name)]) + name + b'{"message":"busy"}'
    for response in (b'{"__type":"com.amazonaws.kinesis#LimitExceededException","message":"slow"}', b"<html>", b""):
        yield bytes([_ERROR_RESPONSE, 0]) + response
    for headers in (
        b"\x0d:message-type\x07\0\x05event\x0b:event-type\x07\0\x15SubscribeToShardEvent",
        b"\x0d:message-type\x07\0\x05error\x0b:error-code\x07\0\x0fInternalFailure",
    ):
        yield bytes([_HEADERS, len(headers)]) + headers + b'{"Records":[],"MillisBehindLatest":1}'


TARGET: Final = Target(
    "events",
    "the parser of SubscribeToShard events",
    check,
    seeds,
    dictionary=(
        b'"Records":[', b'"ContinuationSequenceNumber":', b'"ChildShards":[', b'"MillisBehindLatest":', b'"Data":"',
        b'"SequenceNumber":"', b'"PartitionKey":"', b'"ApproximateArrivalTimestamp":', b'"ParentShards":', b"null",
        b"\\ud800", b"1e400", b"-0", b"\xff", b'{"a":', b"[[[[[[[[",
    ),
)  # fmt: skip
