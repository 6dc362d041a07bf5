"""/metrics: encoded as the scraper asks, once for all who ask at the same time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import trio
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from efo_service.web.shared import SharedComputation

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
