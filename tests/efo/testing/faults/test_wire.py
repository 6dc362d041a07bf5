"""Every fault as a client sees it: HTTP/2 frames, event stream messages, and their times."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
from contextlib import contextmanager, suppress
from typing import get_args
from zlib import crc32

import h2.exceptions
import hyperframe.frame as frames
import pytest
import trio
from h2.errors import ErrorCodes

from efo.errors import ChecksumError, FrameError
from efo.protocol.eventstream import EventStreamDecoder
from efo.testing import ALWAYS, FakeKinesis, FakeSettings, FaultScript, When
from efo.testing.faults.kinds import (
    BitFlip,
    ChangeSettings,
    Drip,
    EmptyResponse,
    EndStream,
    ErrorCode,
    ErrorMessage,
    GoAway,
    NoInitialResponse,
    NoResponse,
    OversizedData,
    OversizedMessage,
    Refuse,
    Reorder,
    Repeat,
    Reset,
    Silence,
    StaleListing,
    Stall,
    StreamException,
    TcpCut,
    TlsCut,
    Truncate,
    WindowOverflow,
    WindowOverrun,
)

FIRST = "shardId-000000000000"


class RecordingStream:
    """A stream that stores the received data and the times."""

    def __init__(self, stream):
        self.stream = stream
        self.data = b""
        self.times = []

    async def send_all(self, data):
        await self.stream.send_all(data)

    async def receive_some(self, size):
        data = await self.stream.receive_some(size)
        self.data += data
        self.times.append((trio.current_time(), len(self.data)))
        return data


class Observation:
    """What a client saw of one subscription, which has three records, one per event, and idle events after 5 s."""

    def __init__(self, stream, call, error, started):
        self.stream, self.call, self.error, self.started = stream, call, error, started
        self.frames = list(parsed(stream.data))
        self.body = b"".join(
            f.data for f in self.frames if isinstance(f, frames.DataFrame) and f.stream_id == call.stream_id
        )

    def of(self, kind):
        return [frame for frame in self.frames if isinstance(frame, kind)]

    @property
    def messages(self):
        decoder = EventStreamDecoder()
        decoder.receive_data(self.body)
        return list(decoder.messages())

    @property
    def kinds(self):
        return [m.headers.get(":event-type") or m.headers.get(":message-type") for m in self.messages]

    @property
    def data(self):
        """The numbers of the records, in order."""
        return [n for m in self.messages for n in range(3) if b'"PartitionKey":"k%d"' % n in bytes(m.payload)]


def ignore(_data):
    return ()


def parsed(data):
    while len(data) >= 9:
        frame, length = frames.Frame.parse_frame_header(memoryview(data[:9]))
        if len(data) < 9 + length:
            return
        frame.parse_body(memoryview(data[9 : 9 + length]))
        yield frame
        data = data[9 + length :]


@pytest.fixture
def observe(http2_client):
    """Return a function that subscribes with a fault, and returns the Observation."""

    async def observe(fault, when=None, *, seconds=12.0, window=65_535, opens_windows=True):
        script = FaultScript([(fault, when or When(nth=1))])
        async with FakeKinesis(settings=FakeSettings(consumer_creating=0, event_records=1), faults=script) as fake:
            fake.create_stream("s")
            fake.put_many("s", [(f"k{n}", b"x") for n in range(3)])
            stream = RecordingStream(await fake.kinesis("s").connect())
            client = http2_client(stream, window=window)
            client.opens_windows = opens_windows
            started, error = trio.current_time(), None
            call = await client.subscribe(fake.register("s", "c").arn, FIRST)
            call.take = ignore
            with trio.move_on_after(seconds):
                try:
                    while not call.ended:
                        await client.pump()
                except (h2.exceptions.ProtocolError, EOFError, trio.BrokenResourceError) as caught:
                    error = caught
            assert [fired.fault for fired in script.fired][:1] == [fault]
            return Observation(stream, call, error, started)

    return observe


@pytest.mark.parametrize("code", get_args(ErrorCode))
async def test_reset_sends_rst_stream_with_its_code(observe, code, autojump_clock):
    observed = await observe(Reset(code), When(nth=2))
    assert [frame.error_code for frame in observed.of(frames.RstStreamFrame)] == [ErrorCodes[code]]
    assert observed.data == [0]


async def test_go_away_lets_the_open_stream_continue(observe, autojump_clock):
    observed = await observe(GoAway("ENHANCE_YOUR_CALM"), When(nth=2))
    (goaway,) = observed.of(frames.GoAwayFrame)
    assert (goaway.error_code, goaway.last_stream_id) == (ErrorCodes.ENHANCE_YOUR_CALM, 1)
    at = observed.frames.index(goaway)
    assert [f for f in observed.frames[at:] if isinstance(f, frames.DataFrame)], "no DATA after the GOAWAY"


async def test_an_immediate_go_away_closes_the_connection(observe, autojump_clock):
    observed = await observe(GoAway(immediate=True), When(nth=2))
    assert observed.frames[-1].last_stream_id == 0
    assert isinstance(observed.error, h2.exceptions.ProtocolError | EOFError)
    assert observed.data == [0]


async def test_after_go_away_new_streams_are_refused(http2_client, autojump_clock):
    async with FakeKinesis(faults=FaultScript([GoAway()])) as fake:
        fake.create_stream("s")
        fake.put("s", "k", b"x")
        client = http2_client(RecordingStream(await fake.kinesis("s").connect()))
        arn = fake.register("s", "c").arn
        await trio.sleep(2)
        client.h2.receive_data, receive_data = ignore, client.h2.receive_data
        await client.subscribe(arn, FIRST)
        await trio.testing.wait_all_tasks_blocked()
        await client.call("ListShards", {"StreamName": "s"})
        with trio.move_on_after(1):
            while True:
                await client.pump()
        client.h2.receive_data = receive_data
    (reset,) = [f for f in parsed(client.stream.data) if isinstance(f, frames.RstStreamFrame)]
    assert (reset.stream_id, reset.error_code) == (3, ErrorCodes.REFUSED_STREAM)


async def test_cuts_end_an_in_memory_connection(observe, autojump_clock):
    assert isinstance((await observe(TcpCut(), When(nth=2))).error, trio.BrokenResourceError)
    assert isinstance((await observe(TlsCut(), When(nth=2))).error, EOFError)
    broken = await observe(TlsCut(broken_record=True), When(nth=2))
    assert b"no record of TLS" in broken.stream.data


async def test_two_streams_can_cut_their_connection_at_the_same_time(http2_client, autojump_clock):
    script = FaultScript([(TlsCut(broken_record=True), When(at=3))])
    async with FakeKinesis(faults=script, settings=FakeSettings(consumer_creating=0)) as fake:
        fake.create_stream("s", 2)
        arn = fake.register("s", "c").arn
        client = http2_client(await fake.kinesis("s").connect())
        for shard in fake.open_shards("s"):
            await client.subscribed(arn, shard)
        with suppress(EOFError, h2.exceptions.ProtocolError):
            while True:
                await client.pump()
    assert len(script.fired) == 2


@pytest.mark.parametrize(
    ("fault", "tls", "kind"),
    [
        (TcpCut(), False, ConnectionResetError),
        (TcpCut(), True, (ConnectionResetError, ssl.SSLEOFError)),  # OpenSSL does not always report the reset
        (TlsCut(), True, ssl.SSLError),  # SSLEOFError, except on some builds of Python
        (TlsCut(broken_record=True), True, ssl.SSLError),
    ],
)
async def test_cuts_end_a_tcp_connection(fault, tls, kind, http2_client):
    script = FaultScript([fault])
    async with FakeKinesis(clock=time.time, faults=script, settings=FakeSettings(consumer_creating=0)) as fake:
        fake.create_stream("s")
        fake.put("s", "k", b"x")
        arn = fake.register("s", "c").arn
        async with fake.serve(tls=tls) as address:
            await trio.to_thread.run_sync(read_until_error, address, arn, kind, http2_client)
    assert [fired.fault for fired in script.fired] == [fault]


def read_until_error(address, arn, kind, http2_client):
    """Subscribe over a blocking socket, and read until an exception of type `kind`."""
    client = http2_client(None)
    headers = {":method": "POST", ":path": "/", ":scheme": "https", ":authority": "fake"}
    headers |= {"x-amz-target": "Kinesis_20131202.SubscribeToShard", "content-type": "application/x-amz-json-1.1"}
    start = {"ConsumerARN": arn, "ShardId": FIRST, "StartingPosition": {"Type": "TRIM_HORIZON"}}
    client.h2.send_headers(1, list(headers.items()))
    client.h2.send_data(1, json.dumps(start).encode(), end_stream=True)
    with connected(address) as stream:
        stream.sendall(client.h2.data_to_send())
        with pytest.raises(kind):
            read_until_end(stream)


@contextmanager
def connected(address):
    with socket.create_connection((address.host, address.port), timeout=10) as tcp:
        if address.ca_file is None:
            yield tcp
            return
        context = ssl.create_default_context(cafile=str(address.ca_file))
        context.set_alpn_protocols(["h2"])
        context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)  # some builds of Python set it
        with context.wrap_socket(tcp, server_hostname="localhost", suppress_ragged_eofs=False) as tls:
            yield tls


def read_until_end(stream):
    while stream.recv(65_536):
        pass


async def test_silence_sends_no_ping_acknowledgement(http2_client, autojump_clock):
    async with FakeKinesis(faults=FaultScript([(Silence(), When(at=10))])) as fake:
        fake.create_stream("s")
        client = http2_client(RecordingStream(await fake.kinesis("s").connect()))
        await trio.sleep(5)
        arn = fake.register("s", "c").arn
        await trio.sleep(2)
        call = await client.subscribed(arn, FIRST)
        with trio.move_on_after(60):
            while True:
                await client.pump()
        client.h2.ping(b"anyone??")
        await client.flush()
        with trio.move_on_after(60):
            while True:
                await client.pump()
        assert not call.ended
    assert client.stream.times[-1][0] <= 10
    assert not [f for f in parsed(client.stream.data) if isinstance(f, frames.PingFrame)]


async def test_change_settings_sends_settings_during_a_stream(observe, autojump_clock):
    observed = await observe(ChangeSettings(initial_window_size=1234, max_concurrent_streams=1), When(nth=2))
    changed = observed.of(frames.SettingsFrame)[-1].settings
    assert changed == {frames.SettingsFrame.INITIAL_WINDOW_SIZE: 1234, frames.SettingsFrame.MAX_CONCURRENT_STREAMS: 1}
    assert observed.data == [0, 1, 2]


async def test_window_and_frame_size_faults_are_protocol_errors(observe, autojump_clock):
    overrun = await observe(WindowOverrun(1), window=2000, opens_windows=False)
    assert isinstance(overrun.error, h2.exceptions.FlowControlError)
    assert isinstance((await observe(WindowOverflow())).error, h2.exceptions.ProtocolError)
    assert isinstance((await observe(OversizedData())).error, h2.exceptions.FrameTooLargeError)


async def test_truncate_ends_the_stream_within_a_message(observe, autojump_clock):
    observed = await observe(Truncate(), When(nth=2))
    decoder = EventStreamDecoder()
    decoder.receive_data(observed.body)
    assert len(list(decoder.messages())) == 2
    assert decoder.pending > 0
    assert observed.call.ended
    assert observed.call.reset is None
    assert len((await observe(Truncate(keep=5), When(nth=1))).body) % 1000 != 0


@pytest.mark.parametrize(
    ("part", "error"), [("prelude", FrameError | ChecksumError), ("headers", ChecksumError), ("payload", ChecksumError),
                        ("crc", ChecksumError)]
)  # fmt: skip
@pytest.mark.parametrize("bit", [0, 13, 100_003])
async def test_bit_flip_inverts_one_bit_of_its_part(observe, part, error, bit, autojump_clock):
    observed = await observe(BitFlip(part, bit), When(nth=2), seconds=1)
    right = await observe(Repeat(0), When(nth=2), seconds=1)
    assert len(observed.body) == len(right.body)
    differences = [a ^ b for a, b in zip(observed.body, right.body, strict=True) if a != b]
    assert len(differences) == 1
    assert differences[0].bit_count() == 1
    with pytest.raises(error if isinstance(error, type) else (FrameError, ChecksumError)):
        _ = observed.messages


async def test_oversized_message_announces_its_length(observe, autojump_clock):
    observed = await observe(OversizedMessage(30_000_000), When(nth=2), seconds=1)
    prelude = struct.pack(">II", 30_000_000, 0)
    assert prelude + struct.pack(">I", crc32(prelude)) in observed.body
    with pytest.raises(FrameError, match="at most"):
        _ = observed.messages


async def test_exceptions_errors_and_end_stream_end_the_stream(observe, autojump_clock):
    observed = await observe(StreamException("KMSDisabledException", "no key"), When(nth=2))
    last = observed.messages[-1]
    assert last.headers[":exception-type"] == "KMSDisabledException"
    assert bytes(last.payload) == b'{"message":"no key"}'
    assert observed.call.ended
    last = (await observe(ErrorMessage("Odd", "why"), When(nth=2))).messages[-1]
    assert (last.headers[":message-type"], last.headers[":error-code"]) == ("error", "Odd")
    assert (await observe(EndStream(), When(nth=2))).data == [0]


async def test_stall_and_drip_delay_events(observe, autojump_clock):
    stalled = await observe(Stall(), When(nth=2), seconds=100)
    assert stalled.data == [0]
    assert (await observe(Stall(7.0), When(nth=2))).data == [0, 1, 2]
    dripping = await observe(Drip(100.0, 10), When(nth=3), seconds=30)
    sizes = [size for _, size in dripping.stream.times]
    times = [at for at, _ in dripping.stream.times]
    assert len(sizes) > 20
    assert times[-1] - times[0] > 2
    assert dripping.data == [0, 1, 2]


async def test_repeat_and_reorder_change_the_sequence_of_events(observe, autojump_clock):
    assert (await observe(Repeat(2), When(nth=2))).data == [0, 1, 1, 1, 2]
    assert (await observe(Reorder(), When(nth=1))).data == [1, 0, 2]
    assert (await observe(Reorder(), When(nth=3))).data == [0, 1, 2]


async def test_start_faults_omit_or_delay_the_first_messages(observe, autojump_clock):
    assert (await observe(NoInitialResponse())).kinds[0] == "SubscribeToShardEvent"
    empty = await observe(EmptyResponse(), seconds=100)
    assert (empty.call.fields[":status"], empty.body, empty.call.ended) == ("200", b"", False)
    nothing = await observe(NoResponse(), seconds=100)
    assert (nothing.call.headers, nothing.call.ended) == ([], False)
    late = await observe(NoResponse(8.0), seconds=100)
    assert late.data == [0, 1, 2]


@pytest.mark.parametrize(
    ("code", "status"), [("LimitExceededException", 400), ("ExpiredTokenException", 400), ("InternalFailure", 500)]
)
async def test_refuse_sends_an_error_response(observe, code, status, autojump_clock):
    observed = await observe(Refuse(code, "because", status))
    assert observed.call.fields[":status"] == str(status)
    assert b'"__type":"%s"' % code.encode() in observed.body
    assert b"because" in observed.body


@pytest.mark.parametrize(("fault", "status"), [(Refuse(status=503), 503), (NoResponse(5.0), 200), (NoResponse(), None)])
async def test_refuse_and_no_answer_apply_to_other_operations(fault, status, client, fake, autojump_clock):
    fake.faults.add(fault, When(operation="ListShards"))
    call = await client.call("ListShards", {"StreamName": "s"})
    started, received = trio.current_time(), None
    with trio.move_on_after(60):
        received = await call.status()
    assert received == status
    assert trio.current_time() - started == pytest.approx({503: 0, 200: 5, None: 60}[status])
    again = await client.call("ListShards", {"StreamName": "s"})
    assert await again.status() == 200


async def test_stale_listing_returns_earlier_shards(client, fake, autojump_clock):
    await trio.sleep(10)
    fake.split("s", FIRST)

    async def listed():
        call = await client.call("ListShards", {"StreamName": "s"})
        shards = (await call.json())["Shards"]
        return [(s["ShardId"][-1], "EndingSequenceNumber" in s["SequenceNumberRange"]) for s in shards]

    now = [("0", True), ("1", False), ("2", False), ("3", False)]
    assert await listed() == now
    rule = fake.faults.add(StaleListing(5.0), When(times=ALWAYS))
    assert await listed() == [("0", False), ("1", False)]
    fake.faults.remove(rule)
    rule = fake.faults.add(StaleListing(5.0, first=1), When(times=ALWAYS))
    assert await listed() == [("0", True), ("1", False)]
    fake.faults.remove(rule)
    fake.faults.add(StaleListing(5.0, last=1), When(times=ALWAYS))
    assert await listed() == [("0", False), ("1", False), ("2", False), ("3", False)]
    await trio.sleep(6)
    assert await listed() == now
