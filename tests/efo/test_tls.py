"""TLS over a stream: either end of it, against trio's TLS at the other end (rules R9, R14)."""

from __future__ import annotations

import ssl

import pytest
import trio
import trio.testing
import trustme

from efo.tls import TlsStream, client_tls_context

MAX_BYTES = 256 * 1024
RECORD_SIZE = 16 * 1024


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    server.set_alpn_protocols(["h2", "http/1.1"])
    ca_file = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    client = client_tls_context(str(ca_file))
    client.set_alpn_protocols(["h2"])
    return server, client


@pytest.fixture
async def tcp_pair():
    """Two ends of a TCP connection on loopback."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        pair = await trio.open_tcp_stream(*listener.socket.getsockname()), await listener.accept()
    yield pair
    for stream in pair:
        await trio.aclose_forcefully(stream)


async def shake_hands(ours_on, theirs_on, contexts, *, server_side):
    """Return our end, a TlsStream, and the other end, a trio.SSLStream."""
    server, client = contexts
    ours_context, theirs_context = (server, client) if server_side else (client, server)
    ours_name, theirs_name = (None, "127.0.0.1") if server_side else ("127.0.0.1", None)
    ours = TlsStream(ours_on, ours_context, server_hostname=ours_name, server_side=server_side)
    theirs = trio.SSLStream(
        theirs_on, theirs_context, server_hostname=theirs_name, server_side=not server_side, https_compatible=True
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(theirs.do_handshake)
        await ours.do_handshake()
    if not server_side:
        # trio's server sends its session tickets before its first bytes.
        await theirs.send_all(b"hello")
        assert await ours.receive_some() == b"hello"
    return ours, theirs


@pytest.fixture(params=[False, True], ids=["client", "server"])
async def ends(request, contexts):
    """Our end and the other end, over memory streams, which take all bytes at once."""
    return await shake_hands(*trio.testing.memory_stream_pair(), contexts, server_side=request.param)


@pytest.fixture(params=[False, True], ids=["client", "server"])
async def tcp_ends(request, tcp_pair, contexts):
    """Our end and the other end, over TCP, which blocks a sender whose peer does not read."""
    return await shake_hands(*tcp_pair, contexts, server_side=request.param)


async def read_until(stream, size):
    received = bytearray()
    while len(received) < size:
        data = await stream.receive_some(100_000)
        assert data
        received += data
    return bytes(received)


@pytest.mark.parametrize("server_side", [False, True])
async def test_a_client_can_see_the_certificate_of_its_server(contexts, server_side):
    ours, _theirs = await shake_hands(*trio.testing.memory_stream_pair(), contexts, server_side=server_side)
    assert ("notAfter" in ours.certificate) is not server_side


async def test_data_is_sent_in_both_directions_at_the_same_time(tcp_ends):
    ours, theirs = tcp_ends
    assert ours.protocol == "h2"
    down, up = bytes(range(256)) * 40_000, bytes(range(255, -1, -1)) * 40_000
    received = {}

    async def read(name, stream, size):
        received[name] = await read_until(stream, size)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.send_all, bytearray(down))
        nursery.start_soon(theirs.send_all, up)
        nursery.start_soon(read, "up", ours, len(up))
        nursery.start_soon(read, "down", theirs, len(down))
    assert received == {"up": up, "down": down}


class TestReceiving:
    async def test_all_records_that_have_arrived_are_received_at_once(self, ends):
        ours, theirs = ends
        sent = [bytes([n]) * RECORD_SIZE for n in range(3)]
        for record in sent:
            await theirs.send_all(record)
        assert await ours.receive_some() == b"".join(sent)

    async def test_a_call_returns_at_most_its_limit_and_leaves_the_rest(self, ends):
        ours, theirs = ends
        sent = bytes(range(256)) * 4096
        await theirs.send_all(sent)
        received = b""
        for limit in (1, 10, RECORD_SIZE - 11, RECORD_SIZE, RECORD_SIZE + 1, 100_000):
            data = await ours.receive_some(limit)
            assert len(data) == limit
            received += data
        while len(received) < len(sent):
            data = await ours.receive_some()
            assert 0 < len(data) <= MAX_BYTES
            received += data
        assert received == sent

    async def test_nothing_but_a_part_of_a_record_is_read_ahead(self, ends):
        ours, theirs = ends
        await theirs.send_all(bytes(4 * MAX_BYTES))
        for _ in range(3):
            assert len(await ours.receive_some()) > MAX_BYTES - 3 * RECORD_SIZE
            assert ours._incoming.pending < RECORD_SIZE + 256

    async def test_a_part_of_a_record_is_waited_for(self, ends, nursery, autojump_clock):
        ours, theirs = ends
        theirs._ssl_object.write(b"a record in two parts")
        record = theirs._outgoing.read()
        received = []

        async def receive():
            received.append(await ours.receive_some())

        nursery.start_soon(receive)
        for at in range(len(record)):
            await trio.testing.wait_all_tasks_blocked()
            assert received == []
            await theirs.transport_stream.send_all(record[at : at + 1])
        await trio.testing.wait_all_tasks_blocked()
        assert received == [b"a record in two parts"]

    async def test_a_cancelled_call_loses_no_bytes(self, ends, nursery):
        ours, theirs = ends
        sent = bytes(range(256)) * 100
        received, calls, cancelled = b"", 0, 0
        while len(received) < len(sent):
            calls += 1
            assert calls < 5000, "bytes are lost"
            if calls % 5 == 0:  # else there is nothing to receive, or the rest of the last piece
                nursery.start_soon(theirs.send_all, sent[calls * 100 - 500 : calls * 100])
            with trio.CancelScope() as scope:
                nursery.start_soon(self._cancel_after, scope, calls % 4)
                received += await ours.receive_some(300)
            cancelled += scope.cancelled_caught
        assert received == sent
        assert 0 < cancelled < calls

    async def _cancel_after(self, scope, checkpoints):
        for _ in range(checkpoints):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    async def test_a_call_in_a_cancelled_scope_receives_nothing(self, ends):
        ours, theirs = ends
        await theirs.send_all(b"kept")
        with trio.CancelScope() as scope:
            scope.cancel()
            await ours.receive_some()
        assert scope.cancelled_caught
        assert await ours.receive_some() == b"kept"

    async def test_every_call_is_a_checkpoint(self, ends):
        ours, theirs = ends
        await theirs.send_all(b"12")
        for expected in (b"1", b"2"):
            with trio.testing.assert_checkpoints():
                assert await ours.receive_some(1) == expected
        await theirs.aclose()
        for _ in range(2):
            with trio.testing.assert_checkpoints():
                assert await ours.receive_some() == b""


class TestTheEnd:
    async def test_a_clean_close_of_the_peer_is_end_of_file(self, ends):
        ours, theirs = ends
        await theirs.send_all(b"last words")
        theirs._https_compatible = False  # sends close_notify
        await theirs.aclose()
        assert await ours.receive_some() == b"last words"
        assert await ours.receive_some() == b""
        assert await ours.receive_some() == b""

    async def test_a_cut_connection_is_end_of_file_after_its_data(self, ends):
        ours, theirs = ends
        await theirs.send_all(b"last words")
        await theirs.transport_stream.aclose()  # no close_notify
        assert await ours.receive_some() == b"last words"
        assert await ours.receive_some() == b""
        assert await ours.receive_some() == b""

    async def test_bytes_that_are_no_record_are_an_error_after_the_data_before_them(self, ends):
        ours, theirs = ends
        await theirs.send_all(b"last words")
        await theirs.transport_stream.send_all(b"this is not a TLS record, but plain text")
        assert await ours.receive_some() == b"last words"
        for _ in range(2):
            with pytest.raises(trio.BrokenResourceError) as raised:
                await ours.receive_some()
            assert isinstance(raised.value.__cause__, ssl.SSLError)

    async def test_aclose_sends_close_notify_and_wakes_a_receiver(self, ends):
        ours, theirs = ends

        async def receive():
            with pytest.raises(trio.ClosedResourceError):
                await ours.receive_some()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            await ours.aclose()
        theirs._https_compatible = False  # requires close_notify
        assert await theirs.receive_some() == b""
        await ours.aclose()
        for call in (ours.receive_some(), ours.send_all(b"x"), ours.wait_send_all_might_not_block()):
            with pytest.raises(trio.ClosedResourceError):
                await call

    async def test_a_stream_at_its_end_that_was_closed_raises(self, ends):
        ours, theirs = ends
        await theirs.transport_stream.aclose()
        assert await ours.receive_some() == b""
        await ours.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await ours.receive_some()

    async def test_it_is_closed_in_a_cancelled_scope_too(self, ends):
        ours, theirs = ends
        await trio.aclose_forcefully(ours)
        assert await theirs.receive_some() == b""


class TestSending:
    async def test_sending_to_a_closed_peer_is_a_broken_resource_error(self, tcp_ends):
        ours, theirs = tcp_ends
        await theirs.transport_stream.aclose()
        with pytest.raises(trio.BrokenResourceError) as raised:
            await ours.send_all(b"x" * 100_000_000)
        assert isinstance(raised.value.__cause__, OSError)

    async def test_a_send_can_be_cancelled(self, tcp_ends):
        ours, _ = tcp_ends
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ours.send_all, b"x" * 100_000_000)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        with pytest.raises(trio.BrokenResourceError):
            await ours.send_all(b"more")
        await ours.aclose()  # does not wait to send close_notify

    async def test_data_is_received_while_a_send_waits_for_the_peer(self, tcp_ends, nursery):
        ours, theirs = tcp_ends
        nursery.start_soon(ours.send_all, b"x" * 100_000_000)
        await trio.testing.wait_all_tasks_blocked()
        await theirs.send_all(b"data")
        assert await ours.receive_some() == b"data"
        nursery.cancel_scope.cancel()


class TestHandshake:
    @pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b""])
    @pytest.mark.parametrize("server_side", [True, False], ids=["server", "client"])
    async def test_an_invalid_handshake_is_a_broken_resource_error(self, contexts, sent, server_side):
        ours, theirs = trio.testing.memory_stream_pair()
        await theirs.send_all(sent)
        await theirs.send_eof()
        name = None if server_side else "127.0.0.1"
        tls = TlsStream(ours, contexts[0 if server_side else 1], server_hostname=name, server_side=server_side)
        with pytest.raises(trio.BrokenResourceError) as raised:
            await tls.do_handshake()
        assert isinstance(raised.value.__cause__, ssl.SSLError)
        await tls.aclose()

    async def test_a_certificate_of_another_name_is_the_cause_of_the_error(self, contexts):
        ours, theirs = trio.testing.memory_stream_pair()
        tls = TlsStream(ours, contexts[1], server_hostname="elsewhere.test")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.SSLStream(theirs, contexts[0], server_side=True).do_handshake)
            with pytest.raises(trio.BrokenResourceError) as raised:
                await tls.do_handshake()
            nursery.cancel_scope.cancel()
        assert isinstance(raised.value.__cause__, ssl.SSLCertVerificationError)

    async def test_a_handshake_can_be_cancelled(self, contexts, autojump_clock):
        ours, theirs = trio.testing.memory_stream_pair()
        tls = TlsStream(ours, contexts[0], server_side=True)
        with trio.move_on_after(1) as scope:
            await tls.do_handshake()
        assert scope.cancelled_caught
        await trio.aclose_forcefully(tls)
        assert await theirs.receive_some() == b""
