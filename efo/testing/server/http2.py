"""The server's end of an HTTP/2 connection, over any byte stream.

One task reads, one writes, and each request is answered by a task of its own. An answer waits for the peer's
windows and for room in the outbound buffer, so that a peer that does not read costs one buffer and one event
per stream.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import trio
from h2.errors import ErrorCodes

from efo.protocol.goaway import GoAway, GoAwayFilter
from efo.testing.faults.wire import strike
from efo.testing.server.chunks import Body, Pause
from efo.testing.server.dispatch import MAX_BODY, Request, Response

Answer = Callable[[Request], Response]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What an HTTP/2 client sends first (RFC 9113, 3.4)."""

_READ_SIZE: Final = 64 * 1024
_SLICE: Final = 64 * 1024
"""How much of a body is framed at a time, before the neighbours have their turn."""
_OUTBOUND: Final = 128 * 1024
"""How many bytes may wait for the writer before everything else waits for it."""
_MAX_BODIES: Final = 4 * MAX_BODY
"""How many bytes of requests that are not whole yet one connection may hold; a body beyond is dropped, and refused."""
_GOODBYE: Final = 1.0
"""Seconds for the last bytes, GOAWAY among them, to leave."""


class _UnboundedStreams(h2.settings.Settings):
    """Settings that announce a limit of streams but leave it to us to hold.

    h2 ends the whole connection for one stream too many; a server may refuse just that stream, and a client
    that has not seen the settings yet has done nothing wrong (RFC 9113, 5.1.2).
    """

    @property
    def max_concurrent_streams(self) -> int:
        return 2**31

    @max_concurrent_streams.setter
    def max_concurrent_streams(self, value: int) -> None:
        raise NotImplementedError


class Exchange:
    """One request and its answer."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers
        self.body = bytearray()
        self.too_long = False
        self.scope = trio.CancelScope()
        self.window_opened = trio.Event()

    def receive(self, data: bytes, room: int) -> None:
        """Take a part of the request's body; `room` is what the connection may still hold, in bytes."""
        if len(self.body) + len(data) > MAX_BODY or len(data) > room:
            self.too_long = True
            self.body.clear()
        elif not self.too_long:
            self.body += data

    def request(self) -> Request:
        """Return the request, whose body has come whole, and hold the body no more."""
        method, path = self.headers.get(":method", ""), self.headers.get(":path", "")
        body = None if self.too_long else bytes(self.body)
        self.body.clear()
        return Request(method, path, self.headers, body)


async def serve_http2(
    stream: trio.abc.Stream, answer: Answer, *, max_concurrent_streams: int, received: bytes = b""
) -> None:
    """Serve one connection until either end closes it, then close the stream.

    `received`: bytes that were read already. What the peer does wrong ends its connection, never the server.
    """
    try:
        await ServerConnection(stream, answer, max_concurrent_streams).serve(received)
    finally:
        with trio.move_on_after(_GOODBYE):
            await stream.aclose()


