"""Calls operations by HTTP/2 without any check of its own, and keeps each response under a label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import trio

from efo.errors import EfoError
from efo.kinesis.client import Sign
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.response_stream import ResponseStream
from efo.protocol.eventstream import EventStreamDecoder, EventStreamMessage
from proofs.interop.comparison.comparison import Observation

_TARGET: Final = "Kinesis_20131202."
_JSON: Final = "application/x-amz-json-1.1"
_OK: Final = 200
_CALL_TIMEOUT: Final = 30.0
_EVENTS_TIMEOUT: Final = 20.0
_ATTEMPTS: Final = 20
_BACKOFF: Final = 1.0
_TRACED_HEADERS: Final = ("x-amzn-requestid", "x-amz-id-2")


class Caller:
    """Calls one endpoint. `observations`: what it answered, by label.

    `clock` returns its time, seconds since the epoch.
    """

    def __init__(
        self, pool: ConnectionPool, sign: Sign, *, authority: str, scheme: str, clock: Callable[[], float]
    ) -> None:
        self.observations: dict[str, Observation] = {}
        self.clock = clock
        self._pool = pool
        self._sign = sign
        self._pseudo_headers = ((":method", "POST"), (":scheme", scheme), (":authority", authority), (":path", "/"))

    async def call(self, label: str, operation: str, **members: Any) -> dict[str, Any]:
        """Call an operation, and keep its response under this label. Return the members of the response."""
        return await self.send(label, operation, msgspec.json.encode(members))

    async def send(self, label: str, operation: str, body: bytes) -> dict[str, Any]:
        """Call an operation with these bytes as the body, and keep its response. Return the members of the response."""
        members, observation = await self._exchange(operation, body)
        self.observations[label] = observation
        return members

    async def ask(self, operation: str, **members: Any) -> dict[str, Any]:
        """Call an operation without keeping its response, which is not part of the comparison."""
        return (await self._exchange(operation, msgspec.json.encode(members)))[0]

    async def subscribe(self, label: str, records: int, **members: Any) -> None:
        """Call SubscribeToShard, and keep the response: its messages up to this number of records, or its error.

        Events without records are left out: when they come is not determined. The end of the stream is kept.
        """
        observation = self.observations[label] = {}
        try:
            with trio.fail_after(_EVENTS_TIMEOUT):
                response = await self._open("SubscribeToShard", msgspec.json.encode(members))
                try:
                    await _subscription(response, records, observation)
                finally:
                    response.close()
        except (EfoError, trio.TooSlowError) as error:
            observation["failed"] = type(error).__name__

    async def _exchange(self, operation: str, body: bytes) -> tuple[dict[str, Any], Observation]:
        """Return the members of a response, and all of it. A call that is throttled is repeated."""
        for _ in range(_ATTEMPTS):
            try:
                with trio.fail_after(_CALL_TIMEOUT):
                    response = await self._open(operation, body)
                    try:
                        observation = await _complete(response)
                    finally:
                        response.close()
            except (EfoError, trio.TooSlowError) as error:
                return {}, {"failed": type(error).__name__}
            members = observation["body"] if isinstance(observation["body"], dict) else {}
            throttled = members.get("__type", "").endswith("LimitExceededException")
            if not (throttled and str(members.get("message")).startswith("Rate exceeded")):
                break
            await trio.sleep(_BACKOFF)
        return members, observation

    async def _open(self, operation: str, body: bytes) -> ResponseStream:
        target = _TARGET + operation
        signed = await self._sign(target, body)
        request = [
            *self._pseudo_headers,
            ("content-type", _JSON),
            ("content-length", str(len(body))),
            ("x-amz-target", target),
            *((name.lower(), value) for name, value in signed),
        ]
        response = await self._pool.open(request, body)
        await response.response()
        headers = {name: name in response.headers for name in _TRACED_HEADERS}
        self.observations.setdefault("headers of the first response", headers)
        return response


async def _complete(response: ResponseStream) -> dict[str, Any]:
    body = bytearray()
    while data := await response.receive():
        body += data
    return {"status": response.status, "body": _decoded(bytes(body))}


def _decoded(body: bytes) -> Any:
    """Return a body as JSON; as text if it is none."""
    if not body:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode(errors="replace")


async def _subscription(response: ResponseStream, records: int, observation: Observation) -> None:
    if response.status != _OK:
        observation |= await _complete(response)
        return
    messages: list[dict[str, Any]] = []
    kind = response.headers.get("content-type")
    observation |= {"status": response.status, "content-type": kind, "messages": messages}
    left, decoder = records, EventStreamDecoder()
    while data := await response.receive():
        decoder.receive_data(data)
        for message in decoder.messages():
            event = _event(message)
            count = len(event["payload"].get("Records", ())) if isinstance(event["payload"], dict) else 0
            if count or not _is_idle(event):
                messages.append(event)
            left -= count
        if left <= 0 and records:
            break
    else:
        messages.append({"end": True})


def _event(message: EventStreamMessage) -> dict[str, Any]:
    return {"headers": dict(message.headers), "payload": _decoded(bytes(message.payload))}


def _is_idle(event: dict[str, Any]) -> bool:
    payload = event["payload"]
    return isinstance(payload, dict) and payload.get("Records") == [] and not payload.get("ChildShards")
