"""Does to an HTTP/2 connection what a fault says, behind h2's back where h2 would not do it."""

from __future__ import annotations

import math
import socket
import struct
from contextlib import suppress
from typing import Final, Protocol

import h2.connection
import h2.settings
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
from efo.testing.server.chunks import Body, Pause

_ABORT: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, for 0 seconds: closing the socket resets the connection."""
_GARBAGE: Final = b"\x17\x03\x09\xff\xff" + b"no record of TLS " * 4
_LARGEST_INCREMENT: Final = 2**31 - 1
_UNKNOWN_EVENT: Final = {":message-type": "event", ":event-type": "UnknownToAll"}


class Connection(Protocol):
    """What a fault needs of the server's connection."""

    h2: h2.connection.H2Connection
    stream: trio.abc.Stream
    max_streams: int
    muted: bool

    def emit(self) -> None:
        """Hand to the writer what h2 has to say."""
        ...

    def emit_raw(self, data: bytes) -> None:
        """Hand bytes to the writer that h2 knows nothing of."""
        ...

    async def flush(self) -> None:
        """Wait until the writer has sent everything."""
        ...


async def strike(fault: WireFault, connection: Connection, stream_id: int) -> bool:
    """Do it. Return whether the stream goes on."""
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
            _abuse(fault, connection, stream_id)
    return True


async def next_bytes(body: Body, stream: trio.abc.Stream) -> bytes | None:
    """Return a body's next bytes where no HTTP/2 is spoken; None at its end.

    A fault that would end the HTTP/2 stream or connection closes `stream`; the other wire faults have no meaning.
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


async def _go_away(fault: GoAway, connection: Connection) -> bool:
    # h2 would end the connection with its own GOAWAY; a server that drains goes on with the streams it has.
    last = 0 if fault.immediate else connection.h2.highest_inbound_stream_id
    _emit_frames(connection, GoAwayFrame(0, last_stream_id=last, error_code=ErrorCodes[fault.code]))
    if not fault.immediate:
        connection.max_streams = 0
        return True
    await connection.flush()
    await trio.aclose_forcefully(connection.stream)
    return False


async def _cut(fault: TcpCut | TlsCut, connection: Connection) -> None:
    below = connection.stream
    if isinstance(fault, TlsCut):
        await connection.flush()
        connection.muted = True  # the writer rests now, and does not come between
    if isinstance(below, trio.SSLStream):
        below = below.transport_stream
    if isinstance(fault, TlsCut):
        if fault.broken_record:
            with suppress(trio.BusyResourceError, trio.BrokenResourceError, trio.ClosedResourceError):
                await below.send_all(_GARBAGE)  # unless another stream's cut is at it, or the peer is gone
    elif isinstance(below, MemoryStream):
        below.cut()
    elif isinstance(below, trio.SocketStream):
        below.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    await trio.aclose_forcefully(below)


def _change_settings(fault: ChangeSettings, connection: Connection) -> None:
    codes = h2.settings.SettingCodes
    new = {
        codes.INITIAL_WINDOW_SIZE: fault.initial_window_size,
        codes.MAX_CONCURRENT_STREAMS: fault.max_concurrent_streams,
    }
    connection.h2.update_settings({code: value for code, value in new.items() if value is not None})
    connection.emit()
    if fault.max_concurrent_streams is not None:
        connection.max_streams = fault.max_concurrent_streams


def _abuse(fault: WindowFault, connection: Connection, stream_id: int) -> None:
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
    """Return DATA frames of at least `size` bytes: whole messages that every client passes over."""
    message = eventstream.encode(_UNKNOWN_EVENT, b" " * 1000)
    data = message * -(-size // len(message))
    return [DataFrame(stream_id, data[at : at + frame_size]) for at in range(0, len(data), frame_size)]


def _emit_frames(connection: Connection, *frames: Frame) -> None:
    connection.emit()
    connection.emit_raw(b"".join(frame.serialize() for frame in frames))
