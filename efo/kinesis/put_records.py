"""Calls of PutRecords: the request, and a result for each of its records (AWS: PutRecords)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from efo.errors import ProtocolError
from efo.kinesis.service_call import ServiceCaller
from efo.third_party_errors import reason_of

OPERATION: Final = "PutRecords"
TIMEOUT: Final = 30.0
"""Seconds for a request with its response; the response must begin within 20 s."""


class PutRecordsEntry(msgspec.Struct, frozen=True, gc=False, rename="pascal", omit_defaults=True):
    """A record of a request (AWS: PutRecordsRequestEntry)."""

    data: bytes
    partition_key: str | None = None
    explicit_hash_key: str | None = None


class PutRecordsResult(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The result for a record (AWS: PutRecordsResultEntry): where it was stored, or why it was not."""

    shard_id: str | None = None
    sequence_number: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class _Request(msgspec.Struct, frozen=True, rename="pascal"):
    records: Sequence[PutRecordsEntry]
    stream_arn: str = msgspec.field(name="StreamARN")


class _Response(msgspec.Struct, frozen=True, rename="pascal"):
    records: list[PutRecordsResult]


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Response)


class PutRecordsCaller:
    """Calls PutRecords for one stream, by its ARN."""

    def __init__(self, service: ServiceCaller, stream_arn: str) -> None:
        self._service = service
        self._stream_arn = stream_arn

    async def call(self, entries: Sequence[PutRecordsEntry]) -> Sequence[PutRecordsResult]:
        """Put records; return a result for each, in their order. Raises TransportError, ProtocolError, ServiceError."""
        body = _ENCODER.encode(_Request(entries, self._stream_arn))
        response, _ = await self._service.respond(OPERATION, body, TIMEOUT)
        try:
            results = _DECODER.decode(response).records
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"the response to {OPERATION} cannot be parsed: {reason_of(error)}") from None
        if len(results) != len(entries):
            raise ProtocolError(f"the response to {OPERATION} has {len(results)} results for {len(entries)} records")
        return results
