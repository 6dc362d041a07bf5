"""The two calls of polling: GetShardIterator and GetRecords."""

from __future__ import annotations

from typing import Final

import msgspec

from efo.kinesis.client import Correct, Sign
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.service_call import ServiceCaller
from efo.kinesis.subscribe_call import whole_milliseconds
from efo.model import Position
from efo.protocol.records_page import RecordsPage, parse_iterator, parse_page

MAX_PAGE: Final = 24 * 1024 * 1024
"""The most bytes of a response to GetRecords: 10 MiB of data in base64, and 10,000 long partition keys."""
_MAX_ITERATOR: Final = 64 * 1024


class PollCaller:
    """Calls GetShardIterator and GetRecords for one stream, on efo's own HTTP/2 connections.

    `stream`: the stream's name. `stream_arn`: its ARN, which a stream of another account needs; None: by its name.
    `silence`: the most seconds without a byte of a response (rule R8).
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        sign: Sign,
        authority: str,
        scheme: str,
        stream: str,
        stream_arn: str | None,
        silence: float,
        correct: Correct | None = None,
    ) -> None:
        self._service = ServiceCaller(pool, sign=sign, authority=authority, scheme=scheme, correct=correct)
        self._of_stream = {"StreamName": stream} if stream_arn is None else {"StreamARN": stream_arn}
        self._of_arn = {} if stream_arn is None else {"StreamARN": stream_arn}
        self._silence = silence

    async def get_iterator(self, shard_id: str, position: Position) -> str:
        """Return an iterator at a position of a shard (AWS: GetShardIterator).

        Raises TransportError, ProtocolError, and ServiceError if the service rejects the call.
        """
        request: dict[str, object] = {**self._of_stream, "ShardId": shard_id, "ShardIteratorType": position.type.value}
        if position.sequence_number is not None:
            request["StartingSequenceNumber"] = position.sequence_number
        if position.timestamp is not None:
            request["Timestamp"] = whole_milliseconds(position.timestamp)
        body = msgspec.json.encode(request)
        response, _ = await self._service.fetch("GetShardIterator", body, limit=_MAX_ITERATOR, silence=self._silence)
        return parse_iterator(response)

    async def get_records(self, iterator: str, limit: int) -> tuple[RecordsPage, int]:
        """Return a page of up to `limit` records, and the size of the response in bytes (AWS: GetRecords).

        Raises TransportError, ProtocolError, and ServiceError if the service rejects the call.
        """
        body = msgspec.json.encode({**self._of_arn, "ShardIterator": iterator, "Limit": limit})
        response, _ = await self._service.fetch("GetRecords", body, limit=MAX_PAGE, silence=self._silence)
        return parse_page(response), len(response)
