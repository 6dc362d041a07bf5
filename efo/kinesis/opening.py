"""The client of a stream that is given by name, or is open already."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from efo.checks import check_text, shown
from efo.errors import ConfigurationError
from efo.kinesis.client import KinesisClient
from efo.proxy import SETTING, parse_proxy


def check_stream(stream: object, where: Mapping[str, object]) -> None:
    """Check a stream and where it is, before `open_client`. `where`: arguments of `open_kinesis`, None if not given.

    Raises ConfigurationError.
    """
    given = {name: value for name, value in where.items() if value is not None}
    if isinstance(stream, AbstractAsyncContextManager):
        raise ConfigurationError(
            f"stream={shown(stream)}: a client that is not open: write `async with efo.open_kinesis(...) as kinesis`"
            " and pass kinesis"
        )
    if not isinstance(stream, KinesisClient):
        check_text("stream", stream, "the name or ARN of a stream, or a client that open_kinesis made")
    for name, value in given.items():
        if name != SETTING:  # empty, it is no proxy
            check_text(name, value, "a text, or None")
    if given.get(SETTING):
        parse_proxy(given[SETTING])  # type: ignore[arg-type] # it refuses what is no text
    if given and isinstance(stream, KinesisClient):
        raise ConfigurationError(f"{next(iter(given))} has no effect on an open client: pass it to open_kinesis")


@asynccontextmanager
async def open_client(stream: str | KinesisClient, where: Mapping[str, Any]) -> AsyncIterator[KinesisClient]:
    """Open the client of a stream; a client that is open already stays open. `where`: arguments of `open_kinesis`.

    Raises EfoError.
    """
    if isinstance(stream, KinesisClient):
        yield stream
        return
    from efo.kinesis.aws.client import open_kinesis  # noqa: PLC0415 - AWS's packages, only if they are used

    async with open_kinesis(stream, **where) as kinesis:
        yield kinesis
