"""/metrics on a port of its own, from a thread, for a program that does not run on trio."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import trio
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from efo.exception_groups import collapse_groups
from efo_service.web.metrics import Metrics
from efo_service.web.security.guard import Guard
from efo_service.web.security.headers import SecurityHeaders
from efo_service.web.server import serve


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
