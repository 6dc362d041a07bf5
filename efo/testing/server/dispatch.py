"""Dispatch of requests by X-Amz-Target, and error responses, for any HTTP version."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import formatdate
from math import inf
from random import Random
from typing import Any, Final
from uuid import UUID

from efo.testing import sigv4
from efo.testing.errors import FakeError
from efo.testing.faults.injection import FaultInjector, stream_of_consumer
from efo.testing.faults.script import FaultScript
from efo.testing.faults.wire import Body
from efo.testing.operations.requests import SubscribeToShard
from efo.testing.operations.table import OPERATIONS, check_dry_run
from efo.testing.server import encoding as bodies
from efo.testing.server.encoding import CBOR, JSON
from efo.testing.server.shapes import INPUTS
from efo.testing.state.core import Core
from efo.testing.state.subscriptions import Subscriptions

TARGET_PREFIX: Final = "Kinesis_20131202."
EVENT_STREAM: Final = "application/vnd.amazon.eventstream"
_EXTENDED_ID_BYTES: Final = 76
MAX_BODY: Final = 16 * 1024 * 1024
"""Maximum size of a request body in bytes: the 10 MiB of PutRecords, in base64."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `headers`: by name in lower case. `body`: None if it was longer than MAX_BODY."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Response:
    """A response. `headers`: names in lower case, with content-length if the body is bytes.

    `delay`: seconds to wait before sending the response; infinity: it is never sent.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes | Body
    delay: float = 0.0


class Service:
    """The Kinesis API on top of the core.

    `open_body` returns the body of a SubscribeToShard response; a recorder or a replay can replace it.
    """

    def __init__(self, core: Core, subscriptions: Subscriptions, faults: FaultInjector | None = None) -> None:
        self._core = core
        self._subscriptions = subscriptions
        self._faults = faults if faults is not None else FaultInjector(FaultScript(), core.clock)
        self._random = Random(core.settings.seed)
        self.open_body: Callable[[SubscribeToShard, str], Body] = self._open_subscription

    def respond(self, request: Request, *, trusted: bool = False) -> Response:
        """Return the response to a request; errors become error responses.

        `trusted`: the request needs no signature; one that it has is checked.
        """
        kind = JSON
        try:
            kind = bodies.content_type(request.headers)
            return self._dispatch(request, kind, trusted=trusted)
        except FakeError as error:
            message = {"message": error.message} if error.message else {}
            return self._response(error.status, {"__type": error.code} | message, kind)

    def bad_request(self, message: str) -> Response:
        """Return the response to data that is not HTTP."""
        return self._response(400, {"__type": "SerializationException", "message": message}, JSON)

    def _dispatch(self, request: Request, kind: str, *, trusted: bool) -> Response:
        name = _operation(request)
        if request.body is None:
            raise FakeError("RequestEntityTooLargeException", f"The body is larger than {MAX_BODY} bytes", 413)
        is_checked = not trusted or "authorization" in request.headers
        if (credentials := self._core.settings.credentials) is not None and is_checked:
            region, now = self._core.settings.region, self._core.clock()
            sigv4.verify(request.headers, request.body, credentials, region, now)
        if name == "SubscribeToShard":
            if kind == CBOR:  # AWS responds with a 500, too: its event stream is only in JSON
                raise FakeError("InternalFailure", "SubscribeToShard is not served in CBOR", 500)
            return self._subscribe(bodies.decode(request.body, kind, name, SubscribeToShard))
        type_, operation = OPERATIONS[name]
        members = bodies.decode(request.body, kind, name, type_)
        if self._core.settings.throttle:
            self._core.throttle.call(name, _stream_name(members), self._core.clock())
        if (delay := self._faults.call(name)) == inf:
            return Response(200, (), b"", delay)
        check_dry_run(self._core, name, members)
        response = self._response(200, operation(self._core, members), kind)
        return replace(response, body=self._faults.response(name, response.body), delay=delay)

    def _subscribe(self, request: SubscribeToShard) -> Response:
        stream = stream_of_consumer(request.consumer_arn)
        delay = self._faults.call("SubscribeToShard", stream, request.shard_id)
        if delay == inf:
            return Response(200, (), b"", delay)
        check_dry_run(self._core, "SubscribeToShard", request)
        body = self.open_body(request, stream)
        return Response(200, [*self._common_headers(), ("content-type", EVENT_STREAM)], body, delay)

    def _open_subscription(self, request: SubscribeToShard, stream: str) -> Body:
        subscription = self._subscriptions.open(request.consumer_arn, request.shard_id, request.position)
        return self._faults.body(subscription, stream, request.shard_id)

    def _response(self, status: int, members: dict[str, Any] | None, kind: str) -> Response:
        body = b"" if members is None else bodies.encode(members, kind)
        headers = [*self._common_headers(), ("content-type", kind), ("content-length", str(len(body)))]
        return Response(status, headers, body)

    def _common_headers(self) -> list[tuple[str, str]]:
        request_id = UUID(int=self._random.getrandbits(128), version=4)
        return [
            ("x-amzn-requestid", str(request_id)),
            ("x-amz-id-2", b64encode(self._random.randbytes(_EXTENDED_ID_BYTES)).decode()),
            ("date", formatdate(self._core.clock(), usegmt=True)),
        ]


def _operation(request: Request) -> str:
    """Return the name of the requested operation. Raises UnknownOperationException."""
    if request.method != "POST" or request.path != "/":
        raise _unknown_operation()
    target = request.headers.get("x-amz-target", "")
    name = target.removeprefix(TARGET_PREFIX) if target.startswith(TARGET_PREFIX) else ""
    if name not in INPUTS:
        raise _unknown_operation()
    return name


def _unknown_operation() -> FakeError:
    """Return the error, without a message, as on AWS (observed)."""
    return FakeError("UnknownOperationException")


def _stream_name(members: object) -> str:
    """Return the name of the stream in a request, "" if there is none."""
    name: str | None = getattr(members, "stream_name", None)
    arn = getattr(members, "stream_arn", None) or getattr(members, "consumer_arn", None) or ""
    return name if name is not None else stream_of_consumer(arn)
