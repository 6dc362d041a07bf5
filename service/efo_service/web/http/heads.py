"""The head of a request: what is refused before anything of it is believed. Pure, on h11.

A head that two programs could read in two ways is refused (RFC 9112, section 11.2): with a proxy in front, a request
would be hidden in the body of another one. h11 alone accepts bare line feeds, folded lines, and a length beside chunks.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

import h11

MAX_BYTES: Final = 16 * 1024
MAX_FIELDS: Final = 100
MAX_TARGET_BYTES: Final = 4096
_UNCLEAR: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)|\r\n[ \t]|\0")
_FRAMING: Final = re.compile(rb"\n(content-length|transfer-encoding)[ \t]*:([^\r]*)", re.IGNORECASE)
_VERSIONS: Final = frozenset({b"1.0", b"1.1"})


class RequestRefusedError(Exception):
    """A request that is not served, and the status of the response. After it, the connection ends."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status

    def response(self) -> bytes:
        """Return the whole response. It contains nothing of the request."""
        body = f"{self}\n".encode()
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"x-content-type-options: nosniff\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode() + body


def find_end(data: bytes | bytearray) -> int | None:
    """Return where the head ends; None if it has not arrived yet. Raises RequestRefusedError if it never can."""
    end = data.find(b"\r\n\r\n")
    if end > MAX_BYTES or (end < 0 and len(data) > MAX_BYTES):
        raise RequestRefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has {MAX_BYTES} bytes at most")
    if _UNCLEAR.search(data, 0, end if end >= 0 else len(data) - data.endswith(b"\r")):
        raise RequestRefusedError(HTTPStatus.BAD_REQUEST, "each line of a head ends with CR LF, and none is folded")
    return end + 4 if end >= 0 else None


def read_head(head: bytes) -> tuple[h11.Connection, h11.Request]:
    """Return the request of a head, and the connection that reads its body. Raises RequestRefusedError."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_BYTES)
    connection.receive_data(head)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        # Without h11's message: it may quote the request.
        raise RequestRefusedError(HTTPStatus(error.error_status_hint), "the head is not one of HTTP/1.1") from None
    if not isinstance(request, h11.Request):
        raise RequestRefusedError(HTTPStatus.BAD_REQUEST, "the head is not one of HTTP/1.1")
    _check(request, head)
    return connection, request


def _check(request: h11.Request, head: bytes) -> None:
    if request.http_version not in _VERSIONS:
        raise RequestRefusedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is spoken here")
    if len(request.target) > MAX_TARGET_BYTES:
        raise RequestRefusedError(HTTPStatus.REQUEST_URI_TOO_LONG, f"a target has {MAX_TARGET_BYTES} bytes at most")
    if not request.target.startswith(b"/"):
        # An absolute form has a host of its own, which proxies believe instead of the header.
        raise RequestRefusedError(HTTPStatus.BAD_REQUEST, "a target begins with a slash")
    if len(request.headers) > MAX_FIELDS:
        raise RequestRefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has {MAX_FIELDS} fields at most")
    framing = _FRAMING.findall(head)  # h11 has made one length of several that are equal
    if len(framing) > 1 or any(b"," in value for _, value in framing):
        raise RequestRefusedError(
            HTTPStatus.BAD_REQUEST, "a body has one Content-Length, or one Transfer-Encoding, not both"
        )
    if request.http_version == b"1.0" and any(name.lower() == b"transfer-encoding" for name, _ in framing):
        raise RequestRefusedError(HTTPStatus.BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding")
