"""The operations on fan-out consumers (AWS: Kinesis API reference)."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from efo.testing.errors import invalid_argument, not_found
from efo.testing.operations import requests
from efo.testing.operations.paging import PageToken, decode_token, encode_token, page
from efo.testing.operations.responses import ResponseBody, consumer_description
from efo.testing.state.core import Core

_MAX_PAGE: Final = 100
_NAME: Final = attrgetter("name")


def register_stream_consumer(core: Core, request: requests.RegisterStreamConsumer) -> ResponseBody:
    """RegisterStreamConsumer."""
    consumer = core.register(request.stream_arn, request.consumer_name, request.tags)
    return {"Consumer": consumer_description(consumer, core.clock())}


def describe_stream_consumer(core: Core, request: requests.ConsumerReference) -> ResponseBody:
    """DescribeStreamConsumer."""
    stream, consumer = core.consumer(request.consumer_arn, request.stream_arn, request.consumer_name)
    return {"ConsumerDescription": consumer_description(consumer, core.clock()) | {"StreamARN": stream.arn}}


def deregister_stream_consumer(core: Core, request: requests.ConsumerReference) -> ResponseBody:
    """DeregisterStreamConsumer."""
    core.deregister(*core.consumer(request.consumer_arn, request.stream_arn, request.consumer_name))
    return None


def list_stream_consumers(core: Core, request: requests.ListStreamConsumers) -> ResponseBody:
    """ListStreamConsumers."""
    stream, now, created_at = core.stream(arn=request.stream_arn), core.clock(), request.stream_creation_timestamp
    after = None
    if request.next_token is not None:
        if created_at is not None:
            raise invalid_argument("NextToken and StreamCreationTimestamp cannot be provided together")
        after = decode_token(request.next_token, "ListStreamConsumers", now).after
    if created_at is not None and created_at != stream.created_at:
        raise not_found(f"Stream {stream.name} created at {created_at} not found.")
    consumers, more = page(core.consumers(stream).list(now), _NAME, after, request.max_results, _MAX_PAGE)
    response: dict[str, Any] = {"Consumers": [consumer_description(consumer, now) for consumer in consumers]}
    if more:
        response["NextToken"] = encode_token(PageToken("ListStreamConsumers", consumers[-1].name, now))
    return response