class ServerConnection:
    """One connection. Its public parts are for faults (`efo.testing.faults.wire`).

    `max_streams`: more are refused. `over`: nothing is taken from the peer any more. `muted`: nothing is sent to it.
    """

    def __init__(self, stream: trio.abc.Stream, answer: Answer, max_concurrent_streams: int) -> None:
        self.stream = stream
        self._answer = answer
        self.max_streams = max_concurrent_streams
        self._exchanges: dict[int, Exchange] = {}
        self._preface_left = len(PREFACE)
        self._goaways = GoAwayFilter()
        self._peer_leaves = False  # it opens no more streams, but those that are open go on
        self._reading = trio.CancelScope()
        self.over = False
        self.muted = False
        self._outbound = bytearray()
        self._leaving = 0  # bytes that the writer has taken and not yet sent
        self._work = trio.Event()
        self._written = trio.Event()
        config = h2.config.H2Configuration(client_side=False, header_encoding=None)
        self.h2 = h2.connection.H2Connection(config)
        limit = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: max_concurrent_streams}
        self.h2.local_settings = _UnboundedStreams(client=False, initial_values=limit)

    async def serve(self, received: bytes) -> None:
        """Serve until either end closes the connection."""
        self.h2.initiate_connection()
        async with trio.open_nursery() as writing:
            writing.start_soon(self._write, writing.cancel_scope)
            async with trio.open_nursery() as answering:
                await self._read(received, answering)
                answering.cancel_scope.cancel()
            with trio.move_on_after(_GOODBYE):
                await self.flush()
            writing.cancel_scope.cancel()

    # --- reading -----------------------------------------------------------------------------------------

    async def _read(self, received: bytes, answering: trio.Nursery) -> None:
        """Take what the peer sends, until it is gone or broke the protocol."""
        data = received
        with self._reading:
            while True:
                try:
                    self._take(data, answering)
                except h2.exceptions.ProtocolError:
                    self.over = True  # and h2 has a GOAWAY for it
                self.emit()
                if self.over or (self._peer_leaves and not self._exchanges):
                    return
                await self._room()
                try:
                    data = bytes(await self.stream.receive_some(_READ_SIZE))
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
                if not data:
                    return

    def _take(self, data: bytes, answering: trio.Nursery) -> None:
        """Take bytes: the preface, which is no frame, and then frames. Raises ProtocolError of h2."""
        preface, data = data[: self._preface_left], data[self._preface_left :]
        self._preface_left -= len(preface)
        for piece in (preface, *self._goaways.receive_data(data)):
            if isinstance(piece, GoAway):
                self._peer_leaves = True
                self.over = self.over or piece.error_code != ErrorCodes.NO_ERROR
            elif piece:
                for event in self.h2.receive_data(piece):
                    self._handle(event, answering)

    def _handle(self, event: h2.events.Event, answering: trio.Nursery) -> None:
        match event:
            case h2.events.RequestReceived(stream_id=int(stream_id), headers=list(headers)):
                self._open(stream_id, {_text(name): _text(value) for name, value in headers})
            case h2.events.DataReceived(stream_id=int(stream_id)):
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, stream_id)
                if exchange := self._exchanges.get(stream_id):
                    room = _MAX_BODIES - sum(len(other.body) for other in self._exchanges.values())
                    exchange.receive(event.data or b"", room)
            case h2.events.StreamEnded(stream_id=int(stream_id)):
                if exchange := self._exchanges.get(stream_id):
                    answering.start_soon(self._exchange, stream_id, exchange)
            case h2.events.StreamReset(stream_id=int(stream_id)):
                self._reset(stream_id)
            case h2.events.WindowUpdated(stream_id=int(stream_id)):
                self._window_opened(stream_id)
            case h2.events.RemoteSettingsChanged():
                self._window_opened(0)

    def _open(self, stream_id: int, headers: dict[str, str]) -> None:
        if len(self._exchanges) >= self.max_streams:
            self.h2.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
        else:
            self._exchanges[stream_id] = Exchange(headers)

    def _reset(self, stream_id: int) -> None:
        if exchange := self._exchanges.pop(stream_id, None):
            exchange.scope.cancel()

    def _window_opened(self, stream_id: int) -> None:
        """Wake whoever waits for this stream's window; 0 is the connection's, for which all wait."""
        for key in (stream_id,) if stream_id else tuple(self._exchanges):
            if exchange := self._exchanges.get(key):
                exchange.window_opened.set()

    # --- answering ---------------------------------------------------------------------------------------

    async def _exchange(self, stream_id: int, exchange: Exchange) -> None:
        """Answer one request; a reset stream ends it at once."""
        with exchange.scope:
            await trio.lowlevel.checkpoint()  # a reset that is known already ends it here
            response = self._answer(exchange.request())
            try:
                await trio.sleep(response.delay)
                self.h2.send_headers(stream_id, [(":status", str(response.status)), *response.headers])
                self.emit()
                if await self._send_body(stream_id, exchange, response.body):
                    self.h2.end_stream(stream_id)
            except h2.exceptions.ProtocolError:
                # The stream or the connection ended while this task was about to run: nobody is left to hear it.
                if not (exchange.scope.cancel_called or self.over):
                    raise
            finally:
                if not isinstance(response.body, bytes):
                    response.body.close()
                self._exchanges.pop(stream_id, None)
            self.emit()
            if self._peer_leaves and not self._exchanges:
                self._reading.cancel()

    async def _send_body(self, stream_id: int, exchange: Exchange, body: bytes | Body) -> bool:
        """Send the body; return whether the stream is still there to be ended."""
        if isinstance(body, bytes):
            await self._send(stream_id, exchange, body)
            return True
        while (chunk := await body.next_chunk()) is not None:
            match chunk:
                case bytes():
                    await self._send(stream_id, exchange, chunk)
                case Pause(seconds=seconds):
                    await trio.sleep(inf if seconds is None else seconds)
                case fault:
                    if not await strike(fault, self, stream_id):
                        return False
        return True

    async def _send(self, stream_id: int, exchange: Exchange, data: bytes) -> None:
        at = 0
        while at < len(data):
            self.emit()
            await self._room()
            window = self.h2.local_flow_control_window(stream_id)
            if window <= 0:
                exchange.window_opened = trio.Event()
                await exchange.window_opened.wait()
                continue
            end = min(len(data), at + window, at + _SLICE)
            while at < end:
                frame = data[at : min(end, at + self.h2.max_outbound_frame_size)]
                self.h2.send_data(stream_id, frame)
                at += len(frame)
        self.emit()

    # --- writing -----------------------------------------------------------------------------------------

    def emit(self) -> None:
        """Hand to the writer what h2 has to say."""
        if data := self.h2.data_to_send():
            self.emit_raw(data)

    def emit_raw(self, data: bytes) -> None:
        """Hand bytes to the writer that h2 knows nothing of."""
        self._outbound += data
        self._work.set()

    async def flush(self) -> None:
        """Wait until the writer has sent everything."""
        await self._room(1)

    async def _room(self, limit: int = _OUTBOUND) -> None:
        """Wait until fewer than `limit` bytes are on their way out; let the others run in any case."""
        await trio.lowlevel.checkpoint()
        while len(self._outbound) + self._leaving >= limit:
            if self._written.is_set():
                self._written = trio.Event()
            await self._written.wait()

    async def _write(self, connection: trio.CancelScope) -> None:
        """Send what was emitted. It alone writes, and nothing but the connection's end cancels it."""
        while True:
            if not self._outbound:
                self._work = trio.Event()
                await self._work.wait()
            data, self._outbound = self._outbound, bytearray()
            self._leaving = len(data)
            try:
                if not self.muted:
                    await self.stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                connection.cancel()
                return
            self._leaving = 0
            self._written.set()


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
