"""The client of one stream: everything that differs between AWS, another endpoint and a fake; and where a stream is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from trio.abc import Stream

from efo.errors import ServiceError
from efo.kinesis.control_plane import ControlPlane

Connect = Callable[[], Awaitable[Stream]]
"""Opens a byte stream on which the peer expects the HTTP/2 preface: TLS and ALPN are done.

Raises TransportError, and NotHttp2Error if the peer chose another protocol.
"""

Sign = Callable[[str, bytes], Awaitable[Sequence[tuple[str, str]]]]
"""Returns the headers that authenticate a POST with this `X-Amz-Target` and this body (SigV4)."""

Correct = Callable[[ServiceError, str | None], Awaitable[bool]]
"""Takes the error of a refused call, and the header `Date` of the refusal; returns whether it may succeed if it is
signed again at once: with other credentials, or at the service's time."""


class StreamLocation(TypedDict, total=False):
    """Where a stream is: keyword arguments that all openers take. `open_kinesis` says more of them.

    `region`: of AWS. `endpoint_url`: another endpoint than AWS's. `ca_file`: the certificate authorities to trust.
    `profile`: of the AWS configuration. `proxy_url`: the HTTP proxy. None, or left out: as botocore finds it.
    """

    region: str | None
    endpoint_url: str | None
    ca_file: str | None
    profile: str | None
    proxy_url: str | None


@dataclass(frozen=True)
class KinesisClient:
    """A client of one stream, made by `open_kinesis` or by a fake.

    `stream`: the stream's name. `control_plane`: its control calls. `connect`: opens connections of the data plane.
    `sign`: signs requests. `authority`: host, and port unless it is the scheme's default; the `:authority` of requests.
    `scheme`: "https", or "http" without TLS. `clock`: the local wall clock, seconds since the epoch. `service_time`:
    the service's clock, by its last `Date` header, if known. Positions in time use it, since the service rejects times
    in its future (rule R4). `stream_arn`: the stream's ARN, if it was opened by it; its calls then name it.
    `region`: of the stream; None for a fake. `correct`: see Correct.
    """

    stream: str
    control_plane: ControlPlane
    connect: Connect
    sign: Sign
    authority: str
    scheme: str
    clock: Callable[[], float]
    service_time: Callable[[], float] | None = None
    stream_arn: str | None = None
    region: str | None = None
    correct: Correct | None = None
