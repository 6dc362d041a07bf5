"""/metrics on a port of its own, from a thread, for a program that does not run on trio."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import trio
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.routing import Route

from efo.exception_groups import collapse_groups
from efo_service.web.metrics import Metrics
from efo_service.web.security.headers import SecurityHeaders
from efo_service.web.server import serve


@contextmanager
def metrics_served(registry: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Serve the metrics of a registry in this context; yield the URL. Raises UnavailableError."""
    app = SecurityHeaders(Starlette(routes=[Route("/metrics", Metrics(registry).respond)]))
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
