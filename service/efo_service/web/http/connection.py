"""One connection: a request after the other, each answered by an ASGI app, within limits of time and size."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import h11
import trio
from starlette.types import ASGIApp, Message, Scope

from efo.exception_groups import collapse_groups
from efo_service.web.http.accepting import READ_BYTES, ConnectionSlot
from efo_service.web.http.heads import MAX_BYTES, RequestRefusedError, find_end, read_head

IDLE_SECONDS: Final = 5.0
"""Until the head of a request has arrived, and between two requests of a connection."""
SEND_SECONDS: Final = 10.0
"""For a part of a response, such as an event of the page. A client that takes it more slowly is dropped."""
_PIECE_BYTES: Final = 64 * 1024
"""Of a body, at a time: TLS encrypts and copies a piece in one step."""
_LINGER_SECONDS: Final = 0.5


async def serve_connection(
    app: ASGIApp, stream: trio.abc.Stream, scope: Scope, place: ConnectionSlot, turns: trio.Semaphore
) -> None:
    """Serve requests until either end closes the connection, or it is idle for too long.

    `scope`: what all requests of the connection have in common. `turns`: shared by all connections; a request waits for
    one. Raises what the app raises.
    """
    wire = _Wire(stream)
    try:
        while True:
            place.is_idle = True
            head = await wire.receive_head()
            if head is None:
                break
            place.is_idle = False
            async with turns:
                exchange = _Exchange(wire, head)
            with collapse_groups():
                await app(exchange.scope(scope), exchange.receive, exchange.send)
            if not exchange.ends_well():
                await wire.linger()
                break
    except RequestRefusedError as refused:
        with suppress(trio.BrokenResourceError):
            await wire.send([refused.response()])
            await wire.linger()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client is gone
    with trio.move_on_after(SEND_SECONDS):
        await stream.aclose()


class _Wire:
    """The stream, and what has arrived of it but is not read yet. Raises what the stream raises."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.received = b""

    async def receive_head(self) -> bytes | None:
        """Return the next head; None: the client closed the connection or sends nothing. Raises RequestRefusedError."""
        with trio.move_on_after(IDLE_SECONDS):
            while (end := find_end(self.received)) is None:
                data = await self._stream.receive_some(READ_BYTES)
                if not data:
                    return None
                self.received += data
            head, self.received = self.received[:end], self.received[end:]
            return head
        if self.received:
            raise RequestRefusedError(HTTPStatus.REQUEST_TIMEOUT, f"the head did not arrive within {IDLE_SECONDS:g} s")
        return None

    async def receive(self) -> bytes:
        """Return what has arrived; empty at the end."""
        if self.received:
            data, self.received = self.received, b""
            return data
        return bytes(await self._stream.receive_some(READ_BYTES))

    def give_back(self, data: bytes) -> None:
        """Keep what follows a body: it is the next request."""
        self.received = data + self.received

    async def wait_until_gone(self) -> None:
        """Wait until the client closes the connection, or sends more than a next request while it waits."""
        with suppress(trio.BrokenResourceError):
            while len(self.received) <= MAX_BYTES and (data := await self._stream.receive_some(READ_BYTES)):
                self.received += data

    async def send(self, pieces: Iterable[bytes]) -> None:
        """Send all; the client has to take it within SEND_SECONDS. Raises trio.BrokenResourceError."""
        with trio.move_on_after(SEND_SECONDS) as sending:
            for piece in pieces:
                view = memoryview(piece)
                for start in range(0, len(view), _PIECE_BYTES):
                    await self._stream.send_all(view[start : start + _PIECE_BYTES])
        if sending.cancelled_caught:
            raise trio.BrokenResourceError(f"the client did not take the data within {SEND_SECONDS:g} s")

    async def linger(self) -> None:
        """Say that nothing more comes, and read on a little: bytes that nobody read would reset the connection.

        And a client that is reset may lose the response before it has read it.
        """
        if not isinstance(self._stream, trio.abc.HalfCloseableStream):
            return
        with trio.move_on_after(_LINGER_SECONDS):
            await self._stream.send_eof()
            while await self._stream.receive_some(READ_BYTES):
                pass


class _Exchange:
    """One request and its response: scope, `receive` and `send` of ASGI. Raises RequestRefusedError for a wrong one."""

    def __init__(self, wire: _Wire, head: bytes) -> None:
        self._wire = wire
        self._http, self._request = read_head(head)
        self._response: h11.Response | None = None  # until its body begins

    def scope(self, base: Scope) -> Scope:
        """Return the request as ASGI has it."""
        path, _, query = self._request.target.partition(b"?")
        return {
            **base,
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self._request.http_version.decode(),
            "method": self._request.method.decode(),
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": [*self._request.headers],
        }

    async def receive(self) -> Message:
        """Return the next part of the request's body; after it, wait until the client is gone."""
        if self._http.their_state is not h11.SEND_BODY:
            await self._wire.wait_until_gone()
            return {"type": "http.disconnect"}
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._wire.receive())
        except (h11.RemoteProtocolError, trio.BrokenResourceError):
            return {"type": "http.disconnect"}  # the body is cut off, or its chunks are none
        if isinstance(event, h11.Data):
            return {"type": "http.request", "body": bytes(event.data), "more_body": True}
        self._wire.give_back(self._http.trailing_data[0])
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Message) -> None:
        """Send a part of the response. Raises trio.BrokenResourceError if the client does not take it."""
        if message["type"] == "http.response.start":
            date = (b"date", formatdate(usegmt=True).encode())
            self._response = h11.Response(
                status_code=message["status"], headers=[*message.get("headers", ()), date], reason=b""
            )
            return
        events: list[h11.Event] = []
        if self._response is not None:
            events.append(self._response)
            self._response = None
        if (body := message.get("body", b"")) and self._request.method != b"HEAD":
            events.append(h11.Data(data=body))
        if not message.get("more_body", False):
            events.append(h11.EndOfMessage())
        await self._send(*events)

    def ends_well(self) -> bool:
        """Return whether the response is complete, and another request may follow on the connection."""
        if self._http.their_state is h11.SEND_BODY and self._http.our_state is h11.DONE:
            with suppress(h11.RemoteProtocolError):
                self._http.next_event()  # the end of a body of no length
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _send(self, *events: h11.Event) -> None:
        """Send the events at once: the head with the first part of the body."""
        pieces = [piece for event in events for piece in self._http.send_with_data_passthrough(event) or ()]
        if sum(map(len, pieces)) <= _PIECE_BYTES:
            pieces = [b"".join(pieces)]
        await self._wire.send(pieces)
