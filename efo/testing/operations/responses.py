"""What responses have: streams, shards, fan-out consumers, and pages of lists with their tokens."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from efo.testing.errors import FakeError, invalid_argument, validation
from efo.testing.operations.requests import ShardFilter
from efo.testing.state.consumers import ConsumerState
from efo.testing.state.shards import ShardState
from efo.testing.state.streams import StreamState

ResponseBody = dict[str, Any] | None
"""The members of a response body; None for an empty body."""


def stream_summary(stream: StreamState, now: float) -> dict[str, Any]:
    """Return a stream as in ListStreams (AWS: StreamSummary)."""
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status(now),
        "StreamModeDetails": {"StreamMode": stream.mode},
        "StreamCreationTimestamp": stream.created_at,
    }


def stream_description(stream: StreamState, now: float) -> dict[str, Any]:
    """Return the members that DescribeStream and DescribeStreamSummary have in common."""
    description = stream_summary(stream, now) | {
        "RetentionPeriodHours": round(stream.retention_hours),
        "EnhancedMonitoring": [{"ShardLevelMetrics": sorted(stream.metrics)}],
        "EncryptionType": stream.encryption.type,
    }
    return description if stream.encryption.key_id is None else description | {"KeyId": stream.encryption.key_id}


def shard_description(shard: ShardState) -> dict[str, Any]:
    """Return a shard as in ListShards (AWS: Shard)."""
    numbers = {"StartingSequenceNumber": shard.starting_number}
    if shard.ending_number is not None:
        numbers["EndingSequenceNumber"] = shard.ending_number
    description: dict[str, Any] = {
        "ShardId": shard.id,
        "HashKeyRange": shard.hash_key_range(),
        "SequenceNumberRange": numbers,
    }
    names = ("ParentShardId", "AdjacentParentShardId")
    return description | dict(zip(names, shard.parents, strict=False))


def consumer_description(consumer: ConsumerState, now: float) -> dict[str, Any]:
    """Return a consumer as in ListStreamConsumers (AWS: Consumer)."""
    return {
        "ConsumerName": consumer.name,
        "ConsumerARN": consumer.arn,
        "ConsumerStatus": consumer.status(now),
        "ConsumerCreationTimestamp": consumer.created_at,
    }


TOKEN_LIFE: Final = 300.0

T = TypeVar("T")


class PageToken(msgspec.Struct, frozen=True):
    """The position of the next page.

    `listing`: the operation. `after`: the last key of the previous page. `issued_at`: seconds since the epoch.
    """

    listing: str
    after: str
    issued_at: float
    stream: str | None = None
    shard_filter: ShardFilter | None = None


def encode_token(token: PageToken) -> str:
    """Return the token as text for the client."""
    return urlsafe_b64encode(msgspec.json.encode(token)).decode()


def decode_token(text: str, listing: str, now: float) -> PageToken:
    """Return the token that the text encodes. Raises InvalidArgumentException, ExpiredNextTokenException.

    `listing`: the operation that received the token.
    """
    try:
        token = msgspec.json.decode(urlsafe_b64decode(text.encode()), type=PageToken)
    except (ValueError, msgspec.DecodeError):
        raise invalid_argument(f"NextToken {text[:100]!r} is invalid") from None
    if token.listing != listing:
        raise invalid_argument(f"NextToken is from {token.listing}, not from {listing}")
    if now - token.issued_at > TOKEN_LIFE:
        raise FakeError("ExpiredNextTokenException", f"NextToken is older than {TOKEN_LIFE:.0f} seconds")
    return token


def page(
    items: Sequence[T], key: Callable[[T], str], after: str | None, limit: int, max_limit: int
) -> tuple[list[T], bool]:
    """Return the page of the sorted items after the key `after`, and whether more items follow.

    The page has at most `limit` and at most `max_limit` items. Raises ValidationException: `limit` is below 1.
    """
    if limit < 1:
        raise validation(f"The limit is {limit}: it must be at least 1")
    rest = [item for item in items if after is None or key(item) > after]
    size = min(limit, max_limit)
    return rest[:size], len(rest) > size
