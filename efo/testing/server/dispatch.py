"""From a request to its response, whatever the HTTP version: dispatch by X-Amz-Target, and AWS's error shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import formatdate
from math import inf
from random import Random
from typing import Any, Final
from uuid import UUID

from efo.testing.errors import FakeError
from efo.testing.faults.injection import Faults, stream_of_consumer
from efo.testing.faults.script import FaultScript
from efo.testing.operations.requests import SubscribeToShard
from efo.testing.operations.table import OPERATIONS
from efo.testing.server import encoding as bodies
from efo.testing.server import sigv4
from efo.testing.server.chunks import Body
from efo.testing.server.encoding import CBOR, JSON
from efo.testing.server.shapes import INPUTS
from efo.testing.state.core import Core
from efo.testing.state.subscriptions import Subscriptions

TARGET_PREFIX: Final = "Kinesis_20131202."
EVENT_STREAM: Final = "application/vnd.amazon.eventstream"
MAX_BODY: Final = 16 * 1024 * 1024
"""The longest body of a request that is read: PutRecords' 10 MiB, in base64."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `headers`: names in lower case. `body` is None where it was longer than MAX_BODY."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Response:
    """A response. `headers`: names in lower case; a body of bytes has its length among them.

    `delay`: seconds before anything of it is sent.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes | Body
    delay: float = 0.0


class Service:
    """The whole API over the core.

    `open_body` opens what SubscribeToShard sends; a recorder or a player may take its place.
    """

    def __init__(self, core: Core, subscriptions: Subscriptions, faults: Faults | None = None) -> None:
        self._core = core
        self._subscriptions = subscriptions
        self._faults = faults if faults is not None else Faults(FaultScript(), core.clock)
        self._random = Random(core.settings.seed)
        self.open_body: Callable[[SubscribeToShard, str], Body] = self._subscribed

    def answer(self, request: Request, *, trusted: bool = False) -> Response:
        """Answer a request. What is wrong with it becomes an answer of AWS's shape.

        `trusted`: the request needs no signature.
        """
        kind = JSON
        try:
            kind = bodies.content_type(request.headers)
            return self._dispatch(request, kind, trusted=trusted)
        except FakeError as error:
            return self._whole(error.status, {"__type": error.code, "message": error.message}, kind)

    def bad_request(self, message: str) -> Response:
        """Answer what is not HTTP."""
        return self._whole(400, {"__type": "SerializationException", "message": message}, JSON)

    def _dispatch(self, request: Request, kind: str, *, trusted: bool) -> Response:
        name = _operation(request)
        if request.body is None:
            raise FakeError("RequestEntityTooLargeException", f"The body is longer than {MAX_BODY} bytes", 413)
        if (credentials := self._core.settings.credentials) is not None and not trusted:
            region, now = self._core.settings.region, self._core.clock()
            sigv4.verify(request.headers, request.body, credentials, region, now)
        if name == "SubscribeToShard":
            if kind == CBOR:  # AWS answers so too: its event stream is JSON only
                raise FakeError("InternalFailure", "SubscribeToShard is not served in CBOR", 500)
            return self._subscribe(bodies.decode(request.body, kind, name, SubscribeToShard))
        type_, operation = OPERATIONS[name]
        members = bodies.decode(request.body, kind, name, type_)
        if self._core.settings.throttle:
            self._core.throttle.call(name, _stream_name(members), self._core.clock())
        _refuse_dry_run(members)
        if (delay := self._faults.call(name)) == inf:
            return Response(200, (), b"", delay)
        return replace(self._whole(200, operation(self._core, members), kind), delay=delay)

    def _subscribe(self, request: SubscribeToShard) -> Response:
        _refuse_dry_run(request)
        stream = stream_of_consumer(request.consumer_arn)
        delay = self._faults.call("SubscribeToShard", stream, request.shard_id)
        if delay == inf:
            return Response(200, (), b"", delay)
        body = self.open_body(request, stream)
        return Response(200, [*self._common_headers(), ("content-type", EVENT_STREAM)], body, delay)

    def _subscribed(self, request: SubscribeToShard, stream: str) -> Body:
        subscription = self._subscriptions.open(request.consumer_arn, request.shard_id, request.position)
        return self._faults.body(subscription, stream, request.shard_id)

    def _whole(self, status: int, members: dict[str, Any] | None, kind: str) -> Response:
        body = b"" if members is None else bodies.encode(members, kind)
        headers = [*self._common_headers(), ("content-type", kind), ("content-length", str(len(body)))]
        return Response(status, headers, body)

    def _common_headers(self) -> list[tuple[str, str]]:
        request_id = UUID(int=self._random.getrandbits(128), version=4)
        return [("x-amzn-requestid", str(request_id)), ("date", formatdate(self._core.clock(), usegmt=True))]


def _operation(request: Request) -> str:
    """Return the name of the operation that is asked for. Raises UnknownOperationException."""
    if request.method != "POST" or request.path != "/":
        raise _unknown_operation(f"{request.method} {request.path}: only POST / is served")
    target = request.headers.get("x-amz-target", "")
    name = target.removeprefix(TARGET_PREFIX) if target.startswith(TARGET_PREFIX) else ""
    if name not in INPUTS:
        raise _unknown_operation(f"X-Amz-Target {target!r} names no operation of this service")
    return name


def _unknown_operation(message: str) -> FakeError:
    return FakeError("UnknownOperationException", message)


def _refuse_dry_run(members: object) -> None:
    """Raise what AWS answers to a request that is only tried, and would have been done."""
    if getattr(members, "dry_run", False):
        raise FakeError("DryRunOperationException", "The request would have succeeded, but DryRun is set")


def _stream_name(members: object) -> str:
    """Return the name of the stream that a request is about, "" where it names none."""
    name: str | None = getattr(members, "stream_name", None)
    arn = getattr(members, "stream_arn", None) or getattr(members, "consumer_arn", None) or ""
    return name if name is not None else stream_of_consumer(arn)
