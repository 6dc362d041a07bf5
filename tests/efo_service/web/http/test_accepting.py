from __future__ import annotations

import errno
import socket
import struct
from contextlib import aclosing

import structlog
import trio

from efo_service.web.http.accepting import accepted
from efo_service.web.process_problems import ProcessProblems


class Listener(socket.socket):
    """A listener whose first calls of accept raise."""

    def __init__(self, *errors: int) -> None:
        super().__init__()
        self._errors = list(errors)
        self.bind(("127.0.0.1", 0))
        self.listen()
        self.setblocking(False)

    def accept(self):
        if self._errors:
            number = self._errors.pop(0)
            raise OSError(number, errno.errorcode[number])
        return super().accept()


def leave(listener: socket.socket) -> None:
    """Connect, and reset the connection at once."""
    client = socket.create_connection(listener.getsockname())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


async def test_connections_whose_clients_have_left_are_passed_over():
    with Listener() as listener, trio.fail_after(30):
        for _ in range(100):
            leave(listener)
        socket.create_connection(listener.getsockname()).close()
        with socket.create_connection(listener.getsockname()) as client:
            async with aclosing(accepted(listener)) as streams:
                stream = await anext(streams)
                client.sendall(b"probe")
                assert await stream.receive_some(5) == b"probe"
                await stream.aclose()


async def test_without_free_descriptors_it_waits_and_goes_on(monkeypatch):
    monkeypatch.setattr("efo_service.web.http.accepting._EXHAUSTED_SECONDS", 0.01)
    problems = ProcessProblems()
    with (
        trio.fail_after(30),
        structlog.testing.capture_logs() as lines,
        Listener(errno.EMFILE, errno.EMFILE, errno.ECONNABORTED) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        async with aclosing(accepted(listener, problems=problems)) as streams:
            await (await anext(streams)).aclose()
    assert [(line["event"], line["log_level"]) for line in lines] == [("accept_failed", "warning")]
    [error] = problems.last_errors()
    assert (error.system, error.count, error.is_over, problems.texts()) == ("web", 2, True, ())
