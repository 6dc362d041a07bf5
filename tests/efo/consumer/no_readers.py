"""What is no reader of a consumer, with what the refusal says."""

from __future__ import annotations

from typing import Final

from efo.consumer.handlers.handler import Handler


class OtherHandler(Handler):
    surface = "efo.aio"


def no_coroutine(shard: object) -> None:
    """Read nothing."""


async def handle(batch: object) -> None:
    """Process nothing."""


NO_READERS: Final = [
    (OtherHandler(handle), "use efo.Handler"),
    (no_coroutine, "async def"),
    (handle, r"pass efo.Handler\(handle\)"),
]
