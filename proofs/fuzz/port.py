"""The service's port: a client that sends any bytes, in any pieces, and reads or does not.

An input is a byte of choices, and what the client sends. The app is the real one, with a token. Every answer must be
one of HTTP/1.1, nothing but probes, metrics and the page's files may be served, and the connection must end in time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final
from unittest.mock import patch

import trio
import trio.testing
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from efo_service.web.app import create_app
from efo_service.web.http.accepting import ConnectionSlot
from efo_service.web.http.connection import IDLE_SECONDS, SEND_SECONDS, serve_connection
from efo_service.web.live.actions import Action
from efo_service.web.live.source import Snapshot
from efo_service.web.page_routes import Page
from efo_service.web.security.access import Access
from efo_service.web.security.guard import MAX_SECONDS, Guard
from proofs.fuzz.cursor import cut
from proofs.fuzz.target import Target, require

STATUS: Final = "status-of-the-service"
_TOKEN: Final = "a-token-of-32-random-characters"  # noqa: S105 - of no service
_ANSWER: Final = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [ -~]*\r\n")
_LONGEST: Final = 64 * (IDLE_SECONDS + SEND_SECONDS + MAX_SECONDS)
"""Virtual seconds. An input has fewer requests than this allows for."""


def check(data: bytes) -> None:
    """Serve a client that sends this. Raises AssertionError, or another exception, if a property does not hold."""
    with patch("trio.to_thread.run_sync", _run_here):  # virtual time does not wait for threads
        trio.run(_serve, data, clock=trio.testing.MockClock(autojump_threshold=0))


async def _run_here(function: Callable[..., bytes], *args: object) -> bytes:
    await trio.lowlevel.checkpoint()
    return function(*args)


class _Health:
    def obstacles(self) -> tuple[str, ...]:
        return ("not ready",)


async def _never(_action: Action) -> None:
    raise AssertionError("an action was performed without the token")


async def _snapshot() -> Snapshot:
    raise AssertionError("the state of the shards was asked for without the token")


def _app() -> ASGIApp:
    page = Page(_snapshot, _never)
    return create_app(_Health(), CollectorRegistry(), lambda: {"worker_id": STATUS}, page, Guard(Access(_TOKEN)))


async def _serve(data: bytes) -> None:
    choices, sent = (data[:1] or b"\0")[0], data[1:]
    theirs, ours = trio.testing.memory_stream_pair()
    base = {"scheme": "http", "client": ("10.0.0.7", 5), "server": ("10.0.0.1", 8080)}
    place = ConnectionSlot("10.0.0.7", lambda: None)
    received = bytearray()

    async def talk() -> None:
        with suppress(trio.BrokenResourceError):  # the service may end the connection before
            for piece in cut(sent, choices >> 1):
                await theirs.send_all(piece)
                await trio.testing.wait_all_tasks_blocked()
            if choices & 1:
                await theirs.send_eof()

    async def receive() -> None:
        async for piece in theirs:
            received.extend(piece)

    with trio.fail_after(_LONGEST):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            nursery.start_soon(receive)
            await serve_connection(_app(), ours, base, place, trio.Semaphore(1))
    require(not received or _ANSWER.match(received), "an answer is not one of HTTP/1.1")
    require(STATUS.encode() not in received, "the status was served without the token")


def seeds() -> Iterator[bytes]:
    """Make inputs of browsers, probes, HTTP/2, and of clients that hide requests."""
    heads = [
        b"GET /livez HTTP/1.1\r\nhost: a\r\n",
        b"GET /readyz HTTP/1.0\r\n",
        b"GET /metrics HTTP/1.1\r\nhost: a\r\naccept: application/openmetrics-text;version=1.0.0\r\n",
        b"GET /status HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer x\r\n",
        b"GET /?a=%41&b HTTP/1.1\r\nhost: a\r\ncookie: efo_session=1.2; a=b\r\n",
        b"HEAD /page/page.css HTTP/1.1\r\nhost: a\r\nif-none-match: x\r\n",
        b"GET /events HTTP/1.1\r\nhost: [::1]\r\norigin: null\r\nsec-fetch-site: cross-site\r\n",
        b"POST /login HTTP/1.1\r\nhost: a\r\ncontent-length: 7\r\nexpect: 100-continue\r\n",
        b"POST /actions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n",
        b"OPTIONS /status HTTP/1.1\r\nhost: a\r\nconnection: close\r\n",
    ]
    bodies = [b"", b"", b"", b"", b"", b"", b"", b"token=x", b"2;a=b\r\n{}\r\n0\r\nx: y\r\n\r\n", b""]
    for choices, (head, body) in enumerate(zip(heads, bodies, strict=True)):
        whole = head + b"\r\n" + body
        yield bytes([choices]) + whole
        yield bytes([choices << 1 | 1]) + whole * 3
        yield bytes([choices]) + head + b"content-length: 3\r\n\r\n" + body
        yield bytes([choices]) + head + b"upgrade: h2c\r\nconnection: upgrade, http2-settings\r\n\r\n" + body
    yield b"\1PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"


TARGET: Final = Target(
    "port",
    "the service's port",
    check,
    seeds,
    dictionary=(
        b"\r\n\r\n",
        b"\r\n ",
        b"HTTP/1.1",
        b"content-length: ",
        b"transfer-encoding: chunked\r\n",
        b"connection: keep-alive\r\n",
        b"expect: 100-continue\r\n",
        b"authorization: Bearer ",
        b"host: localhost\r\n",
        b"/status",
        b"/actions",
        b"%2e%2e%2f",
        b"0\r\n\r\n",
    ),
    max_length=4096,
)
