"""An HTTP/2 client connection for SubscribeToShard: many long responses, each with flow control of its own.

The HTTP libraries for Python never reset an abandoned stream. Its late DATA then uses up the connection's window, until
the other streams starve. This connection works as follows (rule R9):

- A stream's window opens only when its reader takes data; the connection's window opens on receipt. A slow reader
  stalls only its own stream, and holds at most one window of bytes.
- An abandoned stream is reset, and DATA that still arrives for it opens the connection's window.
- After GOAWAY the connection accepts no new streams. Streams up to the last stream id go on, and their owners are
  notified.
- A PING without a response in time means that the connection is dead.

One task reads and one task writes, so that a cancelled request can never cut a frame in two.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import h2.events
import h2.exceptions
import trio
from h2.errors import ErrorCodes

from efo.errors import GoAwayError, NotHttp2Error, StreamResetError, TransportError, without_tracebacks
from efo.kinesis.http2 import Http2
from efo.kinesis.response_stream import ResponseStream
from efo.protocol.frame_meter import MAX_STEP, FrameMeter
from efo.protocol.frame_splitter import Data, FrameSplitter, GoAwayFrame
from efo.protocol.native import StreamData
from efo.settings import STREAM_WINDOW
from efo.third_party_errors import reason_of

CONNECTION_WINDOW: Final = 32 * 1024 * 1024
"""Bytes in transit on one connection. It opens on receipt, so that it only has to cover the round trip."""
PING_INTERVAL: Final = 20.0
PING_DEADLINE: Final = 10.0
_READ_SIZE: Final = 256 * 1024
MAX_UNSENT: Final = 128 * 1024
"""With more unsent bytes than this, nothing is read: a peer that does not read our responses must not grow memory."""

_TLS_ALERT: Final = b"\x15"
"""How a TLS server answers what is no TLS (RFC 8446, section 5.1). No frame of HTTP/2 as long as this is allowed."""
_STATUS: Final = re.compile("[1-9][0-9]{2}")

Headers = Sequence[tuple[Any, Any]]
"""Names and values of a request; see hpack's header tuples."""


