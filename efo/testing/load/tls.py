"""TLS directly on a non-blocking socket: a third of the CPU time of trio.SSLStream."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Self

import trio

_READ_SIZE: Final = 64 * 1024


class TlsSocket(trio.abc.Stream):
    """The server side of a TLS connection. Create it with `accept`. One task can send while another receives."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock

    @classmethod
    async def accept(cls, tcp: trio.SocketStream, context: ssl.SSLContext) -> Self:
        """Take over the connection from `tcp` and do the TLS handshake. Raises trio.BrokenResourceError."""
        plain = socket.socket(fileno=tcp.socket.detach())
        try:
            plain.setblocking(False)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            plain.close()
            raise trio.BrokenResourceError(str(error)) from error
        try:
            while True:
                try:
                    tls.do_handshake()
                except ssl.SSLWantReadError:
                    await trio.lowlevel.wait_readable(tls)
                except ssl.SSLWantWriteError:
                    await trio.lowlevel.wait_writable(tls)
                else:
                    return cls(tls)
        except OSError as error:
            tls.close()
            raise trio.BrokenResourceError(str(error)) from error
        except BaseException:
            tls.close()
            raise

    @property
    def protocol(self) -> str | None:
        """The protocol that ALPN chose."""
        return self._socket.selected_alpn_protocol()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all data. After a cancellation, the connection cannot be used any more."""
        await trio.lowlevel.checkpoint()
        with memoryview(data) as view:
            at = 0
            while at < len(view):
                try:
                    at += self._socket.send(view[at:])
                except ssl.SSLWantWriteError:
                    # OpenSSL has sent a part of the data and requires the same bytes again.
                    await self._wait(trio.lowlevel.wait_writable)
                except OSError as error:
                    raise self._trio_error(error) from error

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket is writable."""
        await self._wait(trio.lowlevel.wait_writable)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for data and return it; return b"" if the peer has closed."""
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return self._socket.recv(max_bytes or _READ_SIZE)
            except ssl.SSLWantReadError:
                await self._wait(trio.lowlevel.wait_readable)
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                return b""
            except OSError as error:
                raise self._trio_error(error) from error

    async def aclose(self) -> None:
        """Send close_notify if the socket is writable, and close the socket."""
        if self._socket.fileno() >= 0:
            with suppress(OSError, ValueError):  # does not wait for the peer's close_notify
                self._socket.unwrap()
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()

    async def _wait(self, ready: Callable[[ssl.SSLSocket], Awaitable[None]]) -> None:
        if self._socket.fileno() < 0:
            raise trio.ClosedResourceError("this end is closed")
        await ready(self._socket)

    def _trio_error(self, error: OSError) -> Exception:
        if self._socket.fileno() < 0:
            return trio.ClosedResourceError("this end is closed")
        return trio.BrokenResourceError(str(error))
