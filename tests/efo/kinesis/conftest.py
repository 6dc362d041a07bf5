"""The server's side of efo's HTTP/2 connections, controlled by the tests frame by frame."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import h2.config
import h2.connection
import h2.events
import h2.settings
import hyperframe.frame
import pytest
import trio
import trio.testing

from efo.kinesis.connection import Connection


class Peer:
    """The server's end of one connection. `settings`: the values of its HTTP/2 SETTINGS."""

    def __init__(self, settings: Mapping[int, int]) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.h2.local_settings = h2.settings.Settings(client=False, initial_values=dict(settings))
        self.h2.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.bodies: defaultdict[int, bytes] = defaultdict(bytes)
        self.is_closed = False
        self.sent_by_client = trio.testing.MemorySendStream()
        self.received_by_client = trio.testing.MemoryReceiveStream()

    @property
    def client_end(self) -> trio.abc.Stream:
        """The stream that the client uses."""
        return trio.StapledStream(self.sent_by_client, self.received_by_client)

    async def settle(self) -> None:
        """Send what is due, and read what the client sends, until both sides wait."""
        while True:
            self.flush()
            await trio.testing.wait_all_tasks_blocked()
            try:
                data = self.sent_by_client.get_data_nowait()
            except trio.WouldBlock:
                return
            if not data:
                return
            self.receive(data)

    async def serve(self, on_request: Callable[[Peer, int], None] | None = None) -> None:
        """Read and reply until the stream ends, for tests in which time passes.

        `on_request`: called with this peer and the stream id of each complete request.
        """
        self.flush()
        known = 0
        while data := await self.sent_by_client.get_data():
            self.receive(data)
            for event in self.events[known:]:
                if on_request is not None and isinstance(event, h2.events.StreamEnded):
                    on_request(self, event.stream_id)
            known = len(self.events)
            self.flush()

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.send_raw(data)

    def send_raw(self, data: bytes) -> None:
        if not self.is_closed:
            self.received_by_client.put_data(data)

    def send_frame(self, frame: hyperframe.frame.Frame) -> None:
        """Send a frame without the knowledge of this peer's h2."""
        self.flush()
        self.send_raw(frame.serialize())

    def goaway(self, last_stream_id: int, code: int = 0) -> None:
        self.send_frame(hyperframe.frame.GoAwayFrame(0, last_stream_id=last_stream_id, error_code=code))

    def close(self) -> None:
        self.flush()
        self.is_closed = True
        self.received_by_client.put_eof()

    def receive(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            self.events.append(event)
            if isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] += event.data

    def received(self, kind: type[h2.events.Event], stream_id: int | None = None) -> list[h2.events.Event]:
        """Return the received events of this kind, of one stream or of all."""
        return [e for e in self.events if isinstance(e, kind) and stream_id in (None, getattr(e, "stream_id", None))]

    def respond(self, stream_id: int, status: int = 200, **headers: str) -> None:
        self.h2.send_headers(stream_id, [(":status", str(status)), *headers.items()])

    def send(self, stream_id: int, data: bytes, *, end: bool = False) -> int:
        """Send as many of these bytes as the windows allow; return the number. `end`: end the stream after them."""
        sent = 0
        while sent < len(data):
            size = min(len(data) - sent, self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size)
            if not size:
                return sent
            self.h2.send_data(stream_id, data[sent : sent + size])
            sent += size
        if end:
            self.h2.end_stream(stream_id)
        return sent


class Server:
    """The server of a connection pool: it runs a Peer for each connection, with the same settings and `on_request`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.peers: list[Peer] = []
        self.settings: dict[int, int] = {}
        self.on_request: Callable[[Peer, int], None] | None = None
        self._nursery = nursery

    async def connect(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        peer = Peer(self.settings)
        self.peers.append(peer)
        self._nursery.start_soon(peer.serve, self.on_request)
        return peer.client_end


@pytest.fixture
def server(nursery):
    """Return a server without connections."""
    return Server(nursery)


@pytest.fixture
def make_connection(nursery):
    """Return a function that makes a running Connection and its Peer.

    `greet`: whether the peer has sent its SETTINGS when the function returns.
    """

    async def make(settings=None, *, greet=True, **options):
        peer = Peer(settings or {})
        connection = Connection(peer.client_end, address="peer:443", **options)
        nursery.start_soon(connection.run)
        if greet:
            await peer.settle()
        return connection, peer

    return make