class Connection:
    """One HTTP/2 client connection over any byte stream. `run` must be running while it is used.

    `address`: the peer's name, for errors. `stream_window`, `connection_window`: bytes. `on_reset`: called with the
    name of the error code when the peer resets a stream.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        address: str,
        stream_window: int = STREAM_WINDOW,
        connection_window: int = CONNECTION_WINDOW,
        on_reset: Callable[[str], None] = lambda _error_code: None,
    ) -> None:
        self.address = address
        self.closed_by: TransportError | None = None
        self._stream = stream
        self._stream_window = stream_window
        self._connection_window = connection_window
        self._on_reset = on_reset
        self._h2 = Http2(stream_window=stream_window, connection_window=connection_window)
        self._streams: dict[int, ResponseStream] = {}
        # Streams with headers and without an end: their DATA does not pass through h2.
        self._data_streams: set[int] = set()
        self._splitter = FrameSplitter(self._data_streams)
        self._meter = FrameMeter(address)
        self._received = 0
        self._draining: TransportError | None = None
        self._outgoing = bytearray()
        self._writer = trio.lowlevel.ParkingLot()  # waits for something to send
        self._sent = trio.lowlevel.ParkingLot()
        self._window_changed = trio.lowlevel.ParkingLot()
        self._heard_at = -math.inf
        self._ready = trio.Event()
        self._scope = trio.CancelScope()

    @property
    def is_usable(self) -> bool:
        """Whether it accepts new requests."""
        return self._ready.is_set() and self._draining is None and self.closed_by is None

    @property
    def is_draining(self) -> bool:
        """Whether the peer has sent GOAWAY."""
        return self._draining is not None

    @property
    def open_streams(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    @property
    def unsent(self) -> int:
        """The number of bytes that are not sent yet, in response to what was received so far."""
        return len(self._outgoing)

    @property
    def capacity(self) -> int:
        """The number of streams that the peer allows to be opened now."""
        if not self.is_usable:
            return 0
        return max(0, self._h2.remote_settings.max_concurrent_streams - len(self._streams))

    async def wait_ready(self) -> None:
        """Wait for the peer's SETTINGS, which prove that it speaks HTTP/2. Raises TransportError."""
        await self._ready.wait()
        if self.closed_by is not None:
            raise self.closed_by

    async def run(self) -> None:
        """Serve the connection until it ends, then close it. Never raises because of the peer.

        `closed_by` has the reason, and every open stream gets that error.
        """
        self._h2.initiate_connection()
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._close_on_error, self._write)
                    nursery.start_soon(self._close_on_error, self._ping)
                    await self._close_on_error(self._read)
        finally:
            self._close(TransportError(f"the connection to {self.address} was closed"))
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await trio.aclose_forcefully(self._stream)

    def close(self) -> None:
        """End the connection, and `run` with it."""
        self._scope.cancel()

    async def request(self, headers: Headers, body: bytes) -> ResponseStream:
        """Send a request and return its response stream. Raises TransportError."""
        self._check_usable()
        try:
            stream_id = self._h2.get_next_available_stream_id()
            self._h2.send_headers(stream_id, headers, end_stream=not body)
        except h2.exceptions.ProtocolError as error:
            raise TransportError(f"the connection to {self.address} accepts no request: {reason_of(error)}") from None
        response = ResponseStream(self, stream_id, self._stream_window)
        self._streams[stream_id] = response
        try:
            await self._send_body(response, body)
        except BaseException:
            self.abandon(response)
            raise
        return response

    def abandon(self, stream: ResponseStream) -> None:
        """Forget a stream, and reset it if it is open. DATA that still arrives for it opens the connection's window."""
        self._data_streams.discard(stream.stream_id)
        if self._streams.pop(stream.stream_id, None) is None or self.closed_by:
            return
        if stream.is_open:
            self._h2.reset_stream(stream.stream_id, ErrorCodes.CANCEL)
            self._writer.unpark_all()
        if self._draining is not None and not self._streams:
            self.close()  # nothing is left to wait for, and the peer may never close the connection

    def open_window(self, stream: ResponseStream, size: int) -> None:
        """Let the peer send this many more bytes on this stream."""
        if self.closed_by is None and stream.stream_id in self._streams:
            self._h2.increment_flow_control_window(size, stream.stream_id)
            self._writer.unpark_all()

    # --- sending ---------------------------------------------------------------------------------------

    async def _send_body(self, response: ResponseStream, body: bytes) -> None:
        stream_id = response.stream_id
        sent = 0
        while sent < len(body):
            if response.is_over:
                return  # the peer needs no more: it has responded already, or the stream failed
            size = min(
                len(body) - sent, self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size
            )
            if size <= 0:
                self._writer.unpark_all()
                await self._window_changed.park()
                continue
            self._h2.send_data(stream_id, body[sent : sent + size], end_stream=sent + size == len(body))
            sent += size
        response.request_sent = True
        self._writer.unpark_all()

    async def _write(self) -> None:
        while True:
            self._outgoing += self._h2.data_to_send()
            if size := len(self._outgoing):
                try:
                    await self._stream.send_all(bytes(self._outgoing))
                except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                    raise self._broken(error) from error
                del self._outgoing[:size]
                self._sent.unpark_all()
            else:
                await self._writer.park()

    async def _ping(self) -> None:
        sent, started = 0, trio.current_time()
        while True:
            quiet_since = max(started, self._heard_at)
            await trio.sleep_until(quiet_since + PING_INTERVAL)
            if self._heard_at > quiet_since:
                continue
            sent += 1
            before = self._heard_at
            self._h2.ping(struct.pack(">Q", sent))
            self._writer.unpark_all()
            await trio.sleep(PING_DEADLINE)
            if self._heard_at == before:
                raise TransportError(f"{self.address} did not respond to a PING within {PING_DEADLINE:g} s")

    # --- receiving -------------------------------------------------------------------------------------

    async def _read(self) -> None:
        now = trio.lowlevel.current_clock().current_time  # a third of the calls of trio.current_time
        while True:
            while len(self._outgoing) > MAX_UNSENT:
                await self._sent.park()
            try:
                data = await self._stream.receive_some(_READ_SIZE)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise self._broken(error) from error
            if not data:
                early = "" if self._ready.is_set() else " before it spoke HTTP/2"
                raise self._draining or TransportError(f"{self.address} closed the connection{early}")
            if not self._ready.is_set() and data.startswith(_TLS_ALERT):
                raise NotHttp2Error(
                    f"{self.address} speaks TLS, but endpoint_url is http://: write https://", speaks_http1=False
                )
            self._heard_at = now()
            await self._receive(data)
            if self._draining is not None and not self._streams:
                raise self._draining

    async def _receive(self, data: bytes | bytearray) -> None:
        """Handle a read in steps of bounded work."""
        at = 0
        while at < len(data):
            if at:
                await self._yield()
            if (split := self._splitter.data_alone(data, at, MAX_STEP)) is None:
                break
            streams, at = split
            self._meter.passed(self._splitter.partial)
            self._receive_data(streams)
        else:
            return
        for number, step in enumerate(self._meter.steps(data[at:], self._heard_at)):
            if number:
                await self._yield()
            self._receive_data(step)

    async def _yield(self) -> None:
        """Let other tasks run before a step of a long read, and wait if the peer does not read our responses."""
        await trio.lowlevel.checkpoint()
        while len(self._outgoing) > MAX_UNSENT:
            await self._sent.park()

    def _receive_data(self, data: bytes | bytearray | memoryview | list[StreamData]) -> None:
        try:
            if isinstance(data, list):
                for stream_id, size, chunks in data:
                    self._on_data(stream_id, size, chunks)
            elif (only := self._splitter.only_data(data)) is not None:
                self._on_data(only.stream_id, len(only.content), (only.content,))
            else:
                self._receive_frames(data)
        except h2.exceptions.ProtocolError as error:
            raise TransportError(f"{self.address} broke the HTTP/2 protocol: {reason_of(error)}") from None
        if self._received * 2 >= self._connection_window:
            self._h2.increment_flow_control_window(self._received)
            self._received = 0
        if replies := self._h2.data_to_send():
            self._outgoing += replies
            self._writer.unpark_all()

    def _receive_frames(self, data: bytes | bytearray | memoryview) -> None:
        for part in self._splitter.receive_data(data):
            match part:
                case Data(stream_id=stream_id, content=content):
                    self._on_data(stream_id, len(content), (content,))
                case GoAwayFrame():
                    self._on_goaway(part)
                case _:
                    self._on_other_frames(part)

    def _on_data(self, stream_id: int, size: int, chunks: Sequence[bytes]) -> None:
        self._h2.receive_split_data(stream_id, size)
        self._received += size
        self._streams[stream_id].on_data(chunks, size, 0)

    def _on_other_frames(self, data: bytes) -> None:
        if not self._ready.is_set() and data.startswith(b"HTTP/"):
            raise NotHttp2Error(
                f"{self.address} speaks HTTP/1: it is not an HTTP/2 endpoint, which SubscribeToShard needs"
            )
        for event in self._h2.receive_data(data):
            self._dispatch(event)
        # Wake senders of bodies: a window may have opened, or the stream may be over.
        self._window_changed.unpark_all()

    def _dispatch(self, event: h2.events.Event) -> None:
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        match event:
            case h2.events.DataReceived(data=data, flow_controlled_length=size):
                self._received += size or 0
                if stream:
                    content = data or b""
                    stream.on_data((content,), len(content), (size or 0) - len(content))
            case h2.events.ResponseReceived(headers=headers) if stream:
                stream.on_headers(self._checked(headers or ()))
                self._data_streams.add(stream.stream_id)
            case h2.events.StreamEnded() if stream:
                self._data_streams.discard(stream.stream_id)
                stream.on_end()
            case h2.events.StreamReset(error_code=code) if stream:
                self._data_streams.discard(stream.stream_id)
                text = f"{self.address} reset the stream: {_name(code or 0)}"
                self._on_reset(_metric_name(code or 0))
                stream.on_error(StreamResetError(text, code=int(code or 0)))
            case h2.events.RemoteSettingsChanged():
                self._ready.set()
            case _:
                pass

    def _checked(self, raw: Iterable[tuple[bytes | str, bytes | str]]) -> dict[str, str]:
        headers = {_text(name): _text(value) for name, value in raw}
        status = headers.get(":status", "")
        if not _STATUS.fullmatch(status):
            raise TransportError(f"{self.address} broke the HTTP/2 protocol: {status!r} is not a status")
        return headers

    def _on_goaway(self, goaway: GoAwayFrame) -> None:
        self._draining = GoAwayError(f"{self.address} sent GOAWAY: {_name(goaway.error_code)}")
        for stream_id, stream in self._streams.items():
            if stream_id > goaway.last_stream_id:
                stream.on_error(self._draining)
            else:
                stream.on_goaway()

    # --- the end ---------------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if error := self.closed_by or self._draining:
            raise error

    def _broken(self, error: BaseException) -> TransportError:
        return TransportError(f"the connection to {self.address} broke: {error.__cause__ or error}")

    async def _close_on_error(self, serve: Callable[[], Awaitable[None]]) -> None:
        try:
            await serve()
        except TransportError as error:
            self._close(error)  # before other tasks run: they must not use a closed h2 connection
            self._scope.cancel()

    def _close(self, error: TransportError) -> None:
        if self.closed_by is not None:
            return
        error = self.closed_by = without_tracebacks(self._draining or error)
        self._ready.set()
        self._window_changed.unpark_all()
        for stream in self._streams.values():
            stream.on_error(error)


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _metric_name(code: int) -> str:
    """Return the name of a code for metrics, of which a peer must not make 2^32 series."""
    return ErrorCodes(code).name if code in set(ErrorCodes) else "unknown"


def _name(code: int) -> str:
    try:
        return ErrorCodes(code).name
    except ValueError:
        return f"error code {code}"
