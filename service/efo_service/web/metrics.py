"""/metrics: encoded as the scraper asks, once for all who ask at once; and on a port of its own, from a thread."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Generic, TypeVar

import trio
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from efo.exception_groups import collapse_groups
from efo_service.web.security.guard import Guard, SecurityHeaders
from efo_service.web.server import serve

_MAX_FORMATS: Final = 8
"""Scrapers ask for two or three. The name of a format contains what a client sent."""


class Metrics:
    """The metrics of a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._formats: dict[str, SharedComputation[bytes]] = {}

    async def respond(self, request: Request) -> Response:
        """Return them in the format that the request accepts; in the plain one if that is none."""
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # for a version that is no number
            encode, content_type = choose_encoder("")
        if content_type not in self._formats and len(self._formats) >= _MAX_FORMATS:
            encode, content_type = choose_encoder("")
        shared = self._formats.get(content_type)
        if shared is None:
            shared = self._formats[content_type] = SharedComputation(partial(self._encoded, encode))
        return Response(await shared.get(), headers={"content-type": content_type})

    async def _encoded(self, encode: Callable[[CollectorRegistry], bytes]) -> bytes:
        # Thousands of series take some ten milliseconds, too long for the event loop.
        return await trio.to_thread.run_sync(encode, self._registry)


T = TypeVar("T")

_PAUSE: Final = 4.0
"""Times as long as it took: so all requests together take a fifth of the loop, or of a thread, at most."""
_MAX_PAUSE: Final = 1.0


class SharedComputation(Generic[T]):
    """Computes for all callers at once. What a caller gets began to be computed after it asked.

    `compute`: may be slow, and raise; then its caller alone gets the exception.
    """

    def __init__(self, compute: Callable[[], Awaitable[T]]) -> None:
        self._compute = compute
        self._lock = trio.Lock()
        self._begun = 0
        self._next_at = 0.0
        self._latest: tuple[int, T] | None = None

    async def get(self) -> T:
        """Return what was computed."""
        before = self._begun
        async with self._lock:
            if self._latest is None or self._latest[0] <= before:
                await trio.sleep_until(max(self._next_at, trio.current_time()))
                self._begun += 1
                began = trio.current_time()
                try:
                    self._latest = (self._begun, await self._compute())
                finally:
                    now = trio.current_time()
                    self._next_at = now + min(_MAX_PAUSE, _PAUSE * (now - began))
            return self._latest[1]


@contextmanager
def metrics_served(
    registry: CollectorRegistry,
    host: str,
    port: int,
    status: tuple[Guard, Callable[[], Mapping[str, Any]]] | None = None,
) -> Iterator[str]:
    """Serve the metrics of a registry in this context; yield the URL. Raises UnavailableError.

    `status`: who may read /status, and what returns it as JSON values; called in the thread.
    """
    routes = [Route("/metrics", Metrics(registry).respond)]
    if status is not None:
        guard, of_now = status

        async def respond(request: Request) -> Response:
            guard.require_read(request)
            return JSONResponse(dict(of_now()))

        routes.append(Route("/status", respond))
    app = SecurityHeaders(Starlette(routes=routes))
    started: Future[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = Future()

    async def main() -> None:
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                url = await nursery.start(serve, app, host, port)
                started.set_result((url, trio.lowlevel.current_trio_token(), nursery.cancel_scope))

    def run() -> None:
        try:
            trio.run(main)
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="metrics", daemon=True)
    thread.start()
    url, token, scope = started.result()
    try:
        yield url
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join()
