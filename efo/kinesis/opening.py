"""The client of a stream that is given by name, or is open already."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from efo.aws.role import AssumedRole
from efo.checks import check_text, shown
from efo.errors import ConfigurationError
from efo.kinesis.client import KinesisClient, StreamLocation
from efo.proxy import SETTING, parse_proxy


def check_stream(stream: object, where: StreamLocation) -> None:
    """Check a stream and where it is, before `open_client`. Raises ConfigurationError, and as `check_location`."""
    given = check_location(where)
    if isinstance(stream, AbstractAsyncContextManager):
        raise ConfigurationError(
            f"stream={shown(stream)}: a client that is not open: write `async with efo.open_kinesis(...) as kinesis`"
            " and pass kinesis"
        )
    if not isinstance(stream, KinesisClient):
        check_text("stream", stream, "the name or ARN of a stream, or a client that open_kinesis made")
    if given and isinstance(stream, KinesisClient):
        raise ConfigurationError(f"{next(iter(given))} has no effect on an open client: pass it to open_kinesis")


def check_location(where: StreamLocation) -> Mapping[str, object]:
    """Check where a stream is, and return what is given of it.

    Raises ConfigurationError. Raises TypeError for a name that is no argument, which only a type checker sees earlier.
    """
    if unknown := where.keys() - StreamLocation.__annotations__:
        raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
    given = {name: value for name, value in where.items() if value is not None}
    for name, value in given.items():
        if name != SETTING:  # empty, it is no proxy
            check_text(name, value, "a text, or None")
    if given.get(SETTING):
        parse_proxy(given[SETTING])  # type: ignore[arg-type] # it refuses what is no text
    return given


@asynccontextmanager
async def open_client(
    stream: str | KinesisClient, where: StreamLocation, role: AssumedRole | None = None
) -> AsyncIterator[KinesisClient]:
    """Open the client of a stream; a client that is open already stays open.

    Raises EfoError.
    """
    if isinstance(stream, KinesisClient):
        yield stream
        return
    from efo.kinesis.aws.client import open_kinesis  # noqa: PLC0415 - AWS's packages, only if they are used

    async with open_kinesis(stream, role=role, **where) as kinesis:
        yield kinesis
