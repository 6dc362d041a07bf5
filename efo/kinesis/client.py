"""The seam between efo and a Kinesis: everything that differs between AWS, a private endpoint and a fake."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from trio.abc import Stream

from efo.kinesis.control_plane import ControlPlane

Connect = Callable[[], Awaitable[Stream]]
"""Opens a byte stream on which the peer expects an HTTP/2 preface (TLS and ALPN are done).

Raises TransportError, and NotHttp2Error where the peer chose another protocol.
"""

Sign = Callable[[str, bytes], Awaitable[Sequence[tuple[str, str]]]]
"""Returns the headers that authenticate a POST with this `X-Amz-Target` and this body (SigV4)."""


@dataclass(frozen=True)
class Kinesis:
    """One stream's service.

    `stream`: its name. `authority`: host, with the port where it is not the scheme's own; the `:authority` of requests.
    `scheme`: "https", or "http" where no TLS is spoken. `clock`: our wall clock, seconds since the epoch.
    `service_time`: the service's, as its last `Date` header told it, where that is known: a position in time
    is by the service's clock, which refuses the future (rule R4).
    """

    stream: str
    control: ControlPlane
    connect: Connect
    sign: Sign
    authority: str
    scheme: str
    clock: Callable[[], float]
    service_time: Callable[[], float] | None = None
