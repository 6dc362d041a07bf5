from __future__ import annotations

import ssl

import pytest
import trio
import trio.testing
import trustme

from efo.testing.load.tls import TlsSocket


@pytest.fixture(scope="module")
def contexts():
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    server.set_alpn_protocols(["h2", "http/1.1"])
    client = ssl.create_default_context()
    authority.configure_trust(client)
    client.set_alpn_protocols(["h2"])
    return server, client


@pytest.fixture
async def listener():
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        yield listener


@pytest.fixture
async def ends(listener, contexts):
    """The server side, a TlsSocket, and the client side, a trio.SSLStream."""
    server, client = contexts
    ours = []

    async def accept():
        ours.append(await TlsSocket.accept(await listener.accept(), server))

    tcp = await trio.open_tcp_stream(*listener.socket.getsockname())
    theirs = trio.SSLStream(tcp, client, server_hostname="127.0.0.1", https_compatible=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        await theirs.do_handshake()
    yield ours[0], theirs
    await trio.aclose_forcefully(ours[0])
    await trio.aclose_forcefully(theirs)


async def read_until(stream, size):
    received = bytearray()
    while len(received) < size:
        data = await stream.receive_some(100_000)
        assert data
        received += data
    return bytes(received)


async def test_data_is_sent_in_both_directions_at_the_same_time(ends):
    ours, theirs = ends
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


async def test_a_clean_close_of_the_peer_is_end_of_file(ends):
    ours, theirs = ends
    await theirs.send_all(b"last words")
    await theirs.aclose()
    assert await ours.receive_some() == b"last words"
    assert await ours.receive_some() == b""
    assert await ours.receive_some() == b""


async def test_a_cut_connection_is_end_of_file(ends):
    ours, theirs = ends
    await theirs.transport_stream.aclose()  # no close_notify
    assert await ours.receive_some() == b""


async def test_aclose_sends_close_notify_and_wakes_a_receiver(ends):
    ours, theirs = ends

    async def receive():
        with pytest.raises(trio.ClosedResourceError):
            await ours.receive_some()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        await ours.aclose()
    assert await theirs.receive_some() == b""
    await ours.aclose()
    for call in (ours.receive_some(), ours.send_all(b"x"), ours.wait_send_all_might_not_block()):
        with pytest.raises(trio.ClosedResourceError):
            await call


async def test_sending_to_a_closed_peer_is_a_broken_resource_error(ends):
    ours, theirs = ends
    await theirs.transport_stream.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await ours.send_all(b"x" * 100_000_000)


async def test_a_send_can_be_cancelled(ends):
    ours, _ = ends
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.send_all, b"x" * 100_000_000)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    await ours.aclose()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b""])
async def test_an_invalid_handshake_is_a_broken_resource_error(listener, contexts, sent):
    async with await trio.open_tcp_stream(*listener.socket.getsockname()) as tcp:
        accepted = await listener.accept()
        await tcp.send_all(sent)
        await tcp.send_eof()
        with pytest.raises(trio.BrokenResourceError):
            await TlsSocket.accept(accepted, contexts[0])


async def test_a_handshake_can_be_cancelled(listener, contexts):
    async with await trio.open_tcp_stream(*listener.socket.getsockname()) as tcp:
        accepted = await listener.accept()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(TlsSocket.accept, accepted, contexts[0])
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert await tcp.receive_some() == b""
