"""A response stream as its reader sees it: bytes are taken as they arrived, before the end or the error."""

import pytest

from efo.errors import TransportError
from efo.kinesis.response_stream import ResponseStream


class Owner:
    """Counts the bytes for which a stream opened its window."""

    is_draining = False

    def __init__(self):
        self.opened = 0

    def abandon(self, stream):
        """Forget nothing."""

    def open_window(self, stream, size):
        self.opened += size


@pytest.fixture
def owner():
    return Owner()


@pytest.fixture
def stream(owner):
    return ResponseStream(owner, 1, window=8000)


def test_nothing_is_taken_before_bytes_arrive(stream):
    assert stream.take() is None
    stream.on_data((b"a" * 2000,), 2000, 0)
    stream.on_data((b"b",), 1, 0)
    assert stream.take() == b"a" * 2000 + b"b"
    assert stream.take() is None


def test_only_taken_bytes_open_the_window(stream, owner):
    stream.on_data((bytes(5000),), 5000, 0)
    assert owner.opened == 0
    stream.take()
    assert owner.opened == 5000


def test_the_end_is_taken_after_the_bytes_and_again_whenever_asked(stream):
    stream.on_data((b"a",), 1, 0)
    stream.on_end()
    assert [stream.take() for _ in range(3)] == [b"a", b"", b""]


def test_an_error_is_raised_after_the_bytes_that_arrived_before_it(stream):
    stream.on_data((b"a",), 1, 0)
    stream.on_error(TransportError("cut"))
    assert stream.take() == b"a"
    with pytest.raises(TransportError, match="cut"):
        stream.take()


def test_bytes_the_end_and_an_error_are_each_notified(stream, owner):
    notified = []
    stream.notify_change(lambda: notified.append("stream"))
    stream.on_data((b"a",), 1, 0)
    stream.on_end()
    failed = ResponseStream(owner, 3, window=8000)
    failed.notify_change(lambda: notified.append("failed"))
    failed.on_error(TransportError("cut"))
    assert notified == ["stream", "stream", "failed"]
