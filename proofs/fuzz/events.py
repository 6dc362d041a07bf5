"""The parser of SubscribeToShard's events: what it accepts, the standard library's JSON reads the same.

An input is the payload of an event, an exception or a refusal, or the headers that say which of them it is.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from efo.errors import EventError, ServiceError
from efo.protocol.eventstream import Message
from efo.protocol.messages import SubscribeToShardEvent, parse, parse_refusal
from proofs.fuzz.cursor import Cursor
from proofs.fuzz.frames import EVENT_HEADERS, model_headers
from proofs.fuzz.target import Target, hold

_EVENT, _EXCEPTION, _REFUSAL, _HEADERS = range(4)
_STATUS: Final = 400
_MOST_DIGITS: Final = 129


def check(data: bytes) -> None:
    """Parse what the input makes, and compare an event with a reading by `json`."""
    cursor = Cursor(data)
    match cursor.byte() % 4:
        case 0:
            _check_event(cursor.rest())
        case 1:
            name = cursor.take(cursor.byte()).decode(errors="replace")
            headers = {":message-type": "exception", ":exception-type": name}
            hold(isinstance(parse(Message(headers, cursor.rest())), ServiceError), "an exception that is no error")
        case 2:
            error = parse_refusal(_STATUS + cursor.byte(), cursor.rest())
            hold(bool(error.code), "a refusal that is no error")
        case _:
            headers_read = model_headers(cursor.take(cursor.byte()))
            try:
                parsed = parse(Message(headers_read or {}, cursor.rest()))
            except EventError:
                return
            hold(parsed is None or isinstance(parsed, SubscribeToShardEvent | ServiceError), "neither event nor error")


def _check_event(payload: bytes) -> None:
    try:
        event = parse(Message(EVENT_HEADERS, payload))
    except EventError:
        return
    hold(isinstance(event, SubscribeToShardEvent), "an event was read as something else")
    assert isinstance(event, SubscribeToShardEvent)  # noqa: S101 - for the type checker
    _check_rules(event)
    try:
        # Bytes that are no UTF-8 may stand where nobody looks: in members that we do not know.
        text = payload.decode(errors="surrogateescape")
        model = json.loads(text, strict=False, parse_int=Decimal, parse_float=Decimal)
    except RecursionError:
        return
    _check_same(event, model)


def _check_rules(event: SubscribeToShardEvent) -> None:
    children = event.child_shards or ()
    hold((event.continuation_sequence_number is None) == bool(children), "rule R2: a continuation, or children")
    hold(all(child.parent_shards for child in children), "a child without parents")
    numbers = [record.sequence_number for record in event.records]
    numbers += [event.continuation_sequence_number or "0"]
    for number in numbers:
        hold(number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS, "a number that is none")
        hold(int(number) >= 0, "a number that is negative")


def _check_same(event: SubscribeToShardEvent, model: Mapping[str, Any]) -> None:
    hold(event.continuation_sequence_number == model.get("ContinuationSequenceNumber"), "another continuation")
    hold(event.millis_behind_latest == model["MillisBehindLatest"], "another delay")
    hold(len(event.records) == len(model["Records"]), "another number of records")
    for record, item in zip(event.records, model["Records"], strict=True):
        hold(record.sequence_number == item["SequenceNumber"], "another sequence number")
        hold(record.partition_key == item["PartitionKey"], "another partition key")
        hold(record.data == base64.b64decode(item["Data"]), "other data")
        hold(record.encryption_type == item.get("EncryptionType"), "another encryption type")
        arrival = float(item.get("ApproximateArrivalTimestamp") or 0)
        hold(record.approximate_arrival_timestamp == arrival, "another time of arrival")
    for child, item in zip(event.child_shards or (), model.get("ChildShards") or (), strict=True):
        keys = item["HashKeyRange"]
        told = (item["ShardId"], tuple(item["ParentShards"]), keys["StartingHashKey"], keys["EndingHashKey"])
        read = child.hash_key_range
        ours = (child.shard_id, child.parent_shards, read.starting_hash_key, read.ending_hash_key)
        hold(ours == told, "another child")


_RECORD: Final = {
    "SequenceNumber": "49590338271490256608559692538361571095921575989136588898",
    "ApproximateArrivalTimestamp": 1700000000.123,
    "Data": "aGVsbG8=",
    "PartitionKey": "k\u00e9y",
    "EncryptionType": "NONE",
}
_CHILD: Final = {
    "ShardId": "shardId-000000000001",
    "ParentShards": ["shardId-000000000000"],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "170141183460469231731687303715884105727"},
}


def seeds() -> Iterator[bytes]:
    """Make payloads as Kinesis sends them."""
    goes_on = {"ContinuationSequenceNumber": _RECORD["SequenceNumber"]}
    for members in (
        goes_on,
        goes_on | {"Records": [_RECORD, _RECORD]},
        goes_on | {"ChildShards": []},
        {"ChildShards": [_CHILD, _CHILD]},
        {"ContinuationSequenceNumber": None, "Records": [_RECORD], "ChildShards": [_CHILD]},
        goes_on | {"ChildShards": [_CHILD]},
        {},
    ):
        body: dict[str, Any] = {"Records": [], "MillisBehindLatest": 0} | members
        yield bytes([_EVENT]) + json.dumps(body).encode()
        yield bytes([_EVENT]) + json.dumps(body, ensure_ascii=False).encode()
    name = b"ResourceInUseException"
    yield bytes([_EXCEPTION, len(name)]) + name + b'{"message":"busy"}'
    for refusal in (b'{"__type":"com.amazonaws.kinesis#LimitExceededException","message":"slow"}', b"<html>", b""):
        yield bytes([_REFUSAL, 0]) + refusal
    for headers in (
        b"\x0d:message-type\x07\0\x05event\x0b:event-type\x07\0\x15SubscribeToShardEvent",
        b"\x0d:message-type\x07\0\x05error\x0b:error-code\x07\0\x0fInternalFailure",
    ):
        yield bytes([_HEADERS, len(headers)]) + headers + b'{"Records":[],"MillisBehindLatest":1}'


TARGET: Final = Target(
    "events",
    "the parser of SubscribeToShard's events",
    check,
    seeds,
    words=(
        b'"Records":[', b'"ContinuationSequenceNumber":', b'"ChildShards":[', b'"MillisBehindLatest":', b'"Data":"',
        b'"SequenceNumber":"', b'"PartitionKey":"', b'"ApproximateArrivalTimestamp":', b'"ParentShards":', b"null",
        b"\\ud800", b"1e400", b"-0", b"\xff", b'{"a":', b"[[[[[[[[",
    ),
)  # fmt: skip
