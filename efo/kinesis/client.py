"""The client of one stream: everything that differs between AWS, another endpoint and a fake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from trio.abc import Stream

from efo.checks import check_text
from efo.errors import ConfigurationError, ServiceError
from efo.kinesis.control_plane import ControlPlane
from efo.proxy import SETTING, parse_proxy

Connect = Callable[[], Awaitable[Stream]]
"""Opens a byte stream on which the peer expects the HTTP/2 preface: TLS and ALPN are done.

Raises TransportError, and NotHttp2Error if the peer chose another protocol.
"""

Sign = Callable[[str, bytes], Awaitable[Sequence[tuple[str, str]]]]
"""Returns the headers that authenticate a POST with this `X-Amz-Target` and this body (SigV4)."""

Correct = Callable[[ServiceError, str | None], Awaitable[bool]]
"""Takes the error of a refused call, and the header `Date` of the refusal; returns whether it may succeed if it is
signed again at once: with other credentials, or at the service's time."""


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


def check_stream(stream: object, where: Mapping[str, object]) -> None:
    """Check a stream and where it is, before `open_client`. `where`: arguments of `open_kinesis`, None if not given.

    Raises ConfigurationError.
    """
    given = {name: value for name, value in where.items() if value is not None}
    if not isinstance(stream, KinesisClient):
        check_text("stream", stream, "the name or ARN of a stream, or a client that open_kinesis made")
    for name, value in given.items():
        if name != SETTING:  # empty, it is no proxy
            check_text(name, value, "a text, or None")
    if given.get(SETTING):
        parse_proxy(given[SETTING])  # type: ignore[arg-type] # it refuses what is no text
    if given and isinstance(stream, KinesisClient):
        raise ConfigurationError(f"{next(iter(given))} has no effect on an open client: pass it to open_kinesis")


@asynccontextmanager
async def open_client(stream: str | KinesisClient, where: Mapping[str, Any]) -> AsyncIterator[KinesisClient]:
    """Open the client of a stream; a client that is open already stays open. `where`: arguments of `open_kinesis`.

    Raises EfoError.
    """
    if isinstance(stream, KinesisClient):
        yield stream
        return
    from efo.kinesis.aws.client import open_kinesis  # noqa: PLC0415 - AWS's packages, only if they are used

    async with open_kinesis(stream, **where) as kinesis:
        yield kinesis
