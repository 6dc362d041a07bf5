"""The messages of KCL's multi-language protocol: one JSON object per line, to and from a child process. Pure.

Source: AWS's documentation of the MultiLangDaemon, and what its clients for Python and Node.js read and write.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from efo.model import Checkpoint, Record

Protocol = Literal[1, 2]
"""1: `shutdown` with a reason, as the clients of KCL 1 know. 2: `leaseLost` and `shardEnded`, of KCL 2 and 3."""

INITIALIZE: Final = "initialize"
PROCESS_RECORDS: Final = "processRecords"
LEASE_LOST: Final = "leaseLost"
SHARD_ENDED: Final = "shardEnded"
SHUTDOWN_REQUESTED: Final = "shutdownRequested"
SHUTDOWN: Final = "shutdown"
_REASONS: Final = {LEASE_LOST: "ZOMBIE", SHARD_ENDED: "TERMINATE"}
"""The reasons of `shutdown`."""


class _Record(msgspec.Struct, frozen=True, gc=False, rename="camel", tag_field="action", tag="record"):
    data: bytes
    partition_key: str | None
    sequence_number: str
    approximate_arrival_timestamp: int
    sub_sequence_number: int


class _ProcessRecords(msgspec.Struct, frozen=True, gc=False, rename="camel", tag_field="action", tag=PROCESS_RECORDS):
    records: list[_Record]
    millis_behind_latest: int


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """The child has done what it was asked. `response_for`: which action; None if it does not say."""

    response_for: str | None


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """The child wants a checkpoint, up to and including a record. None: everything that it was given.

    The values are as the child wrote them, of any scalar type. `field`: the name of the field with the sequence
    number, which the answer must have too: clients of before 2016 say "checkpoint".
    """

    sequence_number: object
    sub_sequence_number: object
    field: str = "sequenceNumber"


def initialize(shard_id: str, checkpoint: Checkpoint) -> bytes:
    """Return the first message: which shard it is, and after which checkpoint it is read."""
    return _line(
        {
            "action": INITIALIZE,
            "shardId": shard_id,
            "sequenceNumber": checkpoint.sequence_number,
            "subSequenceNumber": checkpoint.sub_sequence_number,
        }
    )


def process_records(records: Sequence[Record], millis_behind_latest: int) -> bytes:
    """Return the message with these records, maybe none.

    Their data is in base64. Arrival times are milliseconds since the epoch, 0 if the service did not send one. A record
    without a partition key has null there.
    """
    message = _ProcessRecords(
        [
            _Record(
                record.data,
                record.partition_key,
                record.sequence_number,
                int(record.approximate_arrival_timestamp * 1000 + 0.5),  # a third of the time of `round`
                record.sub_sequence_number,
            )
            for record in records
        ],
        millis_behind_latest,
    )
    encoded = _encode(message)
    return encoded + b"\n" if encoded.isascii() else _line(json.loads(encoded))


def last_action(action: str, protocol: Protocol) -> tuple[str, bytes]:
    """Return how `leaseLost` or `shardEnded` is named in this protocol, and its message."""
    if protocol == 1:
        return SHUTDOWN, _line({"action": SHUTDOWN, "reason": _REASONS[action]})
    return action, _line({"action": action})


def shutdown_requested() -> bytes:
    """Return the message before the lease is given up: the child may checkpoint once more."""
    return _line({"action": SHUTDOWN_REQUESTED})


def checkpointed(request: CheckpointRequest, error: str | None) -> bytes:
    """Return the answer to a request. `error`: the name of KCL's exception; None: it is saved."""
    answer = {
        "action": "checkpoint",
        request.field: request.sequence_number,
        "subSequenceNumber": request.sub_sequence_number,
        "error": error,
    }
    return _line(answer)


def parse(line: bytes) -> StatusMessage | CheckpointRequest | None:
    """Return the message that a line of the child's stdout is; None: it is none, such as what a library prints."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    match message.get("action"):
        case "status":
            action = message.get("responseFor")
            return StatusMessage(action if isinstance(action, str) else None)
        case "checkpoint":
            field = "checkpoint" if "checkpoint" in message else "sequenceNumber"
            return CheckpointRequest(_scalar(message.get(field)), _scalar(message.get("subSequenceNumber")), field)
        case _:
            return None


def _scalar(value: object) -> object:
    """Return a value, which the answer repeats, or "" for one in which values nest, maybe too deep to be written."""
    return "" if isinstance(value, list | dict) else value


_encode: Final = msgspec.json.Encoder().encode


def _line(message: object) -> bytes:
    """Return a message in ASCII: a child may read its stdin in any encoding."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
