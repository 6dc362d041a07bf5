"""An asynchronous iteration whose items are made in the trio thread, each when it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from efo.aio.loop_side import LoopSide
from efo.model import Batch

Ask = Callable[[Callable[["Batch | Exception | None"], object]], object]
"""Asks for the next batch, in the trio thread, and passes on whom to give it to. None: the iteration has ended."""


class Demand:
    """Takes batches from the trio thread, one for each demand. The next demand gets what a cancelled one missed."""

    def __init__(self, side: LoopSide, ask: Ask) -> None:
        self._side = side
        self._ask = ask
        self._answer: asyncio.Future[Batch | Exception | None] | None = None

    async def next(self) -> Batch | None:
        """Return the next batch; None at the end. Raises what ended the iteration."""
        if self._answer is None:
            self._answer = self._side.loop.create_future()
            self._side.post(self._ask, self._deliver)
        await asyncio.shield(self._answer)  # a cancelled demand leaves it for the next one
        answer, self._answer = self._answer.result(), None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self, error: Exception | None = None) -> None:
        """Answer the demand that waits, in the loop's thread: no more batches will come."""
        self._set(error)

    def _deliver(self, batch: Batch | Exception | None) -> None:
        self._side.post_to_loop(self._set, batch)

    def _set(self, answer: Batch | Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
