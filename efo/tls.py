"""TLS: the contexts of efo's clients, and a stream that returns all bytes that have arrived.

`trio.SSLStream` returns one record (16 KiB at most) per call. A record stream arrives in many records at a time, and
`TlsStream` returns all of them, for less than half of the CPU time.
"""

from __future__ import annotations

import ssl
from codecs import BOM_UTF8
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import trio

from efo.errors import ConfigurationError, without_tracebacks
from efo.text import other_encoding
from efo.third_party_errors import reason_of

_MAX_BYTES: Final = 256 * 1024
"""Decrypted bytes that one call returns at most, and bytes that are encrypted at once."""
_READ_SIZE: Final = _MAX_BYTES - 16 * 1024
"""Bytes to read at once: together with a part of a record that arrived before, one call can return all of them."""


_ADVICE: Final = {
    9: "it is not valid yet: correct the clock of this host, or the certificate",
    10: "renew the certificate on the server, or correct the clock of this host",
    62: "it is for another host: check {}",
    64: "it is for another address: check {}",
}
"""By the code of OpenSSL (X509_V_ERR_*): not yet valid, expired, host name mismatch, IP address mismatch."""
_BEGIN: Final = b"-----BEGIN CERTIFICATE"
_NO_TLS: Final = frozenset({
    "BAD_RECORD_TYPE", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE", "WRONG_VERSION_NUMBER",
})  # fmt: skip
"""OpenSSL's reasons when the peer's first bytes are of another protocol."""


def certificate_advice(error: ssl.SSLCertVerificationError, setting: str = "endpoint_url") -> str:
    """Return what to do about a certificate that is not trusted. A CA file helps only against an unknown authority.

    `setting`: what names the host.
    """
    advice = _ADVICE.get(getattr(error, "verify_code", 0), "set ca_file to the authority that signed it")
    return advice.format(setting)


def speaks_no_tls(error: object) -> bool:
    """Return whether a handshake failed because the peer speaks another protocol, such as plain HTTP."""
    return isinstance(error, ssl.SSLError) and getattr(error, "reason", None) in _NO_TLS


def handshake_reason(error: BaseException) -> str:
    """Return why a handshake failed, in OpenSSL's words or in the socket's."""
    return str(getattr(error, "reason", None) or error)


def client_tls_context(ca_file: str, source: str = "") -> ssl.SSLContext:
    """Return a TLS context that trusts the certificate authorities in a PEM file. Raises ConfigurationError.

    `source`: the variable or the setting that names the file, for the message.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; a path with a null byte is a ValueError
        named = f" ({source})" if source else ""
        raise ConfigurationError(
            f"cannot use the CA file {ca_file}{named}: {_unusable(ca_file, error)}: expected certificates in PEM format"
        ) from error
    context.options |= ssl.OP_NO_RENEGOTIATION  # `TlsStream` requires it
    return context


def unverified_tls_context() -> ssl.SSLContext:
    """Return a context that trusts everybody: only to find out whether a server speaks TLS. Nothing is sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _unusable(ca_file: str, error: OSError | ValueError) -> str:
    if not isinstance(error, ssl.SSLError):
        return str((isinstance(error, OSError) and error.strerror) or "it is no path")
    with suppress(OSError):
        content = Path(ca_file).read_bytes()
        if encoding := other_encoding(content):
            return f"it is {encoding} text"
        if content.startswith(BOM_UTF8 + _BEGIN):
            return "it begins with a byte order mark, which OpenSSL does not take"
        if _BEGIN in content:
            return "a certificate in it is damaged"
    return "it has no certificate"


