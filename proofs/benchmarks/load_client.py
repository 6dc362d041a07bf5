"""A client that reads as fast as a server can send: one TLS socket, one buffer, no parsing of payloads.

It counts frames and updates windows. It also counts the bytes that exceed a stream window or the connection window.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.settings

HEADER = struct.Struct(">BHBBI")
DATA, RST_STREAM, GOAWAY = 0, 3, 7
READ_SIZE = 256 * 1024
INITIAL_WINDOW = 65_535


@dataclass
class Counts:
    """Counts of one connection.

    `wire_bytes`: HTTP/2 bytes inside TLS. `beyond`: bytes that exceeded a window. `updates`: WINDOW_UPDATE frames sent.
    `streams`: data bytes per stream.
    """

    wire_bytes: int = 0
    data_bytes: int = 0
    frames: int = 0
    beyond: int = 0
    updates: int = 0
    longest_frame: int = 0
    streams: dict[int, int] = field(default_factory=dict)


class LoadClient:
    """Subscribes to all shards on one connection. `on_data` is called with each DATA frame's stream id and payload."""

    def __init__(
        self,
        served: dict[str, Any],
        consumer: str,
        *,
        stream_window: int,
        connection_window: int,
        frame_size: int = 16_384,
        on_data: Callable[[int, memoryview], None] | None = None,
    ) -> None:
        self.counts = Counts()
        self.shards: dict[int, str] = {}
        self._on_data = on_data
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._buffered = 0
        self._window = stream_window
        # Per stream, and 0 for the connection: bytes still granted, bytes used since the last update, and window size.
        # An update is sent when half of a window is used.
        self._granted = {0: connection_window}
        self._used = {0: 0}
        self._limit = {0: connection_window}
        url = urlsplit(served["url"])
        tcp = socket.create_connection((url.hostname, url.port))
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = ssl.create_default_context(cafile=served["ca_file"])
        context.set_alpn_protocols(["h2"])
        self._socket = context.wrap_socket(tcp, server_hostname=url.hostname)
        self._subscribe(served, consumer, url.netloc, frame_size)

    def _subscribe(self, served: dict[str, Any], consumer: str, authority: str, frame_size: int) -> None:
        codes = h2.settings.SettingCodes
        settings = {codes.INITIAL_WINDOW_SIZE: self._window, codes.MAX_FRAME_SIZE: frame_size, codes.ENABLE_PUSH: 0}
        http2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        http2.local_settings = h2.settings.Settings(client=True, initial_values=settings)
        http2.initiate_connection()
        if self._limit[0] > INITIAL_WINDOW:
            http2.increment_flow_control_window(self._limit[0] - INITIAL_WINDOW)
        self._limit[0] = self._granted[0] = max(INITIAL_WINDOW, self._limit[0])
        (stream,) = served["streams"].values()
        arn = stream["consumers"][consumer]
        for shard in stream["shards"]:
            stream_id = http2.get_next_available_stream_id()
            start = {"Type": "TRIM_HORIZON"}
            body = json.dumps({"ConsumerARN": arn, "ShardId": shard, "StartingPosition": start}).encode()
            headers = {":method": "POST", ":path": "/", ":scheme": "https", ":authority": authority}
            headers |= {"x-amz-target": "Kinesis_20131202.SubscribeToShard"}
            headers |= {"content-type": "application/x-amz-json-1.1"}
            http2.send_headers(stream_id, list(headers.items()))
            http2.send_data(stream_id, body, end_stream=True)
            self.shards[stream_id] = shard
            self.counts.streams[stream_id] = 0
            self._granted[stream_id], self._limit[stream_id], self._used[stream_id] = self._window, self._window, 0
        self._socket.sendall(http2.data_to_send())

    def run(self, seconds: float) -> float:
        """Read for `seconds`; return the real duration."""
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            got = self._socket.recv_into(self._buffer[self._buffered :])
            if not got:
                raise EOFError("the server closed the connection")
            self.counts.wire_bytes += got
            self._buffered = self._parse(self._buffer, self._buffered + got)
        return time.perf_counter() - began

    def close(self) -> None:
        self._socket.close()

    def _parse(self, view: memoryview, length: int) -> int:
        """Handle the complete frames in `view[:length]`, move the rest to the start, and return its length."""
        at = 0
        while length - at >= HEADER.size:
            high, low, kind, flags, stream_id = HEADER.unpack_from(view, at)
            size = high << 16 | low
            end = at + HEADER.size + size
            if end > length:
                break
            if kind == DATA:
                if flags:
                    raise ValueError(f"stream {stream_id} ended, or its DATA is padded: flags {flags:#x}")
                self._data(stream_id, view[end - size : end])
            elif kind in {RST_STREAM, GOAWAY}:
                raise ValueError(f"the server sent RST_STREAM or GOAWAY: {bytes(view[at:end])!r}")
            at = end
        view[: length - at] = bytes(view[at:length])
        return length - at

    def _data(self, stream_id: int, data: memoryview) -> None:
        counts, size = self.counts, len(data)
        counts.frames += 1
        counts.data_bytes += size
        counts.streams[stream_id] += size
        counts.longest_frame = max(counts.longest_frame, size)
        updates = self._use(0, size) + self._use(stream_id, size)
        if updates:
            self._socket.sendall(updates)
        if self._on_data is not None:
            self._on_data(stream_id, data)

    def _use(self, key: int, size: int) -> bytes:
        """Subtract bytes from a window; return a WINDOW_UPDATE frame if half of it is used, else nothing."""
        self._granted[key] -= size
        if self._granted[key] < 0:
            self.counts.beyond -= self._granted[key]
        self._used[key] += size
        if self._used[key] * 2 < self._limit[key]:
            return b""
        used, self._used[key] = self._used[key], 0
        self._granted[key] += used
        self.counts.updates += 1
        return struct.pack(">BHBBII", 0, 4, 8, 0, key, used)
