"""A pool of HTTP/2 connections: as many streams per connection as the peer allows, as many connections as needed."""

from __future__ import annotations

from typing import Final

import trio

from efo.errors import ConnectError, EfoError, FaultyHostError, WrongEndpointError
from efo.events import ConnectionClosed, ConnectionOpened, Observer, StreamReset, ignore_events
from efo.kinesis.client import Connect
from efo.kinesis.connection import Connection, Headers
from efo.kinesis.response_stream import ResponseStream
from efo.settings import STREAM_WINDOW

CONNECT_TIMEOUT: Final = 10.0
"""Seconds for name resolution, TCP, TLS and the peer's SETTINGS together."""
STREAMS_PER_CONNECTION: Final = 100
"""The maximum number of streams per connection, even if the peer sets no limit: they share a socket and a task."""


class ConnectionPool:
    """Sends requests on the least loaded connection, and opens connections when all are full.

    `run` must be running. `address`: the peer's name, for errors and events.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        address: str,
        stream_window: int = STREAM_WINDOW,
        observer: Observer = ignore_events,
    ) -> None:
        self._connect = connect
        self._address = address
        self._stream_window = stream_window
        self._observer = observer
        self._connections: dict[Connection, None] = {}  # ordered, so that the older of two equally loaded ones is used
        self._has_connected = False
        self._is_opening = False
        self._waiting = trio.lowlevel.ParkingLot()  # for the connection that another request opens
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the connections until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def open(self, headers: Headers, body: bytes) -> ResponseStream:
        """Send a request on one of the connections. Raises TransportError."""
        while (connection := self._least_loaded()) is None:
            if not self._is_opening:
                connection = await self._open_for_all()
                break
            await self._waiting.park()
        # All that wait go on at once. If they passed on a lock, each would wait for a scheduler round of its own.
        # Beside busy shards, a thousand rounds take half a minute.
        self._waiting.unpark_all()
        return await connection.request(headers, body)

    async def _open_for_all(self) -> Connection:
        self._is_opening = True
        try:
            return await self._open_connection()
        finally:
            self._is_opening = False
            self._waiting.unpark()  # if this failed, the next one tries

    def _least_loaded(self) -> Connection | None:
        free = [c for c in self._connections if c.capacity > 0 and c.open_streams < STREAMS_PER_CONNECTION]
        return min(free, key=lambda connection: connection.open_streams, default=None)

    async def _open_connection(self) -> Connection:
        assert self._nursery is not None, "run() is not running"  # noqa: S101 - a bug of ours, not of the caller's
        try:
            with trio.fail_after(CONNECT_TIMEOUT):
                stream = await self._connect()
                connection = Connection(
                    stream, address=self._address, stream_window=self._stream_window, on_reset=self._on_reset
                )
                self._nursery.start_soon(self._serve, connection)
                try:
                    await connection.wait_ready()
                except trio.Cancelled:
                    connection.close()
                    raise
        except trio.TooSlowError:
            raise ConnectError(f"no HTTP/2 connection to {self._address} within {CONNECT_TIMEOUT:g} s") from None
        except WrongEndpointError as error:
            # Before the first connection this is a wrong endpoint, and retries do not help. Later it is one faulty
            # host.
            if not self._has_connected:
                raise
            raise FaultyHostError(error) from error
        self._has_connected = True
        # Only now it counts and is reported: a connection that was never ready is only an error of its caller.
        self._connections[connection] = None
        self._observer(ConnectionOpened(self._address))
        return connection

    def _on_reset(self, error_code: str) -> None:
        self._observer(StreamReset(self._address, error_code))

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            if connection in self._connections:
                del self._connections[connection]
                error: EfoError | None = connection.closed_by
                self._observer(ConnectionClosed(self._address, error.error_type if error else None, str(error or "")))
