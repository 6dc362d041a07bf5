"""HTTP/2 as SubscribeToShard needs it: windows, resets, GOAWAY, PING and cancellation (rules R8, R9, R14)."""

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


async def opened(connection, peer, status=200):
    """A stream whose response's headers have arrived."""
    answer = await connection.request(HEADERS, b"ask")
    await peer.settle()
    peer.respond(answer.stream_id, status)
    await peer.settle()
    return answer


async def read_all(answer):
    data = b""
    while more := await answer.receive():
        data += more
    return data


class TestRequests:
    async def test_a_request_and_its_answer(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await connection.request([*HEADERS, ("x-test", "yes")], b"question")
        await peer.settle()
        [request] = peer.saw(h2.events.RequestReceived)
        assert ("x-test", "yes") in request.headers
        assert peer.bodies[answer.stream_id] == b"question"
        assert peer.saw(h2.events.StreamEnded, answer.stream_id)
        peer.respond(answer.stream_id, 201, server="fake")
        peer.send(answer.stream_id, b"hello ")
        peer.send(answer.stream_id, b"world", end=True)
        await peer.settle()
        assert await answer.response() == 201
        assert answer.headers["server"] == "fake"
        assert await read_all(answer) == b"hello world"
        assert await answer.receive() == b""
        answer.close()
        assert connection.open_streams == 0

    async def test_a_request_without_a_body(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await connection.request(HEADERS, b"")
        await peer.settle()
        assert peer.saw(h2.events.StreamEnded, answer.stream_id)

    async def test_many_streams_at_once(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answers = [await opened(connection, peer) for _ in range(50)]
        assert connection.open_streams == 50
        for round_ in range(3):
            for answer in reversed(answers):
                peer.send(answer.stream_id, b"%d/%d " % (answer.stream_id, round_))
        await peer.settle()
        for answer in answers:
            assert await answer.receive() == b"".join(b"%d/%d " % (answer.stream_id, n) for n in range(3))

    async def test_an_informational_response_is_not_the_response(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await connection.request(HEADERS, b"")
        await peer.settle()
        peer.respond(answer.stream_id, 103)
        await peer.settle()
        assert answer.status == 0
        peer.respond(answer.stream_id, 200)
        await peer.settle()
        assert await answer.response() == 200

    async def test_trailers_end_the_answer(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        peer.send(answer.stream_id, b"data")
        peer.h2.send_headers(answer.stream_id, [("x-trailer", "1")], end_stream=True)
        await peer.settle()
        assert await read_all(answer) == b"data"

    async def test_the_peer_limits_the_number_of_streams(self, make_connection, autojump_clock):
        connection, peer = await make_connection({SettingCodes.MAX_CONCURRENT_STREAMS: 2})
        assert connection.capacity == 2
        first = await opened(connection, peer)
        await opened(connection, peer)
        assert connection.capacity == 0
        with pytest.raises(TransportError, match="accepts no request"):
            await connection.request(HEADERS, b"")
        first.close()
        await peer.settle()
        assert connection.capacity == 1
        await opened(connection, peer)


class TestBodies:
    async def test_a_body_larger_than_the_peers_window(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        nursery.start_soon(connection.request, HEADERS, b"x" * 95)
        await peer.settle()
        assert len(peer.bodies[1]) == 10
        for _ in range(9):
            peer.h2.increment_flow_control_window(10, 1)
            await peer.settle()
        assert peer.bodies[1] == b"x" * 95
        assert peer.saw(h2.events.StreamEnded, 1)

    async def test_a_body_of_many_frames(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection()
        nursery.start_soon(connection.request, HEADERS, b"y" * 60_000)
        await peer.settle()
        assert peer.bodies[1] == b"y" * 60_000

    @pytest.mark.parametrize("end", [True, False])
    async def test_a_peer_that_answers_before_it_has_the_body(self, make_connection, nursery, end, autojump_clock):
        connection, peer = await make_connection(
            {SettingCodes.INITIAL_WINDOW_SIZE: 10, SettingCodes.MAX_CONCURRENT_STREAMS: 1}
        )
        statuses = []

        async def ask():
            answer = await connection.request(HEADERS, b"x" * 95)
            statuses.append(await answer.response())
            answer.close()

        nursery.start_soon(ask)
        await peer.settle()
        peer.respond(1, 400)
        if end:
            peer.h2.end_stream(1)
        else:
            peer.h2.increment_flow_control_window(200, 1)
        await peer.settle()
        assert statuses == [400]
        assert peer.saw(h2.events.StreamReset, 1), "or the stream counts for ever"
        await opened(connection, peer)

    async def test_a_peer_that_resets_the_stream_before_it_has_the_body(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        errors = []

        async def ask():
            with pytest.raises(StreamResetError) as raised:
                await (await connection.request(HEADERS, b"x" * 95)).response()
            errors.append(raised.value.code)

        nursery.start_soon(ask)
        await peer.settle()
        peer.h2.reset_stream(1, ErrorCodes.REFUSED_STREAM)
        await peer.settle()
        assert errors == [ErrorCodes.REFUSED_STREAM]

    async def test_a_connection_that_goes_away_takes_the_rest_of_a_body_that_it_has_begun(
        self, make_connection, nursery, autojump_clock
    ):
        connection, peer = await make_connection({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        answers = []

        async def ask():
            answers.append(await connection.request(HEADERS, b"x" * 95))

        nursery.start_soon(ask)
        await peer.settle()
        peer.goaway(1)
        peer.h2.increment_flow_control_window(200, 1)
        peer.respond(1)
        await peer.settle()
        assert peer.bodies[1] == b"x" * 95
        assert await answers[0].response() == 200


class TestWindows:
    @pytest.mark.scenario("G61")
    async def test_a_stream_that_is_not_read_gets_its_window_and_no_more(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=50_000, connection_window=WINDOW)
        answer = await opened(connection, peer)
        for _ in range(5):
            peer.send(answer.stream_id, b"x" * 100_000)
            await peer.settle()
        assert answer.buffered == 50_000
        assert peer.h2.local_flow_control_window(answer.stream_id) == 0

    async def test_taking_opens_it_again(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=50_000, connection_window=WINDOW)
        answer = await opened(connection, peer)
        data = bytes(n % 251 for n in range(500_000))
        sent, got = 0, b""
        while len(got) < len(data):
            await peer.settle()
            sent += peer.send(answer.stream_id, data[sent:])
            await peer.settle()
            assert answer.buffered <= 50_000
            got += await answer.receive()
        assert got == data

    @pytest.mark.scenario("G61")
    async def test_a_slow_reader_stalls_nobody_else(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=60_000, connection_window=WINDOW)
        slow = [await opened(connection, peer) for _ in range(4)]  # together more than the connection's window
        quick = await opened(connection, peer)
        got = 0
        for _ in range(100):
            for answer in slow:
                peer.send(answer.stream_id, b"s" * 20_000)
            peer.send(quick.stream_id, b"q" * 20_000)
            await peer.settle()
            got += len(await quick.receive())
        assert got > 10 * WINDOW
        assert [answer.buffered for answer in slow] == [60_000] * 4

    async def test_data_in_tiny_frames_is_held_in_few_pieces(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=50_000, connection_window=WINDOW)
        answer = await opened(connection, peer)
        data = bytes(n % 251 for n in range(20_000))
        frames = [hyperframe.frame.DataFrame(answer.stream_id, data[at : at + 2]) for at in range(0, 20_000, 2)]
        peer.send_raw(b"".join(frame.serialize() for frame in frames))
        await trio.testing.wait_all_tasks_blocked()
        assert answer.buffered == 20_000
        assert len(answer._chunks) <= 20
        got = b""
        while len(got) < len(data):
            got += await answer.receive()
        assert got == data

    async def test_padding_is_credited_too(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=20_000, connection_window=WINDOW)
        answer = await opened(connection, peer)
        for _ in range(20):
            await peer.settle()
            for _ in range(8):
                peer.h2.send_data(answer.stream_id, b"x" * 1000, pad_length=255)
            await peer.settle()
            assert len(await answer.receive()) == 8000

    async def test_even_where_there_is_nothing_but_padding(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=20_000, connection_window=WINDOW)
        answer = await opened(connection, peer)
        for _ in range(2000):
            peer.h2.send_data(answer.stream_id, b"", pad_length=255)
            peer.flush()
            if peer.h2.local_flow_control_window(answer.stream_id) < 1000:
                await peer.settle()
        assert answer.buffered == 0


class TestGivingUp:
    async def test_a_stream_that_is_given_up_is_reset(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        answer.close()
        answer.close()
        await peer.settle()
        [reset] = peer.saw(h2.events.StreamReset)
        assert (reset.stream_id, reset.error_code) == (answer.stream_id, ErrorCodes.CANCEL)

    async def test_one_that_has_ended_is_not(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        peer.send(answer.stream_id, b"all", end=True)
        await peer.settle()
        answer.close()
        await peer.settle()
        assert not peer.saw(h2.events.StreamReset)

    async def test_its_late_data_does_not_eat_the_connections_window(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=60_000, connection_window=WINDOW)
        sibling = await opened(connection, peer)
        for _ in range(20):
            abandoned = await opened(connection, peer)
            abandoned.close()
            # The peer has not seen the RST yet.
            assert peer.send(abandoned.stream_id, b"late" * 10_000) > 0
            await peer.settle()
        got = 0
        while got < 3 * WINDOW:
            await peer.settle()
            assert peer.send(sibling.stream_id, b"x" * 60_000) > 0, "the connection's window is gone"
            await peer.settle()
            got += len(await sibling.receive())

    async def test_what_it_had_not_read_is_credited(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=60_000, connection_window=WINDOW)
        for _ in range(20):
            abandoned = await opened(connection, peer)
            assert peer.send(abandoned.stream_id, b"x" * 60_000) == 60_000
            await peer.settle()
            abandoned.close()
            await peer.settle()

    async def test_late_headers_do_not_disturb_the_neighbours(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        abandoned = await connection.request(HEADERS, b"")
        sibling = await connection.request(HEADERS, b"")
        await peer.settle()
        abandoned.close()
        # Of the same header block table: the second response refers to what the first has put there.
        peer.respond(abandoned.stream_id, 200, server="a server with a long name")
        peer.send(abandoned.stream_id, b"late", end=True)
        peer.respond(sibling.stream_id, 200, server="a server with a long name")
        await peer.settle()
        assert await sibling.response() == 200
        assert sibling.headers["server"] == "a server with a long name"


class TestResets:
    async def test_the_peer_resets_one_stream(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        reset, other = await opened(connection, peer), await opened(connection, peer)
        peer.send(reset.stream_id, b"before")
        peer.h2.reset_stream(reset.stream_id, ErrorCodes.INTERNAL_ERROR)
        peer.send(other.stream_id, b"goes on")
        await peer.settle()
        assert await reset.receive() == b"before"
        with pytest.raises(StreamResetError, match="INTERNAL_ERROR") as raised:
            await reset.receive()
        assert raised.value.code == ErrorCodes.INTERNAL_ERROR
        reset.close()
        assert await other.receive() == b"goes on"

    async def test_before_the_response(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await connection.request(HEADERS, b"")
        await peer.settle()
        peer.h2.reset_stream(answer.stream_id, 0xBEEF)
        await peer.settle()
        with pytest.raises(StreamResetError, match="error code 48879"):
            await answer.response()


class TestGoAway:
    async def test_streams_that_it_names_go_on_and_later_ones_fail(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        named, later = await opened(connection, peer), await opened(connection, peer)
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

    async def test_when_the_last_stream_is_closed_so_is_the_connection(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        peer.goaway(answer.stream_id)
        peer.send(answer.stream_id, b"the rest", end=True)
        await peer.settle()
        assert connection.closed_by is None
        answer.close()
        await peer.settle()
        assert isinstance(connection.closed_by, GoAwayError)

    async def test_a_stream_that_is_given_up_counts_as_closed(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        peer.goaway(answer.stream_id)
        await peer.settle()
        answer.close()
        await peer.settle()
        assert isinstance(connection.closed_by, GoAwayError)

    async def test_a_second_one_may_name_fewer(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        first, second = await opened(connection, peer), await opened(connection, peer)
        peer.goaway(2**31 - 1)
        await peer.settle()
        peer.send(second.stream_id, b"still")
        await peer.settle()
        assert await second.receive() == b"still"
        peer.goaway(first.stream_id)
        await peer.settle()
        with pytest.raises(GoAwayError):
            await second.receive()
        peer.send(first.stream_id, b"to the end")
        await peer.settle()
        assert await first.receive() == b"to the end"

    async def test_without_streams_the_connection_ends_at_once(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        peer.goaway(0, ErrorCodes.ENHANCE_YOUR_CALM)
        await peer.settle()
        with pytest.raises(GoAwayError, match="ENHANCE_YOUR_CALM"):
            await connection.request(HEADERS, b"")
        assert isinstance(connection.closed_by, GoAwayError)

    async def test_a_peer_that_then_closes_has_told_why(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        peer.goaway(answer.stream_id)
        peer.hang_up()
        await peer.settle()
        with pytest.raises(GoAwayError):
            await answer.receive()


class TestPing:
    async def test_a_peer_that_does_not_answer_is_dead(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        await trio.sleep(PING_INTERVAL - 1)
        peer.send(answer.stream_id, b"the last that it says")
        await peer.settle()
        assert await answer.receive() == b"the last that it says"
        heard = trio.current_time()
        with pytest.raises(TransportError, match="did not respond to a PING"):
            await answer.receive()
        assert trio.current_time() - heard == pytest.approx(PING_INTERVAL + PING_DEADLINE)
        with pytest.raises(TransportError, match="PING"):
            await connection.request(HEADERS, b"")

    async def test_one_that_answers_is_alive_however_quiet(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        nursery.start_soon(peer.serve)
        await trio.sleep(3600)
        assert connection.closed_by is None
        assert len(peer.saw(h2.events.PingReceived)) > 50
        peer.send(answer.stream_id, b"at last")
        peer.flush()
        assert await answer.receive() == b"at last"

    async def test_one_that_sends_is_not_asked(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        nursery.start_soon(peer.serve)
        for _ in range(100):
            await trio.sleep(5)
            peer.send(answer.stream_id, b"event")
            peer.flush()
            await answer.receive()
        assert not peer.saw(h2.events.PingReceived)


class TestGreeting:
    async def test_a_connection_is_usable_after_the_peers_settings(self, make_connection, autojump_clock):
        connection, peer = await make_connection(greet=False)
        assert not connection.is_usable
        assert connection.capacity == 0
        await peer.settle()
        await connection.wait_ready()
        assert connection.is_usable

    @pytest.mark.parametrize("size", [1, 3, 1000])
    async def test_a_peer_that_speaks_http_1(self, make_connection, size, autojump_clock):
        connection, peer = await make_connection(greet=False)
        said = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
        for at in range(0, len(said), size):
            peer.send_raw(said[at : at + size])
            await trio.testing.wait_all_tasks_blocked()
            if connection.closed_by:
                break
        with pytest.raises(NotHttp2Error, match="HTTP/1"):
            await connection.wait_ready()

    async def test_a_peer_that_hangs_up(self, make_connection, autojump_clock):
        connection, peer = await make_connection(greet=False)
        peer.received_by_us.put_eof()
        with pytest.raises(TransportError, match="peer:443 closed the connection"):
            await connection.wait_ready()


class TestTheEnd:
    async def test_a_connection_that_is_cut(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        reading, asking = await opened(connection, peer), await connection.request(HEADERS, b"")
        peer.send(reading.stream_id, b"half a mess")
        await peer.settle()
        peer.hang_up()
        assert await reading.receive() == b"half a mess"
        for broken in (reading.receive, reading.receive, asking.response):
            with pytest.raises(TransportError, match="closed the connection"):
                await broken()
        with pytest.raises(TransportError):
            await connection.request(HEADERS, b"")
        reading.close()
        asking.close()

    async def test_what_had_ended_before_stays_whole(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        peer.send(answer.stream_id, b"complete", end=True)
        await peer.settle()
        peer.hang_up()
        await trio.testing.wait_all_tasks_blocked()
        assert connection.closed_by is not None
        assert await read_all(answer) == b"complete"

    async def test_close(self, make_connection, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        connection.close()
        with pytest.raises(TransportError, match="was closed"):
            await answer.receive()
        assert connection.closed_by is not None
        await trio.testing.wait_all_tasks_blocked()
        peer.sent_by_us.get_data_nowait()
        assert peer.sent_by_us.get_data_nowait() == b"", "the stream is closed"

    @pytest.mark.parametrize(
        "frame",
        [
            hyperframe.frame.DataFrame(99, b"a stream that nobody opened"),
            hyperframe.frame.WindowUpdateFrame(0, window_increment=2**31 - 1),
            hyperframe.frame.PushPromiseFrame(1, promised_stream_id=2, data=b"", flags=["END_HEADERS"]),
            hyperframe.frame.HeadersFrame(1, b"\xff\xff\xff\xff\xff", flags=["END_HEADERS"]),
            hyperframe.frame.GoAwayFrame(0, last_stream_id=1, additional_data=b"x" * 20_000),
        ],
        ids=["data of no stream", "window overflow", "push", "headers that do not decode", "too large"],
    )
    async def test_a_peer_that_breaks_the_protocol(self, make_connection, frame, autojump_clock):
        connection, peer = await make_connection()
        answer = await connection.request(HEADERS, b"")
        await peer.settle()
        peer.send_frame(frame)
        with pytest.raises(TransportError, match="broke the HTTP/2 protocol"):
            await answer.response()

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
    async def test_strange_response_headers_never_escape_as_foreign_errors(
        self, make_connection, headers, autojump_clock
    ):
        connection, peer = await make_connection()
        answer = await connection.request(HEADERS, b"")
        await peer.settle()
        block = hpack.Encoder().encode(headers)
        peer.send_frame(hyperframe.frame.HeadersFrame(answer.stream_id, block, flags=["END_HEADERS"]))
        await trio.testing.wait_all_tasks_blocked()
        if answer.status != 200:
            with pytest.raises(TransportError):
                await answer.response()

    async def test_a_peer_that_sends_more_than_the_window(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=10_000, connection_window=WINDOW)
        answer = await opened(connection, peer)
        peer.send_frame(hyperframe.frame.DataFrame(answer.stream_id, b"x" * 10_001))
        with pytest.raises(TransportError, match="broke the HTTP/2 protocol"):
            await answer.receive()

    async def test_a_reader_whose_turn_comes_before_the_connection_is_unwound(self, make_connection, autojump_clock):
        connection, peer = await make_connection(stream_window=10_000, connection_window=WINDOW)
        answer = await opened(connection, peer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_to_the_error, answer)
            await trio.testing.wait_all_tasks_blocked()
            frames = (
                hyperframe.frame.DataFrame(answer.stream_id, b"x" * 5000),
                hyperframe.frame.GoAwayFrame(0, last_stream_id=answer.stream_id),  # makes two pieces of one reading
                hyperframe.frame.DataFrame(99, b"a stream that nobody opened"),
            )
            peer.send_raw(b"".join(frame.serialize() for frame in frames))


class TestAPeerThatTakesNothing:
    """It asks for answers, by PING or SETTINGS, and never reads one."""

    @pytest.mark.parametrize(
        "frame", [hyperframe.frame.PingFrame(0, bytes(8)), hyperframe.frame.SettingsFrame(0)], ids=["PING", "SETTINGS"]
    )
    async def test_its_answers_are_not_held_without_bound(self, nursery, frame, autojump_clock):
        incoming, outgoing = trio.testing.MemoryReceiveStream(), trio.testing.MemorySendStream(trio.sleep_forever)
        connection = Connection(trio.StapledStream(outgoing, incoming), address="peer:443")
        nursery.start_soon(connection.run)
        incoming.put_data(hyperframe.frame.SettingsFrame(0).serialize())
        await connection.wait_ready()
        sent = 0
        while connection.closed_by is None:
            incoming.put_data(frame.serialize() * 1000)
            sent += 1000 * len(frame.serialize())
            await trio.testing.wait_all_tasks_blocked()
            assert connection.unsent <= MAX_UNSENT + 256 * 1024
            if sent > 4 * 1024 * 1024:
                await trio.sleep(1)  # until PING finds that nothing is heard any more
        assert "PING" in str(connection.closed_by)

    async def test_one_that_takes_them_later_is_read_on(self, nursery, autojump_clock):
        takes = trio.Event()
        incoming, outgoing = trio.testing.MemoryReceiveStream(), trio.testing.MemorySendStream(takes.wait)
        connection = Connection(trio.StapledStream(outgoing, incoming), address="peer:443")
        nursery.start_soon(connection.run)
        ping = hyperframe.frame.PingFrame(0, bytes(8)).serialize()
        for _ in range(100):
            incoming.put_data(ping * 1000)
            await trio.testing.wait_all_tasks_blocked()
        takes.set()
        await trio.testing.wait_all_tasks_blocked()
        assert connection.unsent == 0
        answered = outgoing.get_data_nowait().count(hyperframe.frame.PingFrame(0, bytes(8), flags=["ACK"]).serialize())
        assert answered == 100_000


async def read_to_the_error(answer):
    with pytest.raises(TransportError, match="sent GOAWAY"):
        await read_on(answer)
    answer.close()


async def read_on(answer):
    while await answer.receive():
        pass


class TestCancellation:
    """Every await of a stream may be cancelled, and the connection goes on."""

    async def usable(self, connection, peer):
        answer = await opened(connection, peer)
        peer.send(answer.stream_id, b"fine", end=True)
        await peer.settle()
        return await read_all(answer) == b"fine"

    async def test_of_a_request(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        with trio.CancelScope() as scope:
            nursery.start_soon(self._cancel_when_blocked, scope)
            await connection.request(HEADERS, b"x" * 95)
        assert scope.cancelled_caught
        await peer.settle()
        assert peer.saw(h2.events.StreamReset, 1)
        assert connection.open_streams == 0
        assert await self.usable(connection, peer)

    async def test_of_waiting_for_the_response(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection()
        answer = await connection.request(HEADERS, b"")
        await peer.settle()
        with trio.CancelScope() as scope:
            nursery.start_soon(self._cancel_when_blocked, scope)
            await answer.response()
        assert scope.cancelled_caught
        peer.respond(answer.stream_id)
        await peer.settle()
        assert await answer.response() == 200
        assert await self.usable(connection, peer)

    async def test_of_receiving_loses_nothing(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection()
        answer = await opened(connection, peer)
        got = b""
        for n in range(5):
            with trio.CancelScope() as scope:
                nursery.start_soon(self._cancel_when_blocked, scope)
                await answer.receive()
            assert scope.cancelled_caught
            peer.send(answer.stream_id, b"%d" % n)
            await peer.settle()
            with trio.CancelScope() as cancelled:
                cancelled.cancel()
                got += await answer.receive()
        assert got == b"01234"
        assert await self.usable(connection, peer)

    async def test_of_the_greeting(self, make_connection, nursery, autojump_clock):
        connection, peer = await make_connection(greet=False)
        with trio.CancelScope() as scope:
            nursery.start_soon(self._cancel_when_blocked, scope)
            await connection.wait_ready()
        await peer.settle()
        assert await self.usable(connection, peer)

    async def _cancel_when_blocked(self, scope):
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
