"""The server's end of an HTTP/2 connection that carries a load.

h2 keeps the books, answers SETTINGS and PING, and writes everything but DATA. To let it write DATA too would cost about
as much CPU time as all the rest, TLS and the kernel's work included. So DATA frames are written here, and what they
take is taken from h2's windows: h2 goes on to add what WINDOW_UPDATE and SETTINGS give, and to refuse what breaks the
protocol.
"""

from __future__ import annotations

import ssl
import struct
from typing import Final

import trio

from efo.testing.load.tls import TlsSocket
from efo.testing.server.dispatch import Service
from efo.testing.server.http1 import serve_http1
from efo.testing.server.http2 import Answer, Exchange, ServerConnection
from efo.testing.server.listener import HANDSHAKE_DEADLINE, speaks_http2

_GOODBYE: Final = 1.0
_SLICE: Final = 256 * 1024
"""How much of a stream is framed at a time, before its neighbours have their turn."""
_OUTBOUND: Final = 256 * 1024
"""How many bytes may wait for the writer before every stream waits for it."""
_DATA_HEADER: Final = struct.Struct(">BHBBI")
"""Length (24 bits), type, flags, stream (RFC 9113, section 4.1). DATA is type 0."""


async def serve_load_connection(
    service: Service, context: ssl.SSLContext | None, max_concurrent_streams: int, tcp: trio.SocketStream
) -> None:
    """Serve one connection until either end closes it (an `efo.testing.server.listener.ServeConnection`)."""
    stream: trio.abc.Stream = tcp
    negotiated: str | None = None
    try:
        with trio.fail_after(HANDSHAKE_DEADLINE):
            if context is not None:
                stream = tls = await TlsSocket.accept(tcp, context)
                negotiated = tls.protocol
            http2, received = await speaks_http2(stream, negotiated)
        if http2:
            limit = max_concurrent_streams
            await serve_load_http2(stream, service.answer, max_concurrent_streams=limit, received=received)
        else:
            await serve_http1(stream, service.answer, service.bad_request, received=received)
    except (trio.BrokenResourceError, trio.TooSlowError):
        return
    finally:
        await trio.aclose_forcefully(stream)


async def serve_load_http2(
    stream: trio.abc.Stream, answer: Answer, *, max_concurrent_streams: int, received: bytes = b""
) -> None:
    """Serve one HTTP/2 connection until either end closes it, then close the stream: as `serve_http2`, but faster."""
    try:
        await _LoadConnection(stream, answer, max_concurrent_streams).serve(received)
    finally:
        with trio.move_on_after(_GOODBYE):
            await stream.aclose()


class _LoadConnection(ServerConnection):
    async def _send(self, stream_id: int, exchange: Exchange, data: bytes) -> None:
        view, at = memoryview(data), 0
        while at < len(view):
            await self._room(_OUTBOUND)
            size = min(len(view) - at, self.h2.local_flow_control_window(stream_id), _SLICE)
            if size <= 0:
                exchange.window_opened = trio.Event()
                await exchange.window_opened.wait()
                continue
            self._frame(stream_id, view[at : at + size])
            at += size

    def _frame(self, stream_id: int, data: memoryview) -> None:
        """Write DATA frames; the windows must allow them."""
        self.emit()  # what h2 has written goes first
        size, most = len(data), self.h2.max_outbound_frame_size
        out = self._outbound
        for at in range(0, size, most):
            frame = data[at : at + most]
            out += _DATA_HEADER.pack(len(frame) >> 16, len(frame) & 0xFFFF, 0, 0, stream_id)
            out += frame
        self.h2.outbound_flow_control_window -= size
        self.h2.streams[stream_id].outbound_flow_control_window -= size
        self._work.set()
