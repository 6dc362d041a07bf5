from __future__ import annotations

import pytest
import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request

from efo_service.web.security.guard import MAX_BYTES, MAX_SECONDS, read_body


def request_of(*chunks: bytes, wait: float = 0.0, ends: str = "http.request") -> Request:
    rest = list(chunks)

    async def receive():
        await trio.sleep(wait)
        if not rest:
            return {"type": ends, "body": b"", "more_body": False}
        return {"type": "http.request", "body": rest.pop(0), "more_body": True}

    return Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)


async def test_a_body_may_come_in_pieces():
    assert await read_body(request_of(b"a", b"b" * (MAX_BYTES - 1))) == b"a" + b"b" * (MAX_BYTES - 1)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (request_of(b"a" * MAX_BYTES, b"b"), 413),
        (request_of(*[b"a"] * 10, wait=MAX_SECONDS / 5), 408),
        (request_of(b"a", ends="http.disconnect"), 400),
    ],
)
async def test_a_body_that_is_too_large_too_slow_or_cut_off_is_refused(request_, status, autojump_clock):
    with pytest.raises(HTTPException) as refused:
        await read_body(request_)
    assert refused.value.status_code == status
    assert trio.current_time() <= MAX_SECONDS
