"""The operations on tags (AWS: Kinesis API reference)."""

from __future__ import annotations

from efo.testing.operations import requests
from efo.testing.operations.paging import page
from efo.testing.operations.responses import ResponseBody
from efo.testing.state.core import Core
from efo.testing.state.tags import MAX_TAGS


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
