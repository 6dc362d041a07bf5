"""The HTTP/2 connection: requests, windows, resets, GOAWAY, PING and cancellation (rules R8, R9, R14)."""

import h2.events
import hpack
import hyperframe.frame
import pytest
import trio
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from efo.errors import GoAwayError, NotHttp2Error, StreamResetError, TransportError
from efo.kinesis.connection import MAX_UNSENT, PING_DEADLINE, PING_INTERVAL, Connection

HEADERS = [(":method", "POST"), (":scheme", "https"), (":authority", "peer"), (":path", "/")]
WINDOW = 128 * 1024


async def open_response(connection, peer, status=200):
    """Make a request, and return its response stream after the headers have arrived."""
    response = await connection.request(HEADERS, b"body")
    await peer.settle()
    peer.respond(response.stream_id, status)
    await peer.settle()
    return response


async def read_all(response):
    data = b""
    while more := await response.receive():
        data += more
    return data


class TestRequests:
    async def test_a_request_and_its_response_have_headers_and_a_body(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await connection.request([*HEADERS, ("x-test", "yes")], b"question")
        await peer.settle()
        [request] = peer.received(h2.events.RequestReceived)
        assert ("x-test", "yes") in request.headers
        assert peer.bodies[response.stream_id] == b"question"
        assert peer.received(h2.events.StreamEnded, response.stream_id)
        peer.respond(response.stream_id, 201, server="fake")
        peer.send(response.stream_id, b"hello ")
        peer.send(response.stream_id, b"world", end=True)
        await peer.settle()
        assert await response.response() == 201
        assert response.headers["server"] == "fake"
        assert await read_all(response) == b"hello world"
        assert await response.receive() == b""
        response.close()
        assert connection.open_streams == 0

    async def test_a_request_without_a_body_ends_its_stream(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await connection.request(HEADERS, b"")
        await peer.settle()
        assert peer.received(h2.events.StreamEnded, response.stream_id)

    async def test_streams_in_parallel_keep_their_data_apart(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        responses = [await open_response(connection, peer) for _ in range(50)]
        assert connection.open_streams == 50
        for round_ in range(3):
            for response in reversed(responses):
                peer.send(response.stream_id, b"%d/%d " % (response.stream_id, round_))
        await peer.settle()
        for response in responses:
            assert await response.receive() == b"".join(b"%d/%d " % (response.stream_id, n) for n in range(3))

    async def test_an_informational_response_is_ignored(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await connection.request(HEADERS, b"")
        await peer.settle()
        peer.respond(response.stream_id, 103)
        await peer.settle()
        assert response.status == 0
        peer.respond(response.stream_id, 200)
        await peer.settle()
        assert await response.response() == 200

    async def test_trailers_end_the_response(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        peer.send(response.stream_id, b"data")
        peer.h2.send_headers(response.stream_id, [("x-trailer", "1")], end_stream=True)
        await peer.settle()
        assert await read_all(response) == b"data"

    async def test_the_capacity_follows_the_stream_limit_of_the_peer(self, make_connection, autojump_clock):
        connection, peer = await make_connection({SettingCodes.MAX_CONCURRENT_STREAMS: 2})
        assert connection.capacity == 2
        first = await open_response(connection, peer)
        await open_response(connection, peer)
        assert connection.capacity == 0
        with pytest.raises(TransportError, match="accepts no request"):
            await connection.request(HEADERS, b"")
        first.close()
        await peer.settle()
        assert connection.capacity == 1
        await open_response(connection, peer)


class TestBodies:
    async def test_a_body_larger_than_the_peers_window_is_sent_as_the_window_opens(
        self, make_connection, nursery, autojump_clock
    ):
        connection, peer = await make_connection({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        nursery.start_soon(connection.request, HEADERS, b"x" * 95)
        await peer.settle()
        assert len(peer.bodies[1]) == 10
        for _ in range(9):
            peer.h2.increment_flow_control_window(10, 1)
            await peer.settle()
        assert peer.bodies[1] == b"x" * 95
        assert peer.received(h2.events.StreamEnded, 1)

    async def test_a_body_larger_than_a_frame_is_sent_completely(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection()
        nursery.start_soon(connection.request, HEADERS, b"y" * 60_000)
        await peer.settle()
        assert peer.bodies[1] == b"y" * 60_000

    @pytest.mark.parametrize("end", [True, False], ids=["response ended", "response open"])
    async def test_a_response_before_the_end_of_the_body_is_received_and_resets_the_stream(
        self, make_connection, nursery, end, autojump_clock
    ):
        connection, peer = await make_connection(
            {SettingCodes.INITIAL_WINDOW_SIZE: 10, SettingCodes.MAX_CONCURRENT_STREAMS: 1}
        )
        statuses = []

        async def request():
            response = await connection.request(HEADERS, b"x" * 95)
            statuses.append(await response.response())
            response.close()

        nursery.start_soon(request)
        await peer.settle()
        peer.respond(1, 400)
        if end:
            peer.h2.end_stream(1)
        else:
            peer.h2.increment_flow_control_window(200, 1)
        await peer.settle()
        assert statuses == [400]
        assert peer.received(h2.events.StreamReset, 1), "the stream was not reset, and counts as open"
        await open_response(connection, peer)

    async def test_a_reset_before_the_end_of_the_body_is_raised(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        errors = []

        async def request():
            with pytest.raises(StreamResetError) as raised:
                await (await connection.request(HEADERS, b"x" * 95)).response()
            errors.append(raised.value.code)

        nursery.start_soon(request)
        await peer.settle()
        peer.h2.reset_stream(1, ErrorCodes.REFUSED_STREAM)
        await peer.settle()
        assert errors == [ErrorCodes.REFUSED_STREAM]

    async def test_a_body_is_sent_to_its_end_after_goaway(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        responses = []

        async def request():
            responses.append(await connection.request(HEADERS, b"x" * 95))

        nursery.start_soon(request)
        await peer.settle()
        peer.goaway(1)
        peer.h2.increment_flow_control_window(200, 1)
        peer.respond(1)
        await peer.settle()
        assert peer.bodies[1] == b"x" * 95
        assert await responses[0].response() == 200


class TestWindows:
    @pytest.mark.scenario("G61")
    async def test_a_stream_that_is_not_read_buffers_at_most_its_window(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=50_000, connection_window=WINDOW)
        response = await open_response(connection, peer)
        for _ in range(5):
            peer.send(response.stream_id, b"x" * 100_000)
            await peer.settle()
        assert response.buffered == 50_000
        assert peer.h2.local_flow_control_window(response.stream_id) == 0

    async def test_reading_opens_the_stream_window_again(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=50_000, connection_window=WINDOW)
        response = await open_response(connection, peer)
        data = bytes(n % 251 for n in range(500_000))
        sent, got = 0, b""
        while len(got) < len(data):
            await peer.settle()
            sent += peer.send(response.stream_id, data[sent:])
            await peer.settle()
            assert response.buffered <= 50_000
            got += await response.receive()
        assert got == data

    @pytest.mark.scenario("G61")
    async def test_slow_readers_do_not_stall_another_stream(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=60_000, connection_window=WINDOW)
        slow = [await open_response(connection, peer) for _ in range(4)]  # together more than the connection's window
        quick = await open_response(connection, peer)
        received = 0
        for _ in range(100):
            for response in slow:
                peer.send(response.stream_id, b"s" * 20_000)
            peer.send(quick.stream_id, b"q" * 20_000)
            await peer.settle()
            received += len(await quick.receive())
        assert received > 10 * WINDOW
        assert [response.buffered for response in slow] == [60_000] * 4

    async def test_data_of_tiny_frames_is_joined_into_few_chunks(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=50_000, connection_window=WINDOW)
        response = await open_response(connection, peer)
        data = bytes(n % 251 for n in range(20_000))
        frames = [hyperframe.frame.DataFrame(response.stream_id, data[at : at + 2]) for at in range(0, 20_000, 2)]
        peer.send_raw(b"".join(frame.serialize() for frame in frames))
        await trio.testing.wait_all_tasks_blocked()
        assert response.buffered == 20_000
        assert len(response._chunks) <= 20
        got = b""
        while len(got) < len(data):
            got += await response.receive()
        assert got == data

    async def test_padding_opens_the_stream_window_too(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=20_000, connection_window=WINDOW)
        response = await open_response(connection, peer)
        for _ in range(20):
            await peer.settle()
            for _ in range(8):
                peer.h2.send_data(response.stream_id, b"x" * 1000, pad_length=255)
            await peer.settle()
            assert len(await response.receive()) == 8000

    async def test_frames_of_padding_only_open_the_stream_window_too(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=20_000, connection_window=WINDOW)
        response = await open_response(connection, peer)
        for _ in range(2000):
            peer.h2.send_data(response.stream_id, b"", pad_length=255)
            peer.flush()
            if peer.h2.local_flow_control_window(response.stream_id) < 1000:
                await peer.settle()
        assert response.buffered == 0


class TestClosingAStream:
    async def test_closing_an_open_stream_resets_it_once(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        response.close()
        response.close()
        await peer.settle()
        [reset] = peer.received(h2.events.StreamReset)
        assert (reset.stream_id, reset.error_code) == (response.stream_id, ErrorCodes.CANCEL)

    async def test_closing_an_ended_stream_does_not_reset_it(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        peer.send(response.stream_id, b"all", end=True)
        await peer.settle()
        response.close()
        await peer.settle()
        assert not peer.received(h2.events.StreamReset)

    async def test_late_data_of_a_closed_stream_does_not_use_up_the_connection_window(
        self, make_connection, autojump_clock
    ):
        connection, peer = await make_connection(stream_window=60_000, connection_window=WINDOW)
        sibling = await open_response(connection, peer)
        for _ in range(20):
            abandoned = await open_response(connection, peer)
            abandoned.close()
            # The peer has not received the RST_STREAM yet.
            assert peer.send(abandoned.stream_id, b"late" * 10_000) > 0
            await peer.settle()
        got = 0
        while got < 3 * WINDOW:
            await peer.settle()
            assert peer.send(sibling.stream_id, b"x" * 60_000) > 0, "the connection window is used up"
            await peer.settle()
            got += len(await sibling.receive())

    async def test_unread_data_of_a_closed_stream_opens_the_connection_window(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=60_000, connection_window=WINDOW)
        for _ in range(20):
            abandoned = await open_response(connection, peer)
            assert peer.send(abandoned.stream_id, b"x" * 60_000) == 60_000
            await peer.settle()
            abandoned.close()
            await peer.settle()

    async def test_late_headers_of_a_closed_stream_do_not_disturb_other_streams(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        abandoned = await connection.request(HEADERS, b"")
        sibling = await connection.request(HEADERS, b"")
        await peer.settle()
        abandoned.close()
        # The headers of the second response refer to entries that the first one added to the HPACK table.
        peer.respond(abandoned.stream_id, 200, server="a server with a long name")
        peer.send(abandoned.stream_id, b"late", end=True)
        peer.respond(sibling.stream_id, 200, server="a server with a long name")
        await peer.settle()
        assert await sibling.response() == 200
        assert sibling.headers["server"] == "a server with a long name"


class TestResets:
    async def test_a_reset_by_the_peer_ends_one_stream_after_its_data(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        reset, other = await open_response(connection, peer), await open_response(connection, peer)
        peer.send(reset.stream_id, b"before")
        peer.h2.reset_stream(reset.stream_id, ErrorCodes.INTERNAL_ERROR)
        peer.send(other.stream_id, b"data")
        await peer.settle()
        assert await reset.receive() == b"before"
        with pytest.raises(StreamResetError, match="INTERNAL_ERROR") as raised:
            await reset.receive()
        assert raised.value.code == ErrorCodes.INTERNAL_ERROR
        reset.close()
        assert await other.receive() == b"data"

    async def test_a_reset_before_the_response_is_raised(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await connection.request(HEADERS, b"")
        await peer.settle()
        peer.h2.reset_stream(response.stream_id, 0xBEEF)
        await peer.settle()
        with pytest.raises(StreamResetError, match="error code 48879"):
            await response.response()


class TestGoAway:
    async def test_streams_up_to_the_last_stream_id_continue_and_later_ones_fail(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        named, later = await open_response(connection, peer), await open_response(connection, peer)
        peer.goaway(named.stream_id)
        await peer.settle()
        assert not connection.is_usable
        assert connection.capacity == 0
        with pytest.raises(GoAwayError):
            await later.receive()
        with pytest.raises(GoAwayError, match="NO_ERROR"):
            await connection.request(HEADERS, b"")
        later.close()
        peer.send(named.stream_id, b"the rest", end=True)
        await peer.settle()
        assert await read_all(named) == b"the rest"

    async def test_the_connection_closes_after_its_last_stream_has_ended(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        peer.goaway(response.stream_id)
        peer.send(response.stream_id, b"the rest", end=True)
        await peer.settle()
        assert connection.closed_by is None
        response.close()
        await peer.settle()
        assert isinstance(connection.closed_by, GoAwayError)

    async def test_the_connection_closes_after_its_last_stream_was_closed_early(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        peer.goaway(response.stream_id)
        await peer.settle()
        response.close()
        await peer.settle()
        assert isinstance(connection.closed_by, GoAwayError)

    async def test_a_second_goaway_may_have_a_lower_last_stream_id(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        first, second = await open_response(connection, peer), await open_response(connection, peer)
        peer.goaway(2**31 - 1)
        await peer.settle()
        peer.send(second.stream_id, b"still")
        await peer.settle()
        assert await second.receive() == b"still"
        peer.goaway(first.stream_id)
        await peer.settle()
        with pytest.raises(GoAwayError):
            await second.receive()
        peer.send(first.stream_id, b"the rest")
        await peer.settle()
        assert await first.receive() == b"the rest"

    async def test_a_connection_without_streams_closes_at_once(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        peer.goaway(0, ErrorCodes.ENHANCE_YOUR_CALM)
        await peer.settle()
        with pytest.raises(GoAwayError, match="ENHANCE_YOUR_CALM"):
            await connection.request(HEADERS, b"")
        assert isinstance(connection.closed_by, GoAwayError)

    async def test_a_close_after_goaway_is_reported_as_goaway(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        peer.goaway(response.stream_id)
        peer.close()
        await peer.settle()
        with pytest.raises(GoAwayError):
            await response.receive()


class TestPing:
    async def test_a_peer_that_does_not_respond_to_a_ping_is_dead(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        await trio.sleep(PING_INTERVAL - 1)
        peer.send(response.stream_id, b"the last data")
        await peer.settle()
        assert await response.receive() == b"the last data"
        last_data_at = trio.current_time()
        with pytest.raises(TransportError, match="did not respond to a PING"):
            await response.receive()
        assert trio.current_time() - last_data_at == pytest.approx(PING_INTERVAL + PING_DEADLINE)
        with pytest.raises(TransportError, match="PING"):
            await connection.request(HEADERS, b"")

    async def test_a_silent_peer_that_responds_to_pings_is_alive(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        nursery.start_soon(peer.serve)
        await trio.sleep(3600)
        assert connection.closed_by is None
        assert len(peer.received(h2.events.PingReceived)) > 50
        peer.send(response.stream_id, b"at last")
        peer.flush()
        assert await response.receive() == b"at last"

    async def test_a_peer_that_sends_data_gets_no_ping(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        nursery.start_soon(peer.serve)
        for _ in range(100):
            await trio.sleep(5)
            peer.send(response.stream_id, b"event")
            peer.flush()
            await response.receive()
        assert not peer.received(h2.events.PingReceived)


class TestSettings:
    async def test_a_connection_is_usable_after_the_peers_settings(self, make_connection, autojump_clock):
        connection, peer = await make_connection(greet=False)
        assert not connection.is_usable
        assert connection.capacity == 0
        await peer.settle()
        await connection.wait_ready()
        assert connection.is_usable

    @pytest.mark.parametrize("size", [1, 3, 1000])
    async def test_a_peer_that_speaks_http_1_is_reported_as_not_http2(self, make_connection, size, autojump_clock):
        connection, peer = await make_connection(greet=False)
        data = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
        for at in range(0, len(data), size):
            peer.send_raw(data[at : at + size])
            await trio.testing.wait_all_tasks_blocked()
            if connection.closed_by:
                break
        with pytest.raises(NotHttp2Error, match="HTTP/1"):
            await connection.wait_ready()

    async def test_a_peer_that_closes_before_its_settings_is_an_error(self, make_connection, autojump_clock):
        connection, peer = await make_connection(greet=False)
        peer.received_by_client.put_eof()
        with pytest.raises(TransportError, match="peer:443 closed the connection"):
            await connection.wait_ready()


class TestEndOfTheConnection:
    async def test_a_connection_that_the_peer_closes_fails_all_open_streams(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        reading, requesting = await open_response(connection, peer), await connection.request(HEADERS, b"")
        peer.send(reading.stream_id, b"half a message")
        await peer.settle()
        peer.close()
        assert await reading.receive() == b"half a message"
        for call in (reading.receive, reading.receive, requesting.response):
            with pytest.raises(TransportError, match="closed the connection"):
                await call()
        with pytest.raises(TransportError):
            await connection.request(HEADERS, b"")
        reading.close()
        requesting.close()

    async def test_a_response_that_was_complete_before_the_end_can_still_be_read(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        peer.send(response.stream_id, b"complete", end=True)
        await peer.settle()
        peer.close()
        await trio.testing.wait_all_tasks_blocked()
        assert connection.closed_by is not None
        assert await read_all(response) == b"complete"

    async def test_close_ends_the_streams_and_the_byte_stream(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        connection.close()
        with pytest.raises(TransportError, match="was closed"):
            await response.receive()
        assert connection.closed_by is not None
        await trio.testing.wait_all_tasks_blocked()
        peer.sent_by_client.get_data_nowait()
        assert peer.sent_by_client.get_data_nowait() == b"", "the byte stream is not closed"

    @pytest.mark.parametrize(
        "frame",
        [
            hyperframe.frame.DataFrame(99, b"for an unknown stream"),
            hyperframe.frame.WindowUpdateFrame(0, window_increment=2**31 - 1),
            hyperframe.frame.PushPromiseFrame(1, promised_stream_id=2, data=b"", flags=["END_HEADERS"]),
            hyperframe.frame.HeadersFrame(1, b"\xff\xff\xff\xff\xff", flags=["END_HEADERS"]),
            hyperframe.frame.GoAwayFrame(0, last_stream_id=1, additional_data=b"x" * 20_000),
        ],
        ids=["unknown stream", "window overflow", "push", "undecodable headers", "frame too large"],
    )
    async def test_an_invalid_frame_ends_the_connection_with_a_transport_error(
        self, make_connection, frame, autojump_clock
    ):
        connection, peer = await make_connection()
        response = await connection.request(HEADERS, b"")
        await peer.settle()
        peer.send_frame(frame)
        with pytest.raises(TransportError, match="broke the HTTP/2 protocol"):
            await response.response()

    @pytest.mark.parametrize(
        "headers",
        [
            [(b":status", b"abc")],
            [(b":status", b"0")],
            [(b":status", b"-1")],
            [(b":status", b"")],
            [(b":status", b"\xb2\xb2\xb2")],
            [(b":status", b"200"), (b"x-name", b"caf\xe9")],
            [(b"x-no", b"status")],
        ],
        ids=["letters", "zero", "negative", "empty", "not ASCII", "a header that is not UTF-8", "no status"],
    )
    async def test_invalid_response_headers_raise_only_transport_errors(self, make_connection, headers, autojump_clock):
        connection, peer = await make_connection()
        response = await connection.request(HEADERS, b"")
        await peer.settle()
        block = hpack.Encoder().encode(headers)
        peer.send_frame(hyperframe.frame.HeadersFrame(response.stream_id, block, flags=["END_HEADERS"]))
        await trio.testing.wait_all_tasks_blocked()
        if response.status != 200:
            with pytest.raises(TransportError):
                await response.response()

    async def test_data_beyond_the_window_ends_the_connection_with_a_transport_error(
        self, make_connection, autojump_clock
    ):
        connection, peer = await make_connection(stream_window=10_000, connection_window=WINDOW)
        response = await open_response(connection, peer)
        peer.send_frame(hyperframe.frame.DataFrame(response.stream_id, b"x" * 10_001))
        with pytest.raises(TransportError, match="broke the HTTP/2 protocol"):
            await response.receive()

    async def test_a_reader_that_runs_before_the_connections_nursery_has_ended_gets_the_error(
        self, make_connection, autojump_clock
    ):
        connection, peer = await make_connection(stream_window=10_000, connection_window=WINDOW)
        response = await open_response(connection, peer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_until_the_error, response)
            await trio.testing.wait_all_tasks_blocked()
            frames = (
                hyperframe.frame.DataFrame(response.stream_id, b"x" * 5000),
                # GOAWAY splits the received data in two parts.
                hyperframe.frame.GoAwayFrame(0, last_stream_id=response.stream_id),
                hyperframe.frame.DataFrame(99, b"for an unknown stream"),
            )
            peer.send_raw(b"".join(frame.serialize() for frame in frames))


class TestAPeerThatDoesNotRead:
    """The peer sends PING or SETTINGS frames, which need a reply, and does not read the replies."""

    @pytest.mark.parametrize(
        ("frame", "count"),
        [(hyperframe.frame.PingFrame(0, bytes(8)), 500), (hyperframe.frame.SettingsFrame(0), 50)],
        ids=["PING", "SETTINGS"],
    )
    async def test_the_replies_that_are_not_sent_have_a_memory_limit(self, nursery, frame, count, autojump_clock):
        """As many frames as a peer may send within a second (frame_meter.py), second by second."""
        incoming, outgoing = trio.testing.MemoryReceiveStream(), trio.testing.MemorySendStream(trio.sleep_forever)
        connection = Connection(trio.StapledStream(outgoing, incoming), address="peer:443")
        nursery.start_soon(connection.run)
        incoming.put_data(hyperframe.frame.SettingsFrame(0).serialize())
        await connection.wait_ready()
        await trio.sleep(1)
        while connection.closed_by is None:
            incoming.put_data(frame.serialize() * count)
            await trio.sleep(1)  # in the end the peer does not respond to a PING in time
            assert connection.unsent <= MAX_UNSENT + 256 * 1024
        assert "did not respond to a PING" in str(connection.closed_by)

    async def test_the_connection_continues_when_the_peer_reads_again(self, nursery, monkeypatch, autojump_clock):
        monkeypatch.setattr("efo.kinesis.connection.MAX_UNSENT", 1000)
        can_send = trio.Event()
        incoming, outgoing = trio.testing.MemoryReceiveStream(), trio.testing.MemorySendStream(can_send.wait)
        connection = Connection(trio.StapledStream(outgoing, incoming), address="peer:443")
        nursery.start_soon(connection.run)
        ping = hyperframe.frame.PingFrame(0, bytes(8)).serialize()
        for _ in range(5):
            incoming.put_data(ping * 100)
            await trio.testing.wait_all_tasks_blocked()
        assert 1000 < connection.unsent < 200 * len(ping)
        can_send.set()
        await trio.testing.wait_all_tasks_blocked()
        assert connection.unsent == 0
        replies = outgoing.get_data_nowait().count(hyperframe.frame.PingFrame(0, bytes(8), flags=["ACK"]).serialize())
        assert replies == 500


async def read_until_the_error(response):
    with pytest.raises(TransportError, match="sent GOAWAY"):
        await read_to_the_end(response)
    response.close()


async def read_to_the_end(response):
    while await response.receive():
        pass


class TestCancellation:
    """Every await of a stream may be cancelled, and the connection stays usable."""

    async def is_usable(self, connection, peer):
        response = await open_response(connection, peer)
        peer.send(response.stream_id, b"fine", end=True)
        await peer.settle()
        return await read_all(response) == b"fine"

    async def test_a_cancelled_request_resets_its_stream(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        with trio.CancelScope() as scope:
            nursery.start_soon(self._cancel_when_blocked, scope)
            await connection.request(HEADERS, b"x" * 95)
        assert scope.cancelled_caught
        await peer.settle()
        assert peer.received(h2.events.StreamReset, 1)
        assert connection.open_streams == 0
        assert await self.is_usable(connection, peer)

    async def test_a_cancelled_wait_for_the_response_can_be_repeated(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection()
        response = await connection.request(HEADERS, b"")
        await peer.settle()
        with trio.CancelScope() as scope:
            nursery.start_soon(self._cancel_when_blocked, scope)
            await response.response()
        assert scope.cancelled_caught
        peer.respond(response.stream_id)
        await peer.settle()
        assert await response.response() == 200
        assert await self.is_usable(connection, peer)

    async def test_a_cancelled_receive_loses_no_data(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection()
        response = await open_response(connection, peer)
        got = b""
        for n in range(5):
            with trio.CancelScope() as scope:
                nursery.start_soon(self._cancel_when_blocked, scope)
                await response.receive()
            assert scope.cancelled_caught
            peer.send(response.stream_id, b"%d" % n)
            await peer.settle()
            with trio.CancelScope() as cancelled:
                cancelled.cancel()
                got += await response.receive()
        assert got == b"01234"
        assert await self.is_usable(connection, peer)

    async def test_a_cancelled_wait_for_settings_leaves_the_connection_usable(
        self, make_connection, nursery, autojump_clock
    ):
        connection, peer = await make_connection(greet=False)
        with trio.CancelScope() as scope:
            nursery.start_soon(self._cancel_when_blocked, scope)
            await connection.wait_ready()
        await peer.settle()
        assert await self.is_usable(connection, peer)

    async def _cancel_when_blocked(self, scope):
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
