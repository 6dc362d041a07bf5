"""Applies the faults of an HTTP/2 connection. Where h2 refuses to do so, frames are written without h2."""

from __future__ import annotations

import math
import socket
import struct
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

import h2.connection
import h2.settings
import msgspec
import trio
from h2.errors import ErrorCodes
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, WindowUpdateFrame

from efo.protocol import eventstream
from efo.testing.faults.kinds import (
    ChangeSettings,
    GoAway,
    OversizedData,
    Reset,
    Silence,
    TcpCut,
    TlsCut,
    WindowFault,
    WindowOverflow,
    WindowOverrun,
    WireFault,
)
from efo.testing.memory_stream import MemoryStream

_ABORT: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with 0 seconds: closing the socket resets the connection."""
_GARBAGE: Final = b"\x17\x03\x09\xff\xff" + b"no record of TLS " * 4
_LARGEST_INCREMENT: Final = 2**31 - 1
_UNKNOWN_EVENT: Final = {":message-type": "event", ":event-type": "UnknownToAll"}


class FaultableConnection(Protocol):
    """The members of the server's connection that faults use."""

    h2: h2.connection.H2Connection
    stream: trio.abc.Stream
    max_streams: int
    muted: bool

    def emit(self) -> None:
        """Pass the bytes that h2 wants to send to the writer."""
        ...

    def emit_raw(self, data: bytes) -> None:
        """Pass bytes to the writer without h2."""
        ...

    async def flush(self) -> None:
        """Wait until the writer has sent everything."""
        ...


async def apply_fault(fault: WireFault, connection: FaultableConnection, stream_id: int) -> bool:
    """Apply the fault. Return whether the stream continues."""
    match fault:
        case Reset(code=code):
            connection.h2.reset_stream(stream_id, ErrorCodes[code])
            connection.emit()
            return False
        case GoAway():
            return await _go_away(fault, connection)
        case TcpCut() | TlsCut():
            await _cut(fault, connection)
            return False
        case Silence():
            connection.muted = True
        case ChangeSettings():
            _change_settings(fault, connection)
        case _:
            _violate_limits(fault, connection, stream_id)
    return True


async def next_bytes(body: Body, stream: trio.abc.Stream) -> bytes | None:
    """Return the next bytes of a body that is sent without HTTP/2; None at its end.

    A fault that ends the HTTP/2 stream or connection closes `stream`. Other faults of HTTP/2 are ignored.
    """
    while True:
        match await body.next_chunk():
            case Pause(seconds=seconds):
                await trio.sleep(math.inf if seconds is None else seconds)
            case Silence():
                await trio.sleep_forever()
            case Reset() | GoAway(immediate=True) | TcpCut() | TlsCut():
                await trio.aclose_forcefully(stream)
                return None
            case bytes() | None as chunk:
                return chunk
            case _:
                pass


async def _go_away(fault: GoAway, connection: FaultableConnection) -> bool:
    # Not with h2: after its GOAWAY, h2 ends the connection, but a server that drains continues its open streams.
    last = 0 if fault.immediate else connection.h2.highest_inbound_stream_id
    _emit_frames(connection, GoAwayFrame(0, last_stream_id=last, error_code=ErrorCodes[fault.code]))
    if not fault.immediate:
        connection.max_streams = 0
        return True
    await connection.flush()
    await trio.aclose_forcefully(connection.stream)
    return False


async def _cut(fault: TcpCut | TlsCut, connection: FaultableConnection) -> None:
    transport = connection.stream
    if isinstance(fault, TlsCut):
        await connection.flush()
        connection.muted = True  # so that the writer does not send at the same time
    if isinstance(transport, trio.SSLStream):
        transport = transport.transport_stream
    if isinstance(fault, TlsCut):
        if fault.broken_record:
            # Another stream's fault can use the transport at this moment, or the peer can have closed it.
            with suppress(trio.BusyResourceError, trio.BrokenResourceError, trio.ClosedResourceError):
                await transport.send_all(_GARBAGE)
    elif isinstance(transport, MemoryStream):
        transport.cut()
    elif (
        isinstance(transport, trio.SocketStream) and transport.socket.fileno() >= 0
    ):  # another fault may have closed it
        transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    await trio.aclose_forcefully(transport)


def _change_settings(fault: ChangeSettings, connection: FaultableConnection) -> None:
    codes = h2.settings.SettingCodes
    new = {
        codes.INITIAL_WINDOW_SIZE: fault.initial_window_size,
        codes.MAX_CONCURRENT_STREAMS: fault.max_concurrent_streams,
    }
    connection.h2.update_settings({code: value for code, value in new.items() if value is not None})
    connection.emit()
    if fault.max_concurrent_streams is not None:
        connection.max_streams = fault.max_concurrent_streams


def _violate_limits(fault: WindowFault, connection: FaultableConnection, stream_id: int) -> None:
    match fault:
        case WindowOverrun(excess=excess):
            size = max(0, connection.h2.local_flow_control_window(stream_id)) + excess
            _emit_frames(connection, *_data(stream_id, size, connection.h2.max_outbound_frame_size))
        case WindowOverflow():
            _emit_frames(connection, WindowUpdateFrame(0, window_increment=_LARGEST_INCREMENT))
        case OversizedData():
            size = connection.h2.max_outbound_frame_size + 1
            _emit_frames(connection, *_data(stream_id, size, size))


def _data(stream_id: int, size: int, frame_size: int) -> list[Frame]:
    """Return DATA frames with at least `size` bytes: complete messages that every client ignores."""
    message = eventstream.encode(_UNKNOWN_EVENT, b" " * 1000)
    data = message * -(-size // len(message))
    return [DataFrame(stream_id, data[at : at + frame_size]) for at in range(0, len(data), frame_size)]


def _emit_frames(connection: FaultableConnection, *frames: Frame) -> None:
    connection.emit()
    connection.emit_raw(b"".join(frame.serialize() for frame in frames))


class Pause(msgspec.Struct, frozen=True, tag_field="kind", tag="pause"):
    """Send nothing for `seconds`; None: forever."""

    seconds: float | None = None


Chunk: TypeAlias = bytes | Pause | WireFault


class Body(Protocol):
    """A response body that is created while it is sent. The sender must close it."""

    async def next_chunk(self) -> Chunk | None:
        """Wait for the next chunk and return it; return None at the end."""
        ...

    def close(self) -> None:
        """Release the resources of the body."""
        ...
