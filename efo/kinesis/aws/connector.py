"""Opens connections of the data plane: TCP, TLS, and HTTP/2 by ALPN."""

from __future__ import annotations

import ssl

import trio

from efo.errors import NotHttp2Error, TlsError, TransportError
from efo.foreign_errors import reason_of
from efo.tcp import TcpStream
from efo.tls import TlsStream, certificate_advice, client_tls_context


class Connector:
    """Connects to a host and agrees on HTTP/2: by ALPN over TLS or, without `ca_file`, by prior knowledge."""

    def __init__(self, host: str, port: int, *, ca_file: str | None) -> None:
        self._host = host
        self._port = port
        self._tls: ssl.SSLContext | None = None
        if ca_file is not None:
            self._tls = client_tls_context(ca_file)
            self._tls.set_alpn_protocols(["h2"])

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return f"{self._host}:{self._port}"

    async def connect(self) -> trio.abc.Stream:
        """Return a stream on which the peer expects HTTP/2. Raises TransportError and its subclasses."""
        try:
            tcp = TcpStream(await trio.open_tcp_stream(self._host, self._port))
        except OSError as error:
            raise TransportError(f"cannot connect to {self.address}: {reason_of(error)}") from error
        if self._tls is None:
            return tcp
        tls = TlsStream(tcp, self._tls, server_hostname=self._host)
        try:
            await tls.do_handshake()
        except trio.BrokenResourceError as error:
            await trio.aclose_forcefully(tls)
            raise self._handshake_error(error.__cause__ or error) from error
        except BaseException:
            await trio.aclose_forcefully(tls)
            raise
        chosen = tls.protocol
        if chosen != "h2":
            await trio.aclose_forcefully(tls)
            raise NotHttp2Error(
                f"{self.address} does not offer HTTP/2 (ALPN: {chosen or 'none'}), which SubscribeToShard requires: "
                "check endpoint_url, and proxies in between"
            )
        return tls

    def _handshake_error(self, cause: BaseException) -> TransportError:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return TlsError(
                f"the certificate of {self.address} is not trusted: {cause.verify_message}; {certificate_advice(cause)}"
            )
        reason = getattr(cause, "reason", None) or reason_of(cause)
        if reason == "TLSV1_ALERT_NO_APPLICATION_PROTOCOL":
            return NotHttp2Error(f"{self.address} refuses HTTP/2, which SubscribeToShard requires: check endpoint_url")
        if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE"}:
            return NotHttp2Error(
                f"{self.address} does not speak TLS, and so not HTTP/2 either: check endpoint_url ({reason})"
            )
        return TransportError(f"the TLS handshake with {self.address} failed: {reason}")
