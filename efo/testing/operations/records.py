"""The operations on records (AWS: Kinesis API reference)."""

from __future__ import annotations

from typing import Any, Final

from efo.model import Position
from efo.testing.errors import FakeError, invalid_argument, not_found
from efo.testing.operations import requests
from efo.testing.operations.responses import ResponseBody
from efo.testing.state.core import Core
from efo.testing.state.positions import ShardIterator, decode_iterator, encode_iterator, starting_index
from efo.testing.state.shards import ShardState, StoredRecord, record_size
from efo.testing.state.streams import StreamState

MAX_REQUEST_BYTES: Final = 10 * 1024 * 1024
"""Maximum size of the data and partition keys of a PutRecords request."""
MAX_RESPONSE_BYTES: Final = 10 * 1024 * 1024
"""Maximum size of the data and partition keys of a GetRecords response."""


def put_record(core: Core, request: requests.PutRecord) -> ResponseBody:
    """PutRecord."""
    stream = core.data_stream(request.stream_name, request.stream_arn)
    check_put_record(stream, request)
    stream.encryption.check()
    shard, record = _put(core, stream, request)
    return {"ShardId": shard.id, "SequenceNumber": record.sequence_number} | _encryption(stream)


def put_records(core: Core, request: requests.PutRecords) -> ResponseBody:
    """PutRecords. An invalid record rejects the whole request; a record above its shard's rate limit fails alone."""
    stream = core.data_stream(request.stream_name, request.stream_arn)
    stream.encryption.check()
    check_put_records(stream, request)
    results: list[dict[str, str]] = []
    failed = 0
    for entry in request.records:
        try:
            shard, record = _put(core, stream, entry)
        except FakeError as error:
            failed += 1
            results.append({"ErrorCode": error.code, "ErrorMessage": error.message})
        else:
            results.append({"ShardId": shard.id, "SequenceNumber": record.sequence_number})
    return {"FailedRecordCount": failed, "Records": results} | _encryption(stream)


def check_put_record(stream: StreamState, request: requests.PutRecord) -> None:
    """Raise FakeError if AWS would reject the request whatever the stream holds."""
    if request.sequence_number_for_ordering is not None and stream.distribution == "AUTO":
        raise invalid_argument(
            "Stream has SERVICE_DEFINED PartitionKey enabled. SequenceNumberForOrdering must not be provided."
        )
    stream.check_record(request.partition_key, request.data, request.explicit_hash_key)


def check_put_records(stream: StreamState, request: requests.PutRecords) -> None:
    """Raise FakeError if AWS would reject the request whatever the stream holds."""
    for number, entry in enumerate(request.records, 1):
        member = f"records.{number}.member.partitionKey"
        stream.check_record(entry.partition_key, entry.data, entry.explicit_hash_key, member)
    if sum(record_size(entry.partition_key, entry.data) for entry in request.records) > MAX_REQUEST_BYTES:
        raise invalid_argument("Records size exceeds 10 MB limit")


def _encryption(stream: StreamState) -> dict[str, str]:
    """Return the encryption type as in the response to a put: missing for a stream without encryption."""
    return {} if (kind := stream.encryption.of_records) is None else {"EncryptionType": kind}


def _put(
    core: Core, stream: StreamState, entry: requests.PutRecord | requests.PutRecordsRequestEntry
) -> tuple[ShardState, StoredRecord]:
    """Put one record. Raises ProvisionedThroughputExceededException if writes are throttled."""
    shard = stream.shard_for(entry.partition_key, entry.data, entry.explicit_hash_key)
    if core.settings.throttle_writes:
        core.throttle.write(f"{stream.name}/{shard.id}", record_size(entry.partition_key, entry.data), core.clock())
    record = shard.append(entry.partition_key, entry.data, core.millis)
    shard.notify()
    return shard, record


def get_shard_iterator(core: Core, request: requests.GetShardIterator) -> ResponseBody:
    """GetShardIterator."""
    stream = core.data_stream(request.stream_name, request.stream_arn)
    shard = stream.shard(request.shard_id)
    position = Position(request.shard_iterator_type, request.starting_sequence_number, request.timestamp)
    index = starting_index(shard, position, core.clock())
    return {"ShardIterator": _iterator(core, stream, shard, index)}


def get_records(core: Core, request: requests.GetRecords) -> ResponseBody:
    """GetRecords. At the end of a closed shard the response has ChildShards and no NextShardIterator."""
    now = core.clock()
    iterator = decode_iterator(request.shard_iterator, now)
    stream = core.data_stream(iterator.stream, request.stream_arn)
    if stream.created_at != iterator.created_at:
        raise not_found(f"The stream {stream.name} of the iterator was deleted")
    shard = stream.shard(iterator.shard_id)
    stream.encryption.check()
    if core.settings.throttle:
        core.throttle.read(f"{stream.name}/{shard.id}", now)
    records = shard.read(iterator.index, request.limit, MAX_RESPONSE_BYTES)
    if core.settings.throttle:
        size = sum(record.size for record in records)
        core.throttle.count_read_bytes(f"{stream.name}/{shard.id}", size, now)
    index = max(iterator.index, shard.trimmed) + len(records)
    response: dict[str, Any] = {"Records": records, "MillisBehindLatest": shard.behind_latest(index, core.millis)}
    if index >= shard.end_index and not shard.is_open:
        return response | {"ChildShards": [child.as_child() for child in shard.children]}
    return response | {"NextShardIterator": _iterator(core, stream, shard, index)}


def _iterator(core: Core, stream: StreamState, shard: ShardState, index: int) -> str:
    return encode_iterator(ShardIterator(stream.name, stream.created_at, shard.id, index, core.clock()))
