"""An HTTP/2 client for the fake, which sees each event of the connection."""

from __future__ import annotations

from collections import deque
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import msgspec
import trio

from efo.protocol.eventstream import EventStreamDecoder, EventStreamMessage


class Call:
    """One request and its response."""

    def __init__(self, client: Http2Client, stream_id: int) -> None:
        self.client = client
        self.stream_id = stream_id
        self.headers: list[tuple[str, str]] = []
        self.body = bytearray()
        self.messages: deque[EventStreamMessage] = deque()
        self.ended = False
        self.reset: int | None = None
        self._decoder = EventStreamDecoder()

    @property
    def fields(self) -> dict[str, str]:
        return dict(self.headers)

    async def status(self) -> int:
        while not self.headers:
            await self.client.pump()
        return int(self.fields[":status"])

    async def json(self) -> Any:
        """Wait for the end of the response, and return its decoded body."""
        while not self.ended:
            await self.client.pump()
        return msgspec.json.decode(self.body)

    async def next_message(self) -> EventStreamMessage | None:
        """Wait for the next message and return it; return None at a clean end. The decoder checks the CRCs."""
        while not self.messages and not self.ended:
            await self.client.pump()
        return self.messages.popleft() if self.messages else None

    async def next_event(self) -> dict[str, Any]:
        """Wait for the next message, which must be an event, and return its content."""
        message = await self.next_message()
        assert message is not None
        assert message.headers[":event-type"] == "SubscribeToShardEvent", message
        return msgspec.json.decode(message.payload)

    def take(self, data: bytes) -> None:
        self.body += data
        if self.fields.get("content-type") == "application/vnd.amazon.eventstream":
            self._decoder.receive_data(data)
            self.messages.extend(self._decoder.messages())


class Http2Client:
    """An HTTP/2 client that reads only while the test waits for a call. It opens windows only if `opens_windows`."""

    def __init__(self, stream: trio.abc.Stream, *, window: int = 65_535) -> None:
        self.stream = stream
        self.opens_windows = True
        self.calls: dict[int, Call] = {}
        self.events: list[h2.events.Event] = []
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        settings = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window, h2.settings.SettingCodes.ENABLE_PUSH: 0}
        self.h2.local_settings = h2.settings.Settings(client=True, initial_values=settings)
        self.h2.initiate_connection()

    async def call(
        self, target: str | None, body: Any, *, path: str = "/", method: str = "POST", **headers: str
    ) -> Call:
        stream_id = self.h2.get_next_available_stream_id()
        fields = {":method": method, ":path": path, ":scheme": "http", ":authority": "fake"}
        if target is not None:
            fields["x-amz-target"] = target if "." in target else f"Kinesis_20131202.{target}"
        fields |= {"content-type": "application/x-amz-json-1.1"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.h2.send_headers(stream_id, list(fields.items()))
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        while len(raw) > self.h2.max_outbound_frame_size:
            frame, raw = raw[: self.h2.max_outbound_frame_size], raw[self.h2.max_outbound_frame_size :]
            while self.h2.local_flow_control_window(stream_id) < len(frame):
                await self.flush()
                await self.pump()
            self.h2.send_data(stream_id, frame)
        self.h2.send_data(stream_id, raw, end_stream=True)
        self.calls[stream_id] = Call(self, stream_id)
        await self.flush()
        return self.calls[stream_id]

    async def subscribe(self, consumer_arn: str, shard_id: str, kind: str = "TRIM_HORIZON", **position: Any) -> Call:
        start = {"Type": kind, **position}
        return await self.call(
            "SubscribeToShard", {"ConsumerARN": consumer_arn, "ShardId": shard_id, "StartingPosition": start}
        )

    async def subscribed(self, *args: Any, **kwargs: Any) -> Call:
        """Subscribe successfully, and read the initial-response."""
        call = await self.subscribe(*args, **kwargs)
        assert await call.status() == 200, await call.json()
        first = await call.next_message()
        assert first is not None
        assert first.headers[":event-type"] == "initial-response"
        return call

    async def reset(self, call: Call) -> None:
        self.h2.reset_stream(call.stream_id, 8)
        del self.calls[call.stream_id]
        await self.flush()

    async def flush(self) -> None:
        if data := self.h2.data_to_send():
            await self.stream.send_all(data)

    async def pump(self) -> None:
        """Read once, and process the received data."""
        data = await self.stream.receive_some(64 * 1024)
        if not data:
            raise EOFError("the server closed the connection")
        for event in self.h2.receive_data(data):
            self.events.append(event)
            self._handle(event)
        await self.flush()

    def _handle(self, event: h2.events.Event) -> None:
        call = self.calls.get(getattr(event, "stream_id", None) or 0)
        match event:
            case h2.events.DataReceived():
                if self.opens_windows:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if call:
                    call.take(event.data)
            case h2.events.ResponseReceived() if call:
                call.headers = event.headers
            case h2.events.StreamEnded() if call:
                call.ended = True
            case h2.events.StreamReset() if call:
                call.ended, call.reset = True, event.error_code
