"""The faults that can happen between a consumer and Kinesis.

`efo.testing.faults.script.When` specifies when a fault fires. The *site* of a fault is the place in a call where it
can fire. The docstrings describe what a client sees.
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
    """Where a fault fires. These are the occasions that `nth` counts."""

    CALL = "call"
    """Calls of an operation, before they have any effect."""
    START = "start"
    """The first message of an accepted SubscribeToShard call: the initial-response."""
    EVENT = "event"
    """The events of a shard, across all its subscriptions. Of other operations than SubscribeToShard, the responses."""
    LISTING = "listing"
    """Responses of ListShards."""


def _kind(name: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "-", name).lower()


class _Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=_kind):
    site: ClassVar[Site] = Site.EVENT
    operation: ClassVar[str] = "SubscribeToShard"
    needs_event: ClassVar[bool] = False
    """Whether the fault changes an event. Then it can only fire at an event."""


# --- the connection ---------------------------------------------------------------------------------------


class Reset(_Fault, frozen=True):
    """RST_STREAM with this code instead of the event. Other streams of the connection continue."""

    code: ErrorCode = "INTERNAL_ERROR"


class GoAway(_Fault, frozen=True):
    """GOAWAY with this code and the id of the newest stream: open streams continue, and new streams are refused.

    `immediate`: the last stream id is 0, and the connection is closed at once.
    """

    code: ErrorCode = "NO_ERROR"
    immediate: bool = False


class TcpCut(_Fault, frozen=True):
    """The connection is reset (TCP RST). Data in transit is lost."""


class TlsCut(_Fault, frozen=True):
    """The socket is closed without TLS close_notify and without GOAWAY.

    `broken_record`: first, bytes that are not a TLS record are sent. Without TLS they break the HTTP/2 framing.
    """

    broken_record: bool = False


class Silence(_Fault, frozen=True):
    """Nothing more is sent on the connection, not even PING acknowledgements. It stays open (a black hole)."""


class ChangeSettings(_Fault, frozen=True):
    """SETTINGS during the stream.

    `initial_window_size`: bytes that the client may send on a new stream. `max_concurrent_streams`: maximum number of
    streams. None: not changed.
    """

    initial_window_size: int | None = None
    max_concurrent_streams: int | None = None


class WindowOverrun(_Fault, frozen=True):
    """DATA exceeds the stream window that the server knows by `excess` bytes.

    The data are valid messages of an unknown event type. A client that increases the window at the same time does not
    notice; any other client sees a FLOW_CONTROL_ERROR.
    """

    excess: int = 1


class WindowOverflow(_Fault, frozen=True):
    """WINDOW_UPDATE increases the connection window above 2**31 - 1: a FLOW_CONTROL_ERROR (RFC 9113, section 6.9.1)."""


class OversizedData(_Fault, frozen=True):
    """A DATA frame is longer than the client's MAX_FRAME_SIZE: a FRAME_SIZE_ERROR."""


# --- the event stream -------------------------------------------------------------------------------------


class Truncate(_Fault, frozen=True):
    """The event's message is truncated to `keep` bytes, None: to half, and the stream ends cleanly."""

    needs_event = True
    keep: int | None = None


class BitFlip(_Fault, frozen=True):
    """One bit of the event's message is inverted: bit number `bit` of this part, modulo its length."""

    needs_event = True
    part: Literal["prelude", "headers", "payload", "crc"] = "payload"
    bit: int = 0


class OversizedMessage(_Fault, frozen=True):
    """A prelude with a valid CRC announces a message of `length` bytes; AWS allows 24 MiB."""

    length: int = 25 * 1024 * 1024


class StreamException(_Fault, frozen=True):
    """An exception message, then the stream ends (AWS: SubscribeToShardEventStream)."""

    code: str = "InternalFailureException"
    message: str = "injected by the fault script"


class ErrorMessage(_Fault, frozen=True):
    """An unmodeled error: a message of type `error`, then the stream ends."""

    code: str = "InternalError"
    message: str = "injected by the fault script"


class EndStream(_Fault, frozen=True):
    """The stream ends cleanly before its 5 minutes."""


class Stall(_Fault, frozen=True):
    """The event and all later ones are delayed by `seconds`, None: forever. PING is still acknowledged."""

    needs_event = True
    seconds: float | None = None


class Drip(_Fault, frozen=True):
    """The event is sent in pieces of `piece` bytes, at `bytes_per_second`."""

    needs_event = True
    bytes_per_second: float = 1000.0
    piece: int = 16


class Repeat(_Fault, frozen=True):
    """The event is sent `copies` additional times."""

    needs_event = True
    copies: int = 1


class Reorder(_Fault, frozen=True):
    """The event is sent after the next event; it stays in its place if no event follows it."""

    needs_event = True


class NoInitialResponse(_Fault, frozen=True):
    """The initial-response message is omitted: the stream starts with the first event."""

    site = Site.START


class EmptyResponse(_Fault, frozen=True):
    """SubscribeToShard is accepted (200), and then nothing is sent for `seconds`, None: forever."""

    site = Site.START
    seconds: float | None = None


# --- calls ------------------------------------------------------------------------------------------------


class Refuse(_Fault, frozen=True):
    """The call fails with a service error and has no effect.

    Examples: `Refuse("InternalFailure", status=500)` is a server error, `Refuse("LimitExceededException")` is
    throttling, `Refuse("ExpiredTokenException")` is an expired token.
    """

    site = Site.CALL
    code: str = "InternalFailure"
    message: str = "injected by the fault script"
    status: int = 400


class NoResponse(_Fault, frozen=True):
    """The call is executed, and the response, including its headers, is delayed by `seconds`.

    None: there is no response, and the call is not executed.
    """

    site = Site.CALL
    seconds: float | None = None


class StaleListing(_Fault, frozen=True):
    """ListShards returns shards as they were `seconds` ago: new shards are missing, closed shards are open.

    Only the shards from index `first` up to, not including, `last` are stale. With `last` = 1000 only the first page is
    stale; with `first` = 1000 only the other pages are.
    """

    site = Site.LISTING
    operation = "ListShards"
    seconds: float = 30.0
    first: int = 0
    last: int | None = None


WindowFault: TypeAlias = WindowOverrun | WindowOverflow | OversizedData
WireFault: TypeAlias = Reset | GoAway | TcpCut | TlsCut | Silence | ChangeSettings | WindowFault
"""Faults of the HTTP/2 connection; they do not change events."""

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
    | EmptyResponse
    | Refuse
    | NoResponse
    | StaleListing
)

RESPONSE_FAULTS: Final = (
    Reset, GoAway, TcpCut, TlsCut, Silence, ChangeSettings, WindowOverrun, WindowOverflow, OversizedData, Truncate,
    Stall, Drip,
)  # fmt: skip
"""The faults that can also change the response of an operation other than SubscribeToShard, if `When` names it. The
whole response is then what an event is otherwise."""

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
    EmptyResponse(),
    Refuse("LimitExceededException"),
    Refuse("ResourceInUseException"),
    Refuse(status=500),
    Refuse("ServiceUnavailable", status=503),
    NoResponse(),
)
"""Transient faults of all kinds: a correct consumer loses, repeats and reorders nothing."""
