"""The operations on resource policies (AWS: Kinesis API reference). The fake keeps policies; none denies access."""

from __future__ import annotations

from typing import Final

import msgspec

from efo.testing.errors import in_use, invalid_argument, not_found
from efo.testing.operations import requests
from efo.testing.operations.responses import ResponseBody
from efo.testing.state.consumers import ConsumerState
from efo.testing.state.core import Core
from efo.testing.state.streams import StreamState

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
