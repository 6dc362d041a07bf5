"""Health, metrics and status over HTTP.

/livez    200 while the event loop runs, independent of AWS and the lease store
/readyz   200 while the worker reads its shards, or none are to be read, and does not drain; else 503, with the reasons
/metrics  Prometheus text format or OpenMetrics, as the scraper requests
/status   the state of this worker, as JSON
The supervisor of several workers serves the same for all of them together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import trio
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class ReportsReadiness(Protocol):
    """The part of efo_service.web.health.Health that the endpoints use."""

    def obstacles(self) -> tuple[str, ...]:
        """Return why the service is not ready; empty if it is ready."""
        ...


StatusSource = Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Returns the content of /status, as JSON values."""


def create_app(health: ReportsReadiness, registry: CollectorRegistry, status: StatusSource) -> Starlette:
    """Return the ASGI app."""

    async def livez(_request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def readyz(_request: Request) -> Response:
        problems = health.obstacles()
        body = {"status": "not ready" if problems else "ready", "problems": problems}
        return JSONResponse(body, status_code=503 if problems else 200)

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        # Encoding thousands of series takes some ten milliseconds, too long for the event loop.
        text = await trio.to_thread.run_sync(encode, registry)
        return Response(text, headers={"content-type": content_type})

    async def status_(_request: Request) -> Response:
        found = status()
        return JSONResponse(dict(found if isinstance(found, Mapping) else await found))

    return Starlette(
        routes=[
            Route("/livez", livez),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route("/status", status_),
        ]
    )
