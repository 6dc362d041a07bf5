"""Opens connections of the data plane: TCP or a tunnel through an HTTP proxy, TLS, and HTTP/2 by ALPN."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from typing import Final

import trio
from botocore.httpsession import get_cert_path

from efo.errors import (
    ConnectError,
    FaultyHostError,
    NameResolutionError,
    NotHttp2Error,
    ProtocolError,
    ProxyError,
    TlsError,
    TransportError,
    WrongEndpointError,
)
from efo.exception_groups import leaf_exceptions
from efo.kinesis.aws.endpoint import Endpoint
from efo.protocol.http_connect import ConnectResponse, ConnectResponseReader, connect_request
from efo.proxy import Proxy, host_and_port
from efo.tcp import TcpStream
from efo.third_party_errors import reason_of
from efo.tls import (
    TlsStream,
    certificate_advice,
    client_tls_context,
    handshake_reason,
    speaks_no_tls,
    unverified_tls_context,
)

TIMEOUT: Final = 8.0
"""Seconds for a connection: name, TCP, proxy and TLS. The pool allows somewhat more, for the peer's SETTINGS."""
_UNAUTHORIZED: Final = frozenset({401, 407})  # the former is not RFC 9110's, but that of some proxies
_SERVER_ERRORS: Final = 500


class Connector:
    """Connects to a host and agrees on HTTP/2: by ALPN over TLS or, without `ca_file`, by prior knowledge.

    `ca_source`: what names the file, for messages. `proxy`: through which the host is reached. `proxy_ca_file`: the
    authorities to trust if the proxy is https://, by default `ca_file` or botocore's. Raises ConfigurationError for a
    file that has none.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        ca_file: str | None,
        ca_source: str = "",
        proxy: Proxy | None = None,
        proxy_ca_file: str | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._proxy = proxy
        self._has_connected = False
        self._tls: ssl.SSLContext | None = None
        if ca_file is not None:
            self._tls = client_tls_context(ca_file, ca_source)
            self._tls.set_alpn_protocols(["h2"])
        self._proxy_tls: ssl.SSLContext | None = None
        if proxy is not None and proxy.scheme == "https":
            self._proxy_tls = client_tls_context(proxy_ca_file or ca_file or get_cert_path(True), ca_source)

    @classmethod
    def of(cls, endpoint: Endpoint) -> Connector:
        """Return the connector of an endpoint. Raises ConfigurationError."""
        return cls(
            endpoint.host,
            endpoint.port,
            ca_file=endpoint.ca_file if endpoint.scheme == "https" else None,
            ca_source=endpoint.ca_source,
            proxy=endpoint.proxy,
            proxy_ca_file=endpoint.ca_file,
        )

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return host_and_port(self._host, self._port)

    async def connect(self) -> trio.abc.Stream:
        """Return a stream on which the peer expects HTTP/2. Raises TransportError and its subclasses.

        WrongEndpointError is raised for a first connection alone, where it is of a wrong setting. Later it is of one
        faulty host, and retried as TransportError.
        """
        attempt = _Attempt(self._describe())
        try:
            with trio.fail_after(TIMEOUT):
                stream = await self._connect(attempt)
        except trio.TooSlowError:
            raise ConnectError(f"{attempt.waits_for} within {TIMEOUT:g} s") from None
        except WrongEndpointError as error:
            if not self._has_connected:
                raise
            raise FaultyHostError(error) from error
        self._has_connected = True
        return stream

    async def check_scheme(self) -> None:
        """Raise WrongEndpointError if the endpoint has TLS, but its URL is http://.

        Many servers close a connection without TLS, and say nothing.
        """
        if self._tls is not None:
            return
        attempt = _Attempt(self._describe())
        tls = None
        with suppress(TransportError), trio.move_on_after(TIMEOUT):
            tls = await attempt.tls(await self._connect(attempt), unverified_tls_context(), self._host, "endpoint_url")
        if tls is not None:
            await trio.aclose_forcefully(tls)
            raise NotHttp2Error(
                f"{attempt.peer} speaks TLS, but endpoint_url is http://: write https://", speaks_http1=False
            )

    def _describe(self) -> str:
        """Return the host, and the proxy if there is one, for messages."""
        return self.address if self._proxy is None else f"{self.address} through {self._proxy}"

    async def _connect(self, attempt: _Attempt) -> trio.abc.Stream:
        stream = await (attempt.tcp(self._host, self._port) if self._proxy is None else self._tunnel(attempt))
        if self._tls is None:
            return stream
        tls = await attempt.tls(stream, self._tls, self._host, "endpoint_url")
        if tls.protocol != "h2":
            await trio.aclose_forcefully(tls)
            between = ", and proxies in between" if self._proxy is None else f"; {_INTERCEPTED}"
            raise NotHttp2Error(
                f"{attempt.peer} does not offer HTTP/2 (ALPN: {tls.protocol or 'none'}), which SubscribeToShard "
                f"requires: check endpoint_url{between}"
            )
        return tls

    async def _tunnel(self, attempt: _Attempt) -> trio.abc.Stream:
        """Return a stream to the host, which the proxy opens."""
        proxy = self._proxy
        assert proxy is not None  # noqa: S101 - the caller has looked
        stream = await attempt.tcp(proxy.host, proxy.port, proxy)
        if self._proxy_tls is not None:
            stream = await attempt.tls(stream, self._proxy_tls, proxy.host, proxy.source, proxy)
        await attempt.ask(stream, proxy, self.address)
        return stream


_INTERCEPTED: Final = "a proxy that intercepts TLS has to offer h2, or to leave this host alone"


class _Attempt:
    """One connection, step by step. `peer`: what it is to, for messages. `waits_for`: what has not come yet."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.waits_for = f"no connection to {peer}"

    async def tcp(self, host: str, port: int, proxy: Proxy | None = None) -> trio.abc.Stream:
        """Connect to a host, by the first of its addresses that accepts."""
        target = host_and_port(host, port) if proxy is None else str(proxy)
        self.waits_for = f"no connection to {target}: neither its resolver nor its addresses answered"
        try:
            return TcpStream(await trio.open_tcp_stream(host, port))
        except (socket.gaierror, UnicodeError) as error:  # the latter for a name that DNS cannot have
            reason = error.strerror if isinstance(error, OSError) else "it is no host name"
            setting = "the region, endpoint_url" if proxy is None else proxy.source
            raise NameResolutionError(
                f"cannot resolve the name {host} ({reason}): check {setting} and the resolver of this host"
            ) from error
        except OSError as error:
            raise ConnectError(f"cannot connect to {target}: {_reasons(error)}") from error

    async def tls(
        self, stream: trio.abc.Stream, context: ssl.SSLContext, host: str, setting: str, proxy: Proxy | None = None
    ) -> TlsStream:
        """Agree on TLS with the peer, or with the proxy. `setting`: what names it."""
        peer = self.peer if proxy is None else str(proxy)
        self.waits_for = f"no answer of {peer} in the TLS handshake"
        tls = TlsStream(stream, context, server_hostname=host)
        try:
            await tls.do_handshake()
        except trio.BrokenResourceError as error:
            await trio.aclose_forcefully(tls)
            raise _handshake_error(error.__cause__ or error, peer, setting, is_proxy=proxy is not None) from error
        except BaseException:
            await trio.aclose_forcefully(tls)
            raise
        return tls

    async def ask(self, stream: trio.abc.Stream, proxy: Proxy, authority: str) -> None:
        """Ask the proxy for a tunnel to HOST:PORT."""
        self.waits_for = f"no answer of {proxy} to CONNECT {authority}"
        try:
            response = await _exchange(stream, connect_request(authority, proxy.authorization))
            _check_open(response, proxy, authority)
        except BaseException as error:
            await trio.aclose_forcefully(stream)
            if isinstance(error, ProtocolError):
                raise ProxyError(f"{proxy} {error}: check {proxy.source}, which is {proxy.scheme}://") from None
            if isinstance(error, trio.BrokenResourceError):
                raise TransportError(f"{proxy} closed the connection after CONNECT {authority}") from error
            raise


