from __future__ import annotations

import pytest

from efo_service.web.http.heads import MAX_BYTES, RequestRefusedError, find_end, read_head

GET = b"GET / HTTP/1.1\r\nhost: a\r\n"


def refused(head: bytes) -> int:
    """Return the status with which a head is refused."""
    try:
        read_head(head[: find_end(head)])
    except RequestRefusedError as error:
        return error.status
    return 200


def test_a_head_ends_with_an_empty_line_wherever_it_is_cut():
    whole = GET + b"\r\nnext"
    assert [find_end(whole[:size]) for size in range(len(GET) + 2)] == [None] * (len(GET) + 2)
    assert find_end(whole) == len(GET) + 2
    _, request = read_head(GET + b"\r\n")
    assert (request.method, request.target) == (b"GET", b"/")


@pytest.mark.parametrize(
    ("status", "head"),
    [
        (400, GET + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n"),
        (400, GET + b"transfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n"),
        (400, GET + b"content-length: 3\r\ncontent-length: 3\r\n\r\n"),
        (400, GET + b"content-length: 3\r\ncontent-length: 4\r\n\r\n"),
        (400, GET + b"content-length: 3, 3\r\n\r\n"),
        (400, GET + b"content-length: +3\r\n\r\n"),
        (400, GET + b"content-length: 0x3\r\n\r\n"),
        (400, GET + b"content-length: -1\r\n\r\n"),
        (400, GET + b"content-length: " + b"9" * 30 + b"\r\n\r\n"),
        (501, GET + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n"),
        (501, GET + b"transfer-encoding: gzip, chunked\r\n\r\n"),
        (501, GET + b"transfer-encoding: chunked, identity\r\n\r\n"),
        (501, GET + b"transfer-encoding: xchunked\r\n\r\n"),
        (400, GET + b"transfer-encoding : chunked\r\n\r\n"),
        (400, b"POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"),
        (400, b"GET / HTTP/1.1\nhost: a\n\n"),
        (400, GET + b"x: a\ny: b\r\n\r\n"),
        (400, GET + b"x: a\ry: b\r\n\r\n"),
        (400, GET + b"x: a\r\n folded\r\n\r\n"),
        (400, GET + b"x: a\0b\r\n\r\n"),
        (400, GET + b"host: b\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\n\r\n"),
        (400, b"GET http://evil.example/ HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        (400, b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n"),
        (400, b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n"),
        (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (400, b"\r\n\r\n" + GET + b"\r\n"),
        (400, b"\x16\x03\x01\r\n\r\n"),
        (414, b"GET /" + b"a" * 4096 + b" HTTP/1.1\r\nhost: a\r\n\r\n"),
        (431, GET + b"a: b\r\n" * 100 + b"\r\n"),
        (431, GET + b"a: " + b"b" * MAX_BYTES + b"\r\n\r\n"),
        (431, GET + b"a: " + b"b" * MAX_BYTES),
    ],
)
def test_a_head_that_can_be_read_in_two_ways_or_is_too_large_is_refused(status, head):
    assert refused(head) == status


def test_a_refusal_contains_nothing_of_the_request():
    with pytest.raises(RequestRefusedError) as raised:
        read_head(GET + b"CaNaRy\x01: x\r\n\r\n")
    response = raised.value.response()
    assert response.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"connection: close" in response
    assert b"CaNaRy" not in response


def test_a_line_end_cut_in_two_is_none_alone():
    assert find_end(GET[:-1]) is None
    assert find_end(GET + b"\r") is None
