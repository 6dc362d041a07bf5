"""A TCP stream that waits for bytes before it reads (rule R14)."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing

from efo.tcp import TcpStream


@pytest.fixture
async def ends():
    """Our end and the other end, which is a plain `trio.SocketStream`."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        ours = TcpStream(await trio.open_tcp_stream(*listener.socket.getsockname()))
        theirs = await listener.accept()
    yield ours, theirs
    for stream in ours, theirs:
        await trio.aclose_forcefully(stream)


class CountedReads:
    """A socket that counts its reads, and those that found nothing."""

    def __init__(self, own):
        self._own = own
        self.reads = self.failed = 0

    def fileno(self):
        return self._own.fileno()

    def recv(self, size):
        self.reads += 1
        try:
            return self._own.recv(size)
        except BlockingIOError:
            self.failed += 1
            raise


async def receive(stream, size):
    received = bytearray()
    while len(received) < size:
        data = await stream.receive_some(1000)
        assert data
        received += data
    return bytes(received)


async def test_bytes_pass_both_ways(ends):
    ours, theirs = ends
    await ours.send_all(b"a question")
    assert await theirs.receive_some() == b"a question"
    await theirs.send_all(b"an answer")
    assert await ours.receive_some() == b"an answer"


async def test_no_read_fails_when_each_takes_all_that_has_arrived(ends):
    ours, theirs = ends
    counted = ours._socket = CountedReads(ours._socket)
    for size in (1, 5, 20):
        await theirs.send_all(bytes(size))
        assert len(await ours.receive_some(1000)) == size
    assert (counted.reads, counted.failed) == (3, 0)


async def test_a_read_that_was_full_is_followed_by_another_without_a_wait(ends):
    ours, theirs = ends
    await theirs.send_all(bytes(3000))
    counted = ours._socket = CountedReads(ours._socket)
    assert len(await receive(ours, 3000)) == 3000
    with trio.move_on_after(0) as nothing_more:
        await ours.receive_some(1000)
    assert nothing_more.cancelled_caught
    assert counted.failed == 0
    await theirs.send_all(b"later")
    assert await ours.receive_some(1000) == b"later"
    assert counted.failed <= 1  # the last read was full, and nobody knows whether more has arrived


async def test_a_cancelled_read_loses_nothing(ends):
    ours, theirs = ends
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.receive_some)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await theirs.send_all(bytes(2000))
    assert len(await ours.receive_some(1000)) == 1000
    with trio.CancelScope() as scope:
        scope.cancel()
        await ours.receive_some(1000)
    assert len(await receive(ours, 1000)) == 1000


async def test_the_end_is_returned_again_and_again(ends):
    ours, theirs = ends
    await theirs.aclose()
    assert [await ours.receive_some() for _ in range(3)] == [b"", b"", b""]


async def test_a_broken_connection_is_an_error(ends):
    ours, theirs = ends
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closes with RST
    await theirs.aclose()
    with pytest.raises(trio.BrokenResourceError, match="reset"):
        await ours.receive_some()
    with pytest.raises(trio.BrokenResourceError):
        await ours.send_all(b"x")


async def test_closing_ends_a_read_that_waits(ends):
    ours, _ = ends

    async def read():
        with pytest.raises(trio.ClosedResourceError):
            await ours.receive_some()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await ours.aclose()
    for use in ours.receive_some, ours.wait_send_all_might_not_block:
        with pytest.raises(trio.ClosedResourceError):
            await use()
    await ours.aclose()


async def test_a_size_that_reads_nothing_is_refused(ends):
    ours, _ = ends
    with pytest.raises(ValueError, match="max_bytes=0: expected at least 1"):
        await ours.receive_some(0)
