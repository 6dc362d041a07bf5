"""Connections to PostgreSQL for work in threads: a thread never waits for longer than its caller.

psycopg waits for the server without a limit of its own. So a session can be *cut* from outside: its socket is shut
down, the thread that waits on it fails at once, and its connection is closed.
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
    """One connection, made when it is first needed, for one thread at a time."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: psycopg.Connection | None = None
        self._lock = threading.Lock()
        self._is_running = False
        self._is_cut = False

    def run(self, work: Callable[[psycopg.Connection], _T]) -> _T:
        """Do something with the connection, in a thread. Raises psycopg.Error."""
        with self._lock:
            self._is_running = True
        try:
            return work(self._ready())
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction):
            self._close()  # whatever state it is in, or whatever server it has become
            raise
        finally:
            with self._lock:
                self._is_running = False
            if self._is_cut:
                self._close()

    def cut(self) -> None:
        """End the work, and the session for good. Returns at once, from any thread."""
        with self._lock:
            self._is_cut = True
            if self._connection is not None and self._is_running:
                _shut_down(self._connection)
                return
        if not self._is_running:
            self._close()

    def _ready(self) -> psycopg.Connection:
        connection = self._connection
        if connection is None or _is_stale(connection):
            self._close()
            connection = self._connect()
            with self._lock:
                self._connection = connection
        if self._is_cut:
            raise psycopg.OperationalError("given up")
        return connection

    def _close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _is_stale(connection: psycopg.Connection) -> bool:
    """Tell whether the server has closed it, or said something unasked, which is nearly always the same."""
    if connection.closed:
        return True
    poll = select.poll()  # select() knows no descriptor above 1023
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _shut_down(connection: psycopg.Connection) -> None:
    # A second descriptor, so that closing this object leaves the first to its owner.
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)
