"""Accepts connections, so that a probe is not kept waiting by clients that connect and leave as fast as they can."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator
from typing import Final

import structlog
import trio

from efo_service.web.http.turns import TURNS
from efo_service.web.process_problems import ProcessProblems

_IN_A_TURN: Final = 64
"""Connections that are accepted in a turn of the loop, most of which their clients may have left already."""
_KEPT_IN_A_TURN: Final = TURNS // 2
"""Of these, so many are served by all listeners: fewer than get their turn meanwhile, so that none is closed first."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_EXHAUSTED_SECONDS: Final = 0.5


async def accepted(
    listener: socket.socket, listeners: int = 1, problems: ProcessProblems | None = None
) -> AsyncIterator[trio.SocketStream]:
    """Yield the connections of clients that are still there. `listeners`: how many there are, each with its share.

    `problems`: gets that connections cannot be accepted, until one is.
    """
    problems = problems or ProcessProblems()
    share = max(1, _KEPT_IN_A_TURN // listeners)
    while True:
        await trio.lowlevel.wait_readable(listener)
        kept = 0
        for _ in range(_IN_A_TURN):
            try:
                connection, _address = listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    text = f"the web server cannot accept connections: {error.strerror}"
                    if problems.began("connections_not_accepted", text):
                        structlog.get_logger().warning("accept_failed", reason=error.strerror)
                    await trio.sleep(_EXHAUSTED_SECONDS)
                continue  # otherwise the client is gone
            problems.ended("connections_not_accepted")
            if _is_gone(connection):
                connection.close()
                continue
            yield trio.SocketStream(trio.socket.from_stdlib_socket(connection))
            kept += 1
            if kept == share:
                break


def _is_gone(connection: socket.socket) -> bool:
    """Return whether the client has closed or reset the connection, and sent nothing."""
    connection.setblocking(False)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
