"""The server side of an HTTP/1.1 connection, for SDKs without HTTP/2: keep-alive, and event streams in chunks.

AWS documents SubscribeToShard only for HTTP/2. But AWS also supports it over HTTP/1.1, and boto3 uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final
from urllib.parse import urlsplit

import h11
import trio

from efo.testing.faults.wire import Body, next_bytes
from efo.testing.server.background import background
from efo.testing.server.dispatch import MAX_BODY, Request, Response

Respond = Callable[[Request], Response]

_READ_SIZE: Final = 64 * 1024
_CLOSE_TIMEOUT: Final = 1.0


async def serve_http1(
    stream: trio.abc.Stream, respond: Respond, bad_request: Callable[[str], Response], *, received: bytes = b""
) -> None:
    """Serve one connection until either end closes it, then close the stream.

    `bad_request` returns the response to data that is not HTTP. `received`: bytes that were already read.
    """
    connection = h11.Connection(h11.SERVER)
    if received:
        connection.receive_data(received)
    try:
        await _serve_requests(connection, stream, respond, bad_request)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the peer has closed the connection
    finally:
        with trio.move_on_after(_CLOSE_TIMEOUT):
            await stream.aclose()


async def _serve_requests(
    connection: h11.Connection, stream: trio.abc.Stream, respond: Respond, bad_request: Callable[[str], Response]
) -> None:
    try:
        while (request := await _next_request(connection, stream)) is not None:
            response = respond(request)
            await trio.sleep(response.delay)
            await _send(connection, stream, response)
            if connection.our_state is not h11.DONE:  # one side does not keep the connection alive
                return
            connection.start_next_cycle()
    except h11.RemoteProtocolError as error:
        if connection.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            await _send(connection, stream, bad_request(f"not a valid HTTP request: {error}"))


async def _next_request(connection: h11.Connection, stream: trio.abc.Stream) -> Request | None:
    """Return the next complete request; None if the peer has closed the connection."""
    head: h11.Request | None = None
    body = bytearray()
    too_long = False
    while True:
        match event := connection.next_event():
            case h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    informational = h11.InformationalResponse(status_code=100, headers=[])
                    await stream.send_all(connection.send(informational) or b"")
                connection.receive_data(bytes(await stream.receive_some(_READ_SIZE)))
            case h11.Request():
                head = event
            case h11.Data():
                too_long = too_long or len(body) + len(event.data) > MAX_BODY
                if too_long:
                    body.clear()
                else:
                    body += event.data
            case h11.EndOfMessage() if head is not None:
                headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
                raw = None if too_long else bytes(body)
                return Request(head.method.decode(), _path(head.target.decode("latin-1")), headers, raw)
            case _:  # ConnectionClosed
                return None


def _path(target: str) -> str:
    """Return the path of a request target. A server must accept the absolute form, too (RFC 9112, section 3.2.2)."""
    return (urlsplit(target).path or "/") if target.startswith(("http://", "https://")) else target


async def _send(connection: h11.Connection, stream: trio.abc.Stream, response: Response) -> None:
    head = h11.Response(status_code=response.status, headers=list(response.headers), reason=b"")
    if not isinstance(response.body, bytes):
        with closing(response.body):
            await stream.send_all(connection.send(head) or b"")
            await _send_chunks(connection, stream, response.body)
        return
    events: tuple[h11.Event, ...] = (head, h11.Data(data=response.body), h11.EndOfMessage())
    await stream.send_all(b"".join(connection.send(event) or b"" for event in events))


async def _send_chunks(connection: h11.Connection, stream: trio.abc.Stream, body: Body) -> None:
    """Send a body of unknown length until it ends or the peer closes the connection."""
    async with background() as nursery:
        nursery.start_soon(_cancel_when_peer_closes, connection, stream, nursery.cancel_scope)
        while (chunk := await next_bytes(body, stream)) is not None:
            await stream.send_all(connection.send(h11.Data(data=chunk)) or b"")
        await stream.send_all(connection.send(h11.EndOfMessage()) or b"")


async def _cancel_when_peer_closes(
    connection: h11.Connection, stream: trio.abc.Stream, sending: trio.CancelScope
) -> None:
    """Cancel `sending` when the peer closes the connection.

    An idle event stream would not notice it. If the peer sends another request instead, h11 keeps its bytes, and the
    connection is no longer watched.
    """
    data = b""
    with suppress(trio.BrokenResourceError):
        data = bytes(await stream.receive_some(_READ_SIZE))
    connection.receive_data(data)
    if not data:
        sending.cancel()
