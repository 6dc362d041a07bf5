"""What can go wrong between a consumer and Kinesis, each fault as a value.

When a fault fires is said beside it (`efo.testing.faults.script.When`). A fault has a *site*: where in a call it can
strike. The docstrings tell what a client sees.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

ErrorCode = Literal[
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
]  # fmt: skip
"""HTTP/2's error codes (RFC 9113, section 7)."""


class Site(StrEnum):
    """Where a fault strikes, and so what its `nth` counts."""

    CALL = "call"
    """Calls of an operation, before they do anything."""
    START = "start"
    """The first message of an accepted SubscribeToShard: its initial response."""
    EVENT = "event"
    """The events of a shard, over all its subscriptions."""
    LISTING = "listing"
    """Answers of ListShards."""


def _kind(name: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "-", name).lower()


class _Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=_kind):
    site: ClassVar[Site] = Site.EVENT
    operation: ClassVar[str] = "SubscribeToShard"
    needs_event: ClassVar[bool] = False
    """Whether it does something to an event, and so waits for one."""


# --- the connection ---------------------------------------------------------------------------------------


class Reset(_Fault, frozen=True):
    """RST_STREAM with this code instead of the event; the connection's other streams go on."""

    code: ErrorCode = "INTERNAL_ERROR"


class GoAway(_Fault, frozen=True):
    """GOAWAY with this code. `immediate`: it names no stream (last stream id 0) and the connection is closed at once.

    Otherwise it names all streams so far: they go on to their end, and new ones are refused.
    """

    code: ErrorCode = "NO_ERROR"
    immediate: bool = False


class TcpCut(_Fault, frozen=True):
    """The connection is reset in the midst of everything (TCP RST): what was on its way is lost."""


class TlsCut(_Fault, frozen=True):
    """The socket is closed without TLS's close_notify and without GOAWAY.

    `broken_record`: before that come bytes that are no TLS record. Without TLS they break HTTP/2's framing instead.
    """

    broken_record: bool = False


class Silence(_Fault, frozen=True):
    """Nothing leaves on the connection any more, not even answers to PING; it stays open (a black hole)."""


class ChangeSettings(_Fault, frozen=True):
    """SETTINGS in the midst of the stream: what the client may send at first on a stream, and how many streams."""

    initial_window_size: int | None = None
    max_concurrent_streams: int | None = None


class WindowOverrun(_Fault, frozen=True):
    """DATA goes `excess` bytes beyond the stream's window as the server knows it.

    The data are sound messages of an event type that no client knows. A client that opens the window meanwhile
    cannot tell; others see FLOW_CONTROL_ERROR's reason.
    """

    excess: int = 1


class WindowOverflow(_Fault, frozen=True):
    """A WINDOW_UPDATE that lifts the connection's window above 2**31 - 1: a FLOW_CONTROL_ERROR (RFC 9113, 6.9.1)."""


class OversizedData(_Fault, frozen=True):
    """A DATA frame of HTTP/2 that is longer than the client's MAX_FRAME_SIZE (FRAME_SIZE_ERROR)."""


# --- the event stream -------------------------------------------------------------------------------------


class Truncate(_Fault, frozen=True):
    """The event's message is cut after `keep` bytes (its half without it), and the stream ends cleanly there."""

    needs_event = True
    keep: int | None = None


class BitFlip(_Fault, frozen=True):
    """One bit of the event's message is wrong: number `bit` of this part, counted round its end."""

    needs_event = True
    part: Literal["prelude", "headers", "payload", "crc"] = "payload"
    bit: int = 0


class OversizedMessage(_Fault, frozen=True):
    """A prelude with a right CRC that announces a message of `length` bytes, more than the 24 MiB that AWS allows."""

    length: int = 25 * 1024 * 1024


class StreamException(_Fault, frozen=True):
    """An exception message, then the end of the stream (AWS: SubscribeToShardEventStream)."""

    code: str = "InternalFailureException"
    message: str = "made up by the fault script"


class ErrorMessage(_Fault, frozen=True):
    """An unmodelled error: a message of type `error`, then the end of the stream."""

    code: str = "InternalError"
    message: str = "made up by the fault script"


