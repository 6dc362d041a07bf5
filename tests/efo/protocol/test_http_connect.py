"""CONNECT: the request, and the head of the response from bytes in any parts."""

import pytest
from hypothesis import given, strategies as st

from efo.errors import ProtocolError
from efo.protocol.http_connect import MAX_HEAD, ConnectResponse, ConnectResponseReader, connect_request


def read(head, size=4):
    """Feed a head in parts of at most this size; return the response, and the bytes that were left."""
    reader = ConnectResponseReader()
    while head:
        part = head[: min(size, reader.wanted)]
        head = head[len(part) :]
        if (response := reader.receive(part)) is not None:
            return response, head
    return None, head


def test_the_request_names_the_host_twice_and_has_the_credentials():
    assert connect_request("host.test:443", None) == b"CONNECT host.test:443 HTTP/1.1\r\nHost: host.test:443\r\n\r\n"
    assert connect_request("[::1]:443", "Basic eDp5") == (
        b"CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\nProxy-Authorization: Basic eDp5\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("head", "status", "reason", "is_open"),
    [
        (b"HTTP/1.1 200 Connection established\r\n\r\n", 200, "Connection established", True),
        (b"HTTP/1.0 200 OK\r\nVia: x\r\nDate: y\r\n\r\n", 200, "OK", True),
        (b"HTTP/1.1 204\r\n\r\n", 204, "", True),
        (b"HTTP/1.1 200 \r\n\r\n", 200, "", True),
        (b"HTTP/1.1 299\r\n\r\n", 299, "", True),
        (b"HTTP/1.1 300\r\n\r\n", 300, "", False),
        (b"HTTP/1.1 199\r\n\r\n", 199, "", False),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", 407, "Proxy Authentication Required", False),
        (b"HTTP/1.1 302 Found\r\nLocation: http://portal.test\r\n\r\n", 302, "Found", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n", 100, "Continue", False),
        (b"HTTP/1.1 503 caf\xc3\xa9\r\n\r\n", 503, "caf", False),
        (b"HTTP/1.1 503 " + b"x" * 500 + b"\r\n\r\n", 503, "x" * 100, False),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_response_is_read_to_the_end_of_its_head_and_no_further(head, status, reason, is_open, size):
    response, rest = read(head + b"\r\n\r\nfirst bytes of the other end", size)
    assert response == ConnectResponse(status, reason)
    assert response.is_open == is_open
    assert rest == b"\r\n\r\nfirst bytes of the other end"
    assert str(response) == f"{status} {reason}".strip()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP/1"),
        (b"HTTP/2 200 OK\r\n\r\n", "does not speak HTTP/1"),
        (b"HTTP/1.1 ok\r\n\r\n", "does not speak HTTP/1"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "does not speak HTTP/1"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "does not speak HTTP/1"),
        (b"\r\n\r\n\r\n", "does not speak HTTP/1"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "speaks TLS"),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Header: y\r\n" * 2000, "head has more than 16384 bytes"),
        (b"HTTP/1.1 200 " + b"y" * 20000, "head has more than 16384 bytes"),
    ],
)
def test_what_is_no_response_of_http1_is_an_error(head, message):
    with pytest.raises(ProtocolError, match=message):
        read(head)


def test_a_head_without_an_end_is_not_complete():
    assert read(b"HTTP/1.1 200 OK\r\nVia: x\r\n") == (None, b"")


@given(st.binary(max_size=200), st.integers(1, 4))
def test_any_bytes_are_a_response_or_a_protocol_error(data, size):
    try:
        response, rest = read(b"HTTP/1.1 " + data, size)
    except ProtocolError:
        return
    assert (response is None) == (b"\r\n\r\n" not in b"HTTP/1.1 " + data)
    assert len(rest) <= MAX_HEAD
