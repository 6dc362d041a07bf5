"""Serves an ASGI app on a port, on trio."""

from __future__ import annotations

import logging
import socket

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve
from hypercorn.typing import ASGIFramework

from efo_service.errors import UnavailableError


async def serve(
    app: ASGIFramework,
    host: str,
    port: int,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled. `task_status` gets the URL. Port 0 takes a free port.

    Raises UnavailableError if the address cannot be bound.
    """
    listener = _listen(host, port)
    config = Config()
    config.errorlog = logging.getLogger("hypercorn.error")
    config.graceful_timeout = 0.5
    config.bind = [f"fd://{listener.detach()}"]
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(hypercorn_serve, app, config)
        task_status.started(url)


def _listen(host: str, port: int) -> socket.socket:
    """Bind the socket here instead of in hypercorn, so that the error can name the setting."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host}:{port}: {error.strerror or error}: "
            "choose another address in [service] host and port, or EFO_SERVICE__PORT"
        ) from error
