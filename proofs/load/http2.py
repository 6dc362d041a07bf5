"""The server side of an HTTP/2 connection that carries a load.

h2 keeps the state of the connection and writes all frames except DATA. Writing DATA with h2 would cost about as much
CPU time as everything else, including TLS and the kernel. So this module writes the DATA frames and subtracts their
size from h2's windows. h2 still adds the increments of WINDOW_UPDATE and SETTINGS, and rejects protocol errors.
"""

from __future__ import annotations

import ssl
import struct
from typing import Final

import trio

from efo.testing.server.dispatch import Service
from efo.testing.server.http1 import serve_http1
from efo.testing.server.http2 import Exchange, Respond, ServerConnection
from efo.testing.server.listener import HANDSHAKE_DEADLINE, detect_http2
from efo.tls import TlsStream

_CLOSE_TIMEOUT: Final = 1.0
_SLICE: Final = 256 * 1024
"""Bytes of a stream that are framed before other streams have their turn."""
_MAX_OUTBOUND: Final = 256 * 1024
"""Bytes that may wait for the writer; beyond that, all streams wait."""
_DATA_HEADER: Final = struct.Struct(">BHBBI")
"""Length (24 bits), type, flags, stream id (RFC 9113, section 4.1). The type of DATA is 0."""


async def serve_load_connection(
    service: Service, context: ssl.SSLContext | None, max_concurrent_streams: int, tcp: trio.SocketStream
) -> None:
    """Serve one connection until either end closes it (an `efo.testing.server.listener.ServeConnection`)."""
    stream: trio.abc.Stream = tcp
    negotiated: str | None = None
    try:
        with trio.fail_after(HANDSHAKE_DEADLINE):
            if context is not None:
                stream = tls = TlsStream(tcp, context, server_side=True)
                await tls.do_handshake()
                negotiated = tls.protocol
            http2, received = await detect_http2(stream, negotiated)
        if http2:
            limit = max_concurrent_streams
            await serve_load_http2(stream, service.respond, max_concurrent_streams=limit, received=received)
        else:
            await serve_http1(stream, service.respond, service.bad_request, received=received)
    except (trio.BrokenResourceError, trio.TooSlowError):
        return
    finally:
        await trio.aclose_forcefully(stream)


async def serve_load_http2(
    stream: trio.abc.Stream, respond: Respond, *, max_concurrent_streams: int, received: bytes = b""
) -> None:
    """Serve one HTTP/2 connection until either end closes it, then close the stream. Faster than `serve_http2`."""
    try:
        await _LoadConnection(stream, respond, max_concurrent_streams).serve(received)
    finally:
        with trio.move_on_after(_CLOSE_TIMEOUT):
            await stream.aclose()


class _LoadConnection(ServerConnection):
    def __init__(self, stream: trio.abc.Stream, respond: Respond, max_concurrent_streams: int) -> None:
        super().__init__(stream, respond, max_concurrent_streams)
        # Streams wait for room in turn. If all were woken for each room, the same few would be first most of the time.
        self._turn = trio.StrictFIFOLock()

    async def _send(self, stream_id: int, exchange: Exchange, data: bytes) -> None:
        view, at = memoryview(data), 0
        while at < len(view):
            async with self._turn:
                await self._wait_for_room(_MAX_OUTBOUND)
                size = min(len(view) - at, self.h2.local_flow_control_window(stream_id), _SLICE)
                if size > 0:
                    self._frame(stream_id, view[at : at + size])
                    at += size
                    continue
                exchange.window_opened = trio.Event()
            await exchange.window_opened.wait()

    def _frame(self, stream_id: int, data: memoryview) -> None:
        """Write DATA frames. The windows must allow them."""
        self.emit()  # frames of h2 first
        size, frame_size = len(data), self.h2.max_outbound_frame_size
        out = self._outbound
        for at in range(0, size, frame_size):
            frame = data[at : at + frame_size]
            out += _DATA_HEADER.pack(len(frame) >> 16, len(frame) & 0xFFFF, 0, 0, stream_id)
            out += frame
        self.h2.outbound_flow_control_window -= size
        self.h2.streams[stream_id].outbound_flow_control_window -= size
        self._work.set()
