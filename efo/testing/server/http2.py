"""The server side of an HTTP/2 connection, over any byte stream.

One task reads, one writes, and each request has a task that sends its response. A response waits for the peer's
flow-control windows and for space in the outbound buffer. So a peer that does not read costs at most one buffer, and
one event per stream.
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

from efo.protocol.frame_splitter import FrameSplitter, GoAwayFrame
from efo.testing.faults.wire import Body, Pause, apply_fault
from efo.testing.server.dispatch import MAX_BODY, Request, Response

Respond = Callable[[Request], Response]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The client's connection preface (RFC 9113, section 3.4)."""

_READ_SIZE: Final = 64 * 1024
_SLICE: Final = 64 * 1024
"""Bytes of a body that are framed before other streams have their turn."""
_MAX_OUTBOUND: Final = 128 * 1024
"""Bytes that may wait for the writer; beyond that, the reader and all responses wait."""
_MAX_BODIES: Final = 4 * MAX_BODY
"""Maximum bytes of all incomplete request bodies of one connection. A body above it is discarded and rejected."""
_CLOSE_TIMEOUT: Final = 1.0
"""Seconds to send the last bytes, for example a GOAWAY."""


class _UnboundedStreams(h2.settings.Settings):
    """Settings that announce a maximum number of streams, without enforcement by h2.

    h2 closes the whole connection if there is one stream too many. A server may refuse only that stream, and a client
    that has not received the settings yet is not wrong (RFC 9113, section 5.1.2).
    """

    @property
    def max_concurrent_streams(self) -> int:
        return 2**31

    @max_concurrent_streams.setter
    def max_concurrent_streams(self, value: int) -> None:
        raise NotImplementedError


