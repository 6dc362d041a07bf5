"""Requests with DryRun: they are checked and have no effect (AWS: developer guide, dry run).

A key of KMS is not used. Each stream has a limit of its own for them, that all five operations share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from efo.model import Position
from efo.testing.errors import FakeError
from efo.testing.operations import requests
from efo.testing.operations.records import check_put_record, check_put_records
from efo.testing.state.core import Core
from efo.testing.state.iterators import decode_iterator
from efo.testing.state.positions import starting_index
from efo.testing.state.streams import StreamState


def check_dry_run(core: Core, operation: str, request: Any) -> None:
    """Raise DryRunOperationException for a request with DryRun that would succeed, or the error that it would get.

    Raises ThrottlingException for the second one within a second. Do nothing for a request without DryRun.
    """
    if not getattr(request, "dry_run", False):
        return
    stream = _CHECKS[operation](core, request)
    if core.settings.throttle:
        core.throttle.dry_run(stream.name, core.clock())
    raise FakeError(
        "DryRunOperationException",
        f"DryRunOperation validation succeeded while calling {operation} operation.: Request would have succeeded, "
        "but DryRun flag is set.",
    )


def _put_record(core: Core, request: requests.PutRecord) -> StreamState:
    stream = core.data_stream(request.stream_name, request.stream_arn)
    check_put_record(stream, request)
    return stream


def _put_records(core: Core, request: requests.PutRecords) -> StreamState:
    stream = core.data_stream(request.stream_name, request.stream_arn)
    check_put_records(stream, request)
    return stream


def _get_shard_iterator(core: Core, request: requests.GetShardIterator) -> StreamState:
    stream = core.data_stream(request.stream_name, request.stream_arn)
    position = Position(request.shard_iterator_type, request.starting_sequence_number, request.timestamp)
    starting_index(stream.shard(request.shard_id), position, core.clock())
    return stream


def _get_records(core: Core, request: requests.GetRecords) -> StreamState:
    iterator = decode_iterator(request.shard_iterator, core.clock())
    stream = core.data_stream(iterator.stream, request.stream_arn)
    stream.shard(iterator.shard_id)
    return stream


def _subscribe_to_shard(core: Core, request: requests.SubscribeToShard) -> StreamState:
    stream, _consumer = core.consumer(request.consumer_arn)
    starting_index(stream.shard(request.shard_id), request.position, core.clock())
    return stream


_CHECKS: Final[dict[str, Callable[[Core, Any], StreamState]]] = {
    "GetRecords": _get_records,
    "GetShardIterator": _get_shard_iterator,
    "PutRecord": _put_record,
    "PutRecords": _put_records,
    "SubscribeToShard": _subscribe_to_shard,
}