class TlsStream(trio.abc.Stream):
    """TLS over another stream. `do_handshake` must return before anything else is called, except `aclose`.

    One task can send while another receives: receiving never sends. So the peer must not renegotiate, which HTTP/2
    forbids (RFC 9113, section 9.2.1). The reply to a KeyUpdate precedes the next bytes that are sent.
    """

    def __init__(
        self,
        transport: trio.abc.Stream,
        context: ssl.SSLContext,
        *,
        server_hostname: str | None = None,
        server_side: bool = False,
    ) -> None:
        self._transport = transport
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._buffer = memoryview(bytearray(_MAX_BYTES))
        self._drained = False
        # How the receiving ended. Bytes that arrived before are returned first.
        self._at_end = False
        self._failure: ssl.SSLError | None = None
        self._sending = False
        self._closed = False

    @property
    def protocol(self) -> str | None:
        """The protocol that ALPN chose."""
        return self._tls.selected_alpn_protocol()

    @property
    def certificate(self) -> dict[str, Any]:
        """The peer's certificate, as `ssl.SSLSocket.getpeercert` returns it; empty before the handshake."""
        return cast("dict[str, Any]", self._tls.getpeercert() or {})

    async def do_handshake(self) -> None:
        """Verify the peer's certificate, and agree on keys and on a protocol. If it fails, close the stream.

        Raises trio.BrokenResourceError, caused by the exception of `ssl` or of the socket.
        """
        finished = False
        while not finished:
            try:
                self._tls.do_handshake()
                finished = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                raise trio.BrokenResourceError(reason_of(error)) from error
            if self._outgoing.pending:
                await self._transport.send_all(self._outgoing.read())
            if not finished:
                await self._read()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all data. After a cancellation, nothing more can be sent."""
        self._check_open()
        if self._sending:
            raise trio.BrokenResourceError("an earlier call has not sent all of its data")
        if not data:
            await trio.lowlevel.checkpoint()
        with memoryview(data) as view:
            for at in range(0, len(view), _MAX_BYTES):
                try:
                    self._tls.write(view[at : at + _MAX_BYTES])
                except ssl.SSLError as error:
                    raise trio.BrokenResourceError(reason_of(error)) from error
                self._sending = True
                await self._transport.send_all(self._outgoing.read())
                self._sending = False

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the other stream can send."""
        self._check_open()
        await self._transport.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the bytes that have arrived, or wait for some; return b"" if the peer has closed.

        At most `max_bytes`, and at most 256 KiB, are returned. A cancellation loses no bytes.
        """
        self._check_open()
        limit = min(max_bytes or _MAX_BYTES, _MAX_BYTES)
        data: bytes | None = None
        if not self._drained or self._at_end or self._failure:
            await trio.lowlevel.checkpoint_if_cancelled()
            data = self._decrypt(limit)
            if data is not None:
                # Shielded: these bytes are not in the transport any more.
                await trio.lowlevel.cancel_shielded_checkpoint()
        while data is None:
            await self._read()
            data = self._decrypt(limit)
        return data

    async def aclose(self) -> None:
        """Send close_notify if all data is sent, without waiting for the peer's. Close the other stream."""
        if self._closed:
            await trio.lowlevel.checkpoint()
            return
        self._closed = True
        try:
            if not self._sending:
                with suppress(OSError):  # SSLWantReadError, because the peer's close_notify has not arrived
                    self._tls.unwrap()
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._transport.send_all(self._outgoing.read())
        finally:
            await self._transport.aclose()

    async def _read(self) -> None:
        data = await self._transport.receive_some(_READ_SIZE)
        self._drained = False
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _decrypt(self, limit: int) -> bytes | None:
        """Return at most `limit` of the bytes that have been read; b"" at the end; None if there are none."""
        at = 0
        while at < limit and not (self._drained or self._at_end or self._failure):
            try:
                size: int = self._tls.read(limit - at, self._buffer[at:])  # type: ignore[assignment] # not bytes
            except ssl.SSLWantReadError:
                self._drained = True
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                self._at_end = True  # without close_notify: HTTP/2 knows by itself whether something is missing
            except ssl.SSLError as error:
                self._failure = without_tracebacks(error)
            else:
                at += size
                self._at_end = not size
                # Another read would only fail: what OpenSSL has taken is at most a part of a record.
                self._drained = size > 0 and at < limit and not self._incoming.pending
        if not at and self._failure is not None:
            raise trio.BrokenResourceError(reason_of(self._failure)) from self._failure
        return None if not at and self._drained else bytes(self._buffer[:at])

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this end is closed")