class Exchange:
    """One request and its response."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers
        self.body = bytearray()
        self.too_long = False
        self.scope = trio.CancelScope()
        self.window_opened = trio.Event()

    def receive(self, data: bytes, room: int) -> None:
        """Receive a part of the request body. `room`: bytes that the connection may still hold."""
        if len(self.body) + len(data) > MAX_BODY or len(data) > room:
            self.too_long = True
            self.body.clear()
        elif not self.too_long:
            self.body += data

    def request(self) -> Request:
        """Return the complete request, and release its body."""
        method, path = self.headers.get(":method", ""), self.headers.get(":path", "")
        body = None if self.too_long else bytes(self.body)
        self.body.clear()
        return Request(method, path, self.headers, body)


async def serve_http2(
    stream: trio.abc.Stream, respond: Respond, *, max_concurrent_streams: int, received: bytes = b""
) -> None:
    """Serve one connection until either end closes it, then close the stream.

    `received`: bytes that were already read. A protocol error of the peer closes its connection and raises nothing.
    """
    try:
        await ServerConnection(stream, respond, max_concurrent_streams).serve(received)
    finally:
        with trio.move_on_after(_CLOSE_TIMEOUT):
            await stream.aclose()


class ServerConnection:
    """One connection. Its public members are for faults (`efo.testing.faults.wire`).

    `max_streams`: additional streams are refused. `ended`: nothing more is received. `muted`: nothing is sent.
    """

    def __init__(self, stream: trio.abc.Stream, respond: Respond, max_concurrent_streams: int) -> None:
        self.stream = stream
        self._respond = respond
        self.max_streams = max_concurrent_streams
        self._exchanges: dict[int, Exchange] = {}
        self._preface_left = len(PREFACE)
        self._splitter = FrameSplitter()
        self._goaway_received = False  # the peer opens no more streams, but its open streams continue
        self._reading = trio.CancelScope()
        self.ended = False
        self.muted = False
        self._outbound = bytearray()
        self._being_sent = 0  # bytes that the writer is sending
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
            async with trio.open_nursery() as responding:
                await self._read(received, responding)
                responding.cancel_scope.cancel()
            with trio.move_on_after(_CLOSE_TIMEOUT):
                await self.flush()
            writing.cancel_scope.cancel()

    # --- reading -----------------------------------------------------------------------------------------

    async def _read(self, received: bytes, responding: trio.Nursery) -> None:
        """Read until the connection is closed or the peer violates the protocol."""
        data = received
        with self._reading:
            while True:
                try:
                    self._receive(data, responding)
                except h2.exceptions.ProtocolError:
                    self.ended = True  # h2 has prepared a GOAWAY
                self.emit()
                if self.ended or (self._goaway_received and not self._exchanges):
                    return
                await self._wait_for_room()
                try:
                    data = bytes(await self.stream.receive_some(_READ_SIZE))
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
                if not data:
                    return

    def _receive(self, data: bytes, responding: trio.Nursery) -> None:
        """Process received bytes: first the preface, which is not a frame, then frames. Raises h2's ProtocolError."""
        preface, data = data[: self._preface_left], data[self._preface_left :]
        self._preface_left -= len(preface)
        for piece in (preface, *self._splitter.receive_data(data)):
            if isinstance(piece, GoAwayFrame):
                self._goaway_received = True
                self.ended = self.ended or piece.error_code != ErrorCodes.NO_ERROR
            elif isinstance(piece, bytes) and piece:
                for event in self.h2.receive_data(piece):
                    self._handle(event, responding)

    def _handle(self, event: h2.events.Event, responding: trio.Nursery) -> None:
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
                    responding.start_soon(self._exchange, stream_id, exchange)
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
        """Wake the response that waits for this stream's window; 0: all responses, for the connection window."""
        for key in (stream_id,) if stream_id else tuple(self._exchanges):
            if exchange := self._exchanges.get(key):
                exchange.window_opened.set()

    # --- responding --------------------------------------------------------------------------------------

    async def _exchange(self, stream_id: int, exchange: Exchange) -> None:
        """Respond to one request. A reset of the stream cancels it."""
        with exchange.scope:
            await trio.lowlevel.checkpoint()  # the stream may already be reset
            response = self._respond(exchange.request())
            try:
                await trio.sleep(response.delay)
                self.h2.send_headers(stream_id, [(":status", str(response.status)), *response.headers])
                self.emit()
                if await self._send_body(stream_id, exchange, response.body):
                    self.h2.end_stream(stream_id)
            except h2.exceptions.ProtocolError:
                # Expected only if the stream or the connection ended just before this task ran.
                if not (exchange.scope.cancel_called or self.ended):
                    raise
            finally:
                if not isinstance(response.body, bytes):
                    response.body.close()
                self._exchanges.pop(stream_id, None)
            self.emit()
            if self._goaway_received and not self._exchanges:
                self._reading.cancel()

    async def _send_body(self, stream_id: int, exchange: Exchange, body: bytes | Body) -> bool:
        """Send the body. Return whether the stream is still open and must be ended."""
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
                    if not await apply_fault(fault, self, stream_id):
                        return False
        return True

    async def _send(self, stream_id: int, exchange: Exchange, data: bytes) -> None:
        at = 0
        while at < len(data):
            self.emit()
            await self._wait_for_room()
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
        """Pass the bytes that h2 wants to send to the writer."""
        if data := self.h2.data_to_send():
            self.emit_raw(data)

    def emit_raw(self, data: bytes) -> None:
        """Pass bytes to the writer without h2."""
        self._outbound += data
        self._work.set()

    async def flush(self) -> None:
        """Wait until the writer has sent everything."""
        await self._wait_for_room(1)

    async def _wait_for_room(self, limit: int = _MAX_OUTBOUND) -> None:
        """Wait until fewer than `limit` bytes are not sent yet. Always execute a checkpoint."""
        await trio.lowlevel.checkpoint()
        while len(self._outbound) + self._being_sent >= limit:
            if self._written.is_set():
                self._written = trio.Event()
            await self._written.wait()

    async def _write(self, connection: trio.CancelScope) -> None:
        """Send the emitted bytes. This is the only task that sends; only the end of the connection cancels it."""
        while True:
            if not self._outbound:
                self._work = trio.Event()
                await self._work.wait()
            data, self._outbound = self._outbound, bytearray()
            self._being_sent = len(data)
            try:
                if not self.muted:
                    await self.stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                connection.cancel()
                return
            self._being_sent = 0
            self._written.set()


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
