"""The operations on shards (AWS: Kinesis API reference)."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from efo.testing.errors import invalid_argument, not_found, validation
from efo.testing.operations import requests
from efo.testing.operations.responses import (
    PageToken,
    ResponseBody,
    decode_token,
    encode_token,
    page,
    shard_description,
)
from efo.testing.state.core import Core
from efo.testing.state.retention import trim_horizon
from efo.testing.state.scaling import count_scaling, scale
from efo.testing.state.shards import ShardState
from efo.testing.state.streams import StreamState, parse_hash_key

_MAX_PAGE: Final = 1000
_ID: Final = attrgetter("id")


def list_shards(core: Core, request: requests.ListShards) -> ResponseBody:
    """ListShards."""
    after: str | None
    if request.next_token is not None:
        _check_only_token(request)
        token = decode_token(request.next_token, "ListShards", core.clock())
        stream, shard_filter, after = core.stream(token.stream), token.shard_filter, token.after
    else:
        stream, shard_filter = core.stream(request.stream_name, request.stream_arn), request.shard_filter
        after = request.exclusive_start_shard_id
    _check_listable(core, stream, request.stream_creation_timestamp)
    _check_filter(shard_filter)
    listed = filtered(core, stream, shard_filter)
    shards, more = page(listed, _ID, after, request.max_results, _MAX_PAGE)
    response: dict[str, Any] = {"Shards": [shard_description(shard) for shard in shards]}
    if more:
        token = PageToken("ListShards", shards[-1].id, core.clock(), stream.name, shard_filter)
        response["NextToken"] = encode_token(token)
    return response


def filtered(core: Core, stream: StreamState, shard_filter: requests.ShardFilter | None) -> list[ShardState]:
    """Return the listed shards that match the filter."""
    horizon = trim_horizon(stream, core.clock())
    return [shard for shard in core.listing(stream) if shard_filter is None or _matches(shard, shard_filter, horizon)]


def _check_only_token(request: requests.ListShards) -> None:
    for field in ("stream_name", "stream_arn", "exclusive_start_shard_id", "shard_filter", "stream_creation_timestamp"):
        if getattr(request, field) is not None:
            raise invalid_argument(f"NextToken and {field} cannot be provided together")


def _check_listable(core: Core, stream: StreamState, created_at: float | None) -> None:
    core.check_status(stream, "ACTIVE", "UPDATING")
    if created_at is not None and created_at != stream.created_at:
        raise not_found(f"Stream {stream.name} created at {created_at} not found.")


def _check_filter(shard_filter: requests.ShardFilter | None) -> None:
    """Raise InvalidArgumentException if a member is missing, or not allowed for the type (AWS: ShardFilter)."""
    if shard_filter is None:
        return
    has_id, has_time = shard_filter.type == "AFTER_SHARD_ID", shard_filter.type in {"AT_TIMESTAMP", "FROM_TIMESTAMP"}
    for name, value, expected in (
        ("ShardId", shard_filter.shard_id, has_id),
        ("Timestamp", shard_filter.timestamp, has_time),
    ):
        if (value is not None) != expected:
            verb = "requires" if expected else "does not allow"
            raise invalid_argument(f"ShardFilter {shard_filter.type} {verb} {name}")


def _matches(shard: ShardState, shard_filter: requests.ShardFilter, horizon: float) -> bool:
    """Return whether a shard matches the filter. A time before the trim horizon means the trim horizon."""
    millis = max(shard_filter.timestamp or 0.0, horizon) * 1000
    match shard_filter.type:
        case "FROM_TRIM_HORIZON":
            return True
        case "AT_LATEST":
            return shard.is_open
        case "AFTER_SHARD_ID":
            return shard.id > (shard_filter.shard_id or "")
        case "FROM_TIMESTAMP":
            return shard.closed_at is None or shard.closed_at >= millis
        case "AT_TRIM_HORIZON" | "AT_TIMESTAMP":
            opened = shard.opened_at <= millis if shard.parents else True
            return opened and (shard.closed_at is None or shard.closed_at > millis)


def split_shard(core: Core, request: requests.SplitShard) -> ResponseBody:
    """SplitShard. The stream is UPDATING first, and has its children after that."""
    stream = _reshardable(core, request)
    at = parse_hash_key(request.new_starting_hash_key, "NewStartingHashKey")
    stream.check_split(request.shard_to_split, at)
    core.check_shard_limit(1)
    core.update(stream, lambda millis: stream.split(request.shard_to_split, at, millis))
    return None


def merge_shards(core: Core, request: requests.MergeShards) -> ResponseBody:
    """MergeShards. The stream is UPDATING first, and has its child after that."""
    stream = _reshardable(core, request)
    lower, upper = request.shard_to_merge, request.adjacent_shard_to_merge
    stream.check_merge(lower, upper)
    core.update(stream, lambda millis: stream.merge(lower, upper, millis))
    return None


def update_shard_count(core: Core, request: requests.UpdateShardCount) -> ResponseBody:
    """UpdateShardCount. The stream is UPDATING first, and has all its new shards after that."""
    stream = _reshardable(core, request)
    current, target = len(stream.open_shards), request.target_shard_count
    core.check_shard_limit(target - current)
    count_scaling(stream, target, core.clock())
    core.update(stream, lambda millis: scale(stream, target, millis))
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "CurrentShardCount": current,
        "TargetShardCount": target,
    }


def _reshardable(core: Core, request: requests.StreamReference) -> StreamState:
    stream = core.active_stream(request.stream_name, request.stream_arn)
    if stream.mode == "ON_DEMAND":
        raise validation(f"Stream {stream.name} is in ON_DEMAND mode: only the service can reshard it")
    return stream