class EndStream(_Fault, frozen=True):
    """The stream ends cleanly before its 5 minutes are over."""


class Stall(_Fault, frozen=True):
    """The event, and all that follow, wait for `seconds`; for ever without. PING is answered meanwhile."""

    needs_event = True
    seconds: float | None = None


class Drip(_Fault, frozen=True):
    """The event comes in pieces of `piece` bytes, at so many bytes per second."""

    needs_event = True
    bytes_per_second: float = 1000.0
    piece: int = 16


class Repeat(_Fault, frozen=True):
    """The event comes `copies` more times."""

    needs_event = True
    copies: int = 1


class Reorder(_Fault, frozen=True):
    """The event comes after the one that follows it; in its place where no event follows it."""

    needs_event = True


class NoInitialResponse(_Fault, frozen=True):
    """The stream begins with its first event: the initial-response message is left out."""

    site = Site.START


class EmptyAnswer(_Fault, frozen=True):
    """SubscribeToShard is accepted (200), and then nothing comes, for `seconds` or for ever."""

    site = Site.START
    seconds: float | None = None


# --- calls ------------------------------------------------------------------------------------------------


class Refuse(_Fault, frozen=True):
    """The call is answered by an error of AWS's shape, and does nothing.

    A server error is `Refuse("InternalFailure", status=500)`, a throttle `Refuse("LimitExceededException")`, an
    expired token `Refuse("ExpiredTokenException")`.
    """

    site = Site.CALL
    code: str = "InternalFailure"
    message: str = "made up by the fault script"
    status: int = 400


class NoAnswer(_Fault, frozen=True):
    """The call is taken and answered after `seconds`, or never: not even the headers come."""

    site = Site.CALL
    seconds: float | None = None


class StaleListing(_Fault, frozen=True):
    """ListShards tells shards as they were `seconds` ago: young ones are missing, closed ones still open.

    Only those from index `first` to before `last` are stale: `last` = 1000 makes a listing whose first page is of
    another moment than the others, `first` = 1000 one whose other pages are.
    """

    site = Site.LISTING
    operation = "ListShards"
    seconds: float = 30.0
    first: int = 0
    last: int | None = None


WindowFault: TypeAlias = WindowOverrun | WindowOverflow | OversizedData
WireFault: TypeAlias = Reset | GoAway | TcpCut | TlsCut | Silence | ChangeSettings | WindowFault
"""Done to the HTTP/2 connection, not to its events."""

Fault: TypeAlias = (
    WireFault
    | Truncate
    | BitFlip
    | OversizedMessage
    | StreamException
    | ErrorMessage
    | EndStream
    | Stall
    | Drip
    | Repeat
    | Reorder
    | NoInitialResponse
    | EmptyAnswer
    | Refuse
    | NoAnswer
    | StaleListing
)

PASSING: Final[tuple[Fault, ...]] = (
    Reset(),
    Reset("REFUSED_STREAM"),
    GoAway(),
    GoAway("INTERNAL_ERROR", immediate=True),
    TcpCut(),
    TlsCut(),
    TlsCut(broken_record=True),
    Silence(),
    ChangeSettings(initial_window_size=16_384, max_concurrent_streams=2),
    WindowOverrun(),
    WindowOverflow(),
    OversizedData(),
    Truncate(),
    BitFlip("prelude", 5),
    BitFlip("headers", 77),
    BitFlip("payload", 1001),
    BitFlip("crc", 3),
    OversizedMessage(),
    StreamException(),
    StreamException("KMSThrottlingException"),
    ErrorMessage(),
    EndStream(),
    Stall(),
    Stall(20.0),
    Drip(),
    Repeat(),
    NoInitialResponse(),
    EmptyAnswer(),
    Refuse("LimitExceededException"),
    Refuse("ResourceInUseException"),
    Refuse(status=500),
    Refuse("ServiceUnavailable", status=503),
    NoAnswer(),
)
"""Faults of every kind that pass by themselves: a right consumer loses nothing, and keeps the order."""
