"""The operations on fan-out consumers, tags and resource policies (AWS: Kinesis API reference)."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

import msgspec

from efo.testing.errors import in_use, invalid_argument, not_found
from efo.testing.operations import requests
from efo.testing.operations.responses import (
    PageToken,
    ResponseBody,
    consumer_description,
    decode_token,
    encode_token,
    page,
)
from efo.testing.state.consumers import ConsumerState
from efo.testing.state.core import Core
from efo.testing.state.streams import StreamState
from efo.testing.state.tags import MAX_TAGS

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


def add_tags_to_stream(core: Core, request: requests.AddTagsToStream) -> ResponseBody:
    """AddTagsToStream."""
    core.stream(request.stream_name, request.stream_arn).tags.add(request.tags)
    return None


def remove_tags_from_stream(core: Core, request: requests.RemoveTagsFromStream) -> ResponseBody:
    """RemoveTagsFromStream."""
    core.stream(request.stream_name, request.stream_arn).tags.remove(request.tag_keys)
    return None


def list_tags_for_stream(core: Core, request: requests.ListTagsForStream) -> ResponseBody:
    """ListTagsForStream."""
    tags = core.stream(request.stream_name, request.stream_arn).tags.listed()
    shown, more = page(tags, lambda tag: tag["Key"], request.exclusive_start_tag_key, request.limit, MAX_TAGS)
    return {"Tags": shown, "HasMoreTags": more}


def tag_resource(core: Core, request: requests.TagResource) -> ResponseBody:
    """TagResource."""
    core.tags(request.resource_arn).add(request.tags)
    return None


def untag_resource(core: Core, request: requests.UntagResource) -> ResponseBody:
    """UntagResource."""
    core.tags(request.resource_arn).remove(request.tag_keys)
    return None


def list_tags_for_resource(core: Core, request: requests.ResourceReference) -> ResponseBody:
    """ListTagsForResource."""
    return {"Tags": core.tags(request.resource_arn).listed()}


_NO_POLICY: Final = "{}"
_STATEMENT: Final = ("Effect", "Principal", "Action")


def put_resource_policy(core: Core, request: requests.PutResourcePolicy) -> ResponseBody:
    """PutResourcePolicy. The stream or the consumer must be ACTIVE."""
    _check(request.policy)
    resource = _resource(core, request.resource_arn)
    if isinstance(resource, StreamState):
        core.check_status(resource, "ACTIVE")
    elif resource.status(core.clock()) != "ACTIVE":
        raise in_use(f"{resource.title} is not in ACTIVE status.")
    resource.policy = request.policy
    return None


def get_resource_policy(core: Core, request: requests.ResourceReference) -> ResponseBody:
    """GetResourcePolicy. Without a policy, an empty one is returned."""
    return {"Policy": _resource(core, request.resource_arn).policy or _NO_POLICY}


def delete_resource_policy(core: Core, request: requests.ResourceReference) -> ResponseBody:
    """DeleteResourcePolicy."""
    resource = _resource(core, request.resource_arn)
    if resource.policy is None:
        raise not_found(f"No resource policy found for resource ARN {request.resource_arn}.")
    resource.policy = None
    return None


def _resource(core: Core, arn: str) -> StreamState | ConsumerState:
    """Return the stream or the consumer with this ARN. Raises ResourceNotFoundException."""
    return core.consumer(arn)[1] if "/consumer/" in arn else core.stream(arn=arn)


def _check(policy: str) -> None:
    """Raise InvalidArgumentException unless the text is a policy: it names principals and actions."""
    try:
        document = msgspec.json.decode(policy)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        document = None
    statements = document.get("Statement") if isinstance(document, dict) else None
    if isinstance(statements, dict):
        statements = [statements]
    if not (isinstance(statements, list) and statements and all(map(_is_statement, statements))):
        raise invalid_argument(
            "The resource policy is invalid: each statement needs an Effect, a Principal and an Action"
        )


def _is_statement(statement: object) -> bool:
    return isinstance(statement, dict) and all(name in statement or f"Not{name}" in statement for name in _STATEMENT)
