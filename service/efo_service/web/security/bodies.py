"""Reads the body of a request, within limits of size and time."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import trio
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

MAX_BYTES: Final = 4096
MAX_SECONDS: Final = 5.0


async def read_body(request: Request) -> bytes:
    """Return the body. Raises HTTPException: 413 if it is too large, 408 if it takes too long."""
    body = b""
    with trio.move_on_after(MAX_SECONDS) as scope:
        try:
            async with aclosing(request.stream()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > MAX_BYTES:
                        raise HTTPException(413, f"the body of a request has {MAX_BYTES} bytes at most")
        except ClientDisconnect:
            raise HTTPException(400, "the request has ended before its body") from None
    if scope.cancelled_caught:
        raise HTTPException(408, f"the body of the request did not arrive within {MAX_SECONDS:g} s")
    return body
