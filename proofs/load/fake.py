"""The fake under load."""

from __future__ import annotations

from typing import Any, Self

import trio

from efo.testing import FakeKinesis
from efo.testing.state.core import Core
from efo.testing.state.subscriptions import Subscriptions
from proofs.load.http2 import serve_load_connection
from proofs.load.settings import Load
from proofs.load.subscriptions import LoadSubscriptions


class LoadKinesis(FakeKinesis):
    """A fake whose streams supply as many records as a benchmark reads; `serve` uses the faster server."""

    def __init__(self, load: Load, **options: Any) -> None:
        self._load = load
        super().__init__(**options)
        self._serve_connection = serve_load_connection

    async def __aenter__(self) -> Self:
        self._started_at = trio.current_time()
        for name, shards in self._load.shards.items():  # an invalid name raises before anything runs
            self.create_stream(name, shards)
        return await super().__aenter__()

    def _make_subscriptions(self, core: Core) -> Subscriptions:
        return LoadSubscriptions(core, self._load)
