"""CONNECT: the request for a tunnel through an HTTP proxy, and the proxy's response (RFC 9110, section 9.3.6).

After the response come the bytes of the other end. So no more is read than the response has for sure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from efo.errors import ProtocolError

MAX_HEAD: Final = 16 * 1024
"""Bytes of a response's head at most. Those of proxies have some hundred."""
_END: Final = b"\r\n\r\n"
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[0-9] ([1-9][0-9]{2})(?: ([ -~]{0,100})[^\r\n]*)?")
_BEGIN: Final = b"HTTP/1."
_TLS_ALERT: Final = b"\x15"
"""How a TLS server answers what is no TLS (RFC 8446, section 5.1)."""


@dataclass(frozen=True, slots=True)
class ConnectResponse:
    """The proxy's answer. `reason`: its text for the status, up to 100 printable characters."""

    status: int
    reason: str

    @property
    def is_open(self) -> bool:
        """Whether the tunnel is open."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the class of successful statuses

    def __str__(self) -> str:
        return f"{self.status} {self.reason}".rstrip()


def connect_request(authority: str, authorization: str | None) -> bytes:
    """Return the request for a tunnel to HOST:PORT. `authorization`: the value of Proxy-Authorization."""
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if authorization is not None:
        lines.append(f"Proxy-Authorization: {authorization}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


class ConnectResponseReader:
    """Reads the head of the response from bytes in parts. `wanted`: how many to read next at most."""

    def __init__(self) -> None:
        self._head = bytearray()

    @property
    def wanted(self) -> int:
        """The bytes that are missing at least, until the head can be complete."""
        return next(missing for missing in range(5) if self._head.endswith(_END[: 4 - missing]))

    def receive(self, data: bytes) -> ConnectResponse | None:
        """Take bytes, at most `wanted`. Return the response once its head is complete.

        Raises ProtocolError for what is no response of HTTP/1, or too long.
        """
        self._head += data
        if self._head.startswith(_TLS_ALERT):
            raise ProtocolError("speaks TLS")
        if not self._head.startswith(_BEGIN[: len(self._head)]):
            raise ProtocolError("does not speak HTTP/1")
        if len(self._head) > MAX_HEAD:
            raise ProtocolError(f"sent a response whose head has more than {MAX_HEAD} bytes")
        if not self._head.endswith(_END):
            return None
        line = _STATUS_LINE.fullmatch(self._head.partition(b"\r\n")[0])
        if line is None:
            raise ProtocolError("does not speak HTTP/1")
        return ConnectResponse(int(line[1]), (line[2] or b"").decode("ascii").strip())
