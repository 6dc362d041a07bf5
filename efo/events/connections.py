"""What happens to HTTP/2 connections."""

from __future__ import annotations

import msgspec


class ConnectionOpened(msgspec.Struct, frozen=True):
    """An HTTP/2 connection was opened."""

    address: str


class ConnectionClosed(msgspec.Struct, frozen=True):
    """An HTTP/2 connection was closed. `error_type`: the `error_type` of the error that closed it, if there was one."""

    address: str
    error_type: str | None = None
    detail: str = ""


class StreamReset(msgspec.Struct, frozen=True):
    """The peer reset an HTTP/2 stream. `error_code`: the name of the HTTP/2 error code, for example CANCEL."""

    address: str
    error_code: str
