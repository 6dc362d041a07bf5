"""Health, metrics, status and the page over HTTP.

/livez    200 while the event loop runs, independent of AWS and the lease store
/readyz   200 while the worker reads its shards, or none are to be read, and does not drain; else 503, with the reasons
/metrics  Prometheus text format or OpenMetrics, as the scraper requests
/status   the state of this worker, as JSON
/         the page (`efo_service.web.page_routes`)
The first three are open, all else is guarded (`efo_service.web.security`). The supervisor of several workers serves the
same for all of them together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from efo_service.web.metrics import Metrics, SharedComputation
from efo_service.web.page_routes import Page, page_routes
from efo_service.web.security.guard import Guard, SecurityHeaders


class ReportsReadiness(Protocol):
    """The part of efo_service.web.health.Health that the endpoints use."""

    def obstacles(self) -> tuple[str, ...]:
        """Return why the service is not ready; empty if it is ready."""
        ...


StatusSource = Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Returns the content of /status, as JSON values."""


def create_app(
    health: ReportsReadiness,
    registry: CollectorRegistry,
    status: StatusSource,
    page: Page | None = None,
    guard: Guard | None = None,
) -> ASGIApp:
    """Return the ASGI app. `page`: None: without the page. `guard`: None: without a token."""
    guard = guard or Guard()

    async def obstacles() -> tuple[str, ...]:
        return health.obstacles()

    async def status_json() -> bytes:
        found = status()
        return bytes(JSONResponse(dict(found if isinstance(found, Mapping) else await found)).body)

    async def livez(_request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def readyz(_request: Request) -> Response:
        problems = await shared_obstacles.get()
        body = {"status": "not ready" if problems else "ready", "problems": problems}
        return JSONResponse(body, status_code=503 if problems else 200)

    async def status_(request: Request) -> Response:
        guard.require_read(request)
        return Response(await shared_status.get(), media_type="application/json")

    shared_obstacles, shared_status = SharedComputation(obstacles), SharedComputation(status_json)
    return SecurityHeaders(
        Starlette(
            routes=[
                Route("/livez", livez),
                Route("/readyz", readyz),
                Route("/metrics", Metrics(registry).respond),
                Route("/status", status_),
                *(page_routes(page, guard) if page is not None else ()),
            ]
        )
    )