async def _exchange(stream: trio.abc.Stream, request: bytes) -> ConnectResponse:
    """Send a request and return the response; what follows it stays unread.

    Raises ProtocolError, and trio.BrokenResourceError if the proxy closes the connection.
    """
    await stream.send_all(request)
    reader = ConnectResponseReader()
    response = None
    while response is None:
        data = await stream.receive_some(reader.wanted)
        if not data:
            raise trio.BrokenResourceError("the response has not ended")
        response = reader.receive(bytes(data))
    return response


def _check_open(response: ConnectResponse, proxy: Proxy, authority: str) -> None:
    """Raise TransportError if the tunnel is not open, and ProxyError if that does not pass by itself."""
    if response.is_open:
        return
    message = f"{proxy} answers {response} to CONNECT {authority}"
    if response.status >= _SERVER_ERRORS:
        raise TransportError(f"{message}: it cannot reach this host now")
    if response.status in _UNAUTHORIZED:
        which = "set its user and password" if proxy.authorization is None else "check its user and password"
        raise ProxyError(f"{message}: {which} in {proxy.source}, http://USER:PASSWORD@HOST:PORT")
    raise ProxyError(f"{message}: let it allow CONNECT to this host and port, or check {proxy.source} and NO_PROXY")


def _handshake_error(cause: BaseException, peer: str, setting: str, *, is_proxy: bool) -> TransportError:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return TlsError(
            f"the certificate of {peer} is not trusted: {cause.verify_message}; {certificate_advice(cause, setting)}"
        )
    reason = handshake_reason(cause)
    if is_proxy and speaks_no_tls(cause):
        return ProxyError(f"{peer} does not speak TLS: check {setting}, which is https:// ({reason})")
    if speaks_no_tls(cause):
        return NotHttp2Error(
            f"{peer} does not speak TLS, and so not HTTP/2 either: check {setting}, which is https:// ({reason})",
            speaks_http1=False,
        )
    if reason == "TLSV1_ALERT_NO_APPLICATION_PROTOCOL":
        return NotHttp2Error(f"{peer} refuses HTTP/2, which SubscribeToShard requires: check {setting}")
    return TransportError(f"the TLS handshake with {peer} failed: {reason}")


def _reasons(error: OSError) -> str:
    """Return why no address accepted, each reason once. trio has the failures in a group, with their addresses."""
    failures = (each for each in leaf_exceptions(error.__cause__ or error) if isinstance(each, OSError))
    return "; ".join(dict.fromkeys(os.strerror(each.errno) if each.errno else reason_of(each) for each in failures))
