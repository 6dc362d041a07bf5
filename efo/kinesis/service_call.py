"""Calls of the service over HTTP/2: signs a request, sends it, and checks the status of its response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

import msgspec
import trio
from hpack import NeverIndexedHeaderTuple

from efo.errors import ProtocolError, ServiceError, SilenceError
from efo.kinesis.client import Correct, Sign
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.response_stream import ResponseStream
from efo.protocol.messages import parse_error_response
from efo.third_party_errors import reason_of

RESPONSE_TIMEOUT: Final = 20.0
"""Seconds from the request to the headers of its response."""
READ_TIMEOUT: Final = 5.0
"""Seconds for a read of the control plane, with its connection."""
MAX_READ: Final = 16 * 1024 * 1024
"""The most bytes of the response to a read. A page of 1,000 shards has 300 kB."""
_PREFIX: Final = "Kinesis_20131202."
_CONTENT_TYPE: Final = "application/x-amz-json-1.1"
_OK: Final = 200
_ERROR_SIZE: Final = 64 * 1024


class ServiceCaller:
    """Calls operations of one endpoint on the connections of a pool. `sign`, `correct`: see KinesisClient."""

    def __init__(
        self, pool: ConnectionPool, *, sign: Sign, authority: str, scheme: str, correct: Correct | None = None
    ) -> None:
        self._pool = pool
        self._sign = sign
        self._correct = correct
        self._pseudo_headers = (
            (":method", "POST"),
            (":scheme", scheme),
            (":authority", authority),
            (":path", "/"),
        )

    async def call(self, operation: str, body: bytes) -> ResponseStream:
        """Call an operation; return its response once the service has accepted it. The caller must close it.

        Raises TransportError, and ServiceError if the service rejects the call.
        """
        response, error = await self._call(operation, body)
        if error is not None and await self._is_corrected(error, response.headers.get("date")):
            response, error = await self._call(operation, body)
        if error is not None:
            raise error
        return response

    async def _is_corrected(self, error: ServiceError, date: str | None) -> bool:
        return self._correct is not None and await self._correct(error, date)

    async def _call(self, operation: str, body: bytes) -> tuple[ResponseStream, ServiceError | None]:
        """Make one call; return its response, closed if it is an error, and the error."""
        target = _PREFIX + operation
        signed = await self._sign(target, body)
        headers = [
            *self._pseudo_headers,
            ("content-type", _CONTENT_TYPE),
            ("content-length", str(len(body))),
            ("x-amz-target", target),
            # Neither end of the connection keeps a secret, and no log of hpack's has it.
            *(NeverIndexedHeaderTuple(name.lower(), value) for name, value in signed),
        ]
        try:
            with trio.fail_after(RESPONSE_TIMEOUT):
                response = await self._pool.open(headers, body)
                try:
                    error = await _error_of(response)
                except BaseException:
                    response.close()
                    raise
        except trio.TooSlowError:
            raise SilenceError(f"no response to {operation} within {RESPONSE_TIMEOUT:g} s") from None
        if error is not None:
            response.close()
        return response, error

    async def fetch(
        self, operation: str, body: bytes, *, limit: int, silence: float = inf
    ) -> tuple[bytes, Mapping[str, str]]:
        """Call an operation; return all of its response, `limit` bytes at most, and the headers.

        `silence`: the most seconds without a byte. Raises TransportError, ProtocolError and ServiceError.
        """
        response = await self.call(operation, body)
        try:
            return await _body(response, limit, silence), response.headers
        finally:
            response.close()

    async def read(self, operation: str, arguments: Mapping[str, object]) -> tuple[dict[str, Any], Mapping[str, str]]:
        """Call an operation that responds with a JSON object; return it and the headers of the response.

        Raises TransportError, ProtocolError and ServiceError.
        """
        body, headers = await self.respond(operation, msgspec.json.encode(arguments), READ_TIMEOUT)
        try:
            return msgspec.json.decode(body, type=dict[str, Any]), headers
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"the response to {operation} is no JSON object: {reason_of(error)}") from None

    async def respond(self, operation: str, body: bytes, timeout: float) -> tuple[bytes, Mapping[str, str]]:  # noqa: ASYNC109 - the error names the operation
        """Call an operation; return the body of its response, and the headers. `timeout`: seconds for all of it.

        Raises TransportError, ProtocolError and ServiceError.
        """
        try:
            with trio.fail_after(timeout):
                return await self.fetch(operation, body, limit=MAX_READ)
        except trio.TooSlowError:
            raise SilenceError(f"no complete response to {operation} within {timeout:g} s") from None


async def _body(response: ResponseStream, limit: int, silence: float) -> bytes:
    chunks: list[bytes] = []
    size = 0
    with trio.move_on_after(silence) as deadline:
        while data := await response.receive():
            deadline.deadline = trio.current_time() + silence
            chunks.append(data)
            if (size := size + len(data)) > limit:
                raise ProtocolError(f"the response has more than {limit} bytes")
    if deadline.cancelled_caught:
        raise SilenceError(f"no byte of the response arrived for {silence:g} s, after {size} bytes")
    return b"".join(chunks)


async def _error_of(response: ResponseStream) -> ServiceError | None:
    """Return the error of a response; None if its status is 200."""
    if await response.response() == _OK:
        return None
    body = b""
    while len(body) < _ERROR_SIZE and (data := await response.receive()):
        body += data
    return parse_error_response(response.status, body)


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
