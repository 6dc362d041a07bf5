"""PostgreSQL connections for work in threads. A thread never waits longer than its caller.

psycopg waits for the server without a timeout. So a session can be *aborted* from another thread: its socket is shut
down, the thread that waits on it fails at once, and the connection is closed.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psycopg

_T = TypeVar("_T")
Connect = Callable[[], psycopg.Connection]


class Session:
    """One connection, opened at first use, for one thread at a time."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: psycopg.Connection | None = None
        self._lock = threading.Lock()
        self._is_running = False
        self._is_aborted = False

    def run(self, work: Callable[[psycopg.Connection], _T]) -> _T:
        """Run `work` with the connection. Raises psycopg.Error."""
        with self._lock:
            self._is_running = True
        try:
            return work(self._open_connection())
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction):
            self._close()  # its state is unknown, or the server is a replica now
            raise
        finally:
            with self._lock:
                self._is_running = False
            if self._is_aborted:
                self._close()

    def abort(self) -> None:
        """End the running work and the session. Callable from any thread; returns at once."""
        with self._lock:
            self._is_aborted = True
            if self._connection is not None and self._is_running:
                _shut_down(self._connection)
                return
        if not self._is_running:
            self._close()

    def _open_connection(self) -> psycopg.Connection:
        connection = self._connection
        if connection is None or _is_stale(connection):
            self._close()
            connection = self._connect()
            with self._lock:
                self._connection = connection
        if self._is_aborted:
            raise psycopg.OperationalError("the call was aborted")
        return connection

    def _close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _is_stale(connection: psycopg.Connection) -> bool:
    """Return whether the server closed the connection, or sent data unasked, which nearly always means the same."""
    if connection.closed:
        return True
    poll = select.poll()  # select() rejects descriptors above 1023
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _shut_down(connection: psycopg.Connection) -> None:
    # With a duplicate descriptor: closing the socket object leaves the original one to psycopg.
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
