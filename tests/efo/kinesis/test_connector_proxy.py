"""Connections through an HTTP proxy: CONNECT, what the proxy refuses, and what answers in its place."""

import re
import ssl
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
import trustme

from efo.errors import NotHttp2Error, ProxyError, TlsError, TransportError
from efo.kinesis.aws.connector import TIMEOUT, Connector, _Attempt
from efo.proxy import parse_proxy
from proofs.local_servers.http_proxy import HttpProxy
from tests.loopback import listening, tls_handler

HOST = "kinesis.eu-west-1.amazonaws.com"
SECRET = "CaNaRy7h3"


def connector(proxy, ca_file, *, host=HOST, port=443, source="HTTPS_PROXY"):
    return Connector(host, port, ca_file=ca_file, proxy=parse_proxy(proxy, source), proxy_ca_file=ca_file)


async def echoes(stream):
    await stream.send_all(b"hello")
    return await stream.receive_some(5) == b"hello"


@asynccontextmanager
async def a_host(authority, **options):
    """Serve TLS with HTTP/2 as HOST, and yield a proxy's targets."""
    async with listening(tls_handler(authority, ["h2"], HOST)) as port:
        yield {HOST: ("127.0.0.1", port)}


@pytest.mark.parametrize("proxy_tls", [False, True], ids=["http proxy", "https proxy"])
@pytest.mark.parametrize("credentials", [None, f"user:{SECRET}/1"], ids=["open", "basic"])
async def test_tls_and_http2_pass_through_a_tunnel(authority, ca_file, proxy_tls, credentials):
    """The name of the host is resolved by the proxy alone."""
    async with a_host(authority) as targets:
        proxy = HttpProxy(targets, credentials=credentials, tls=authority if proxy_tls else None)
        async with proxy.serve():
            stream = await connector(proxy.url, ca_file).connect()
            assert await echoes(stream)
            await trio.aclose_forcefully(stream)
            assert proxy.requests == [f"CONNECT {HOST}:443 HTTP/1.1"]


async def test_a_host_without_tls_is_reached_through_a_tunnel_too():
    async with listening(trio_echo) as port, HttpProxy({HOST: ("127.0.0.1", port)}).serve() as proxy:
        stream = await connector(proxy.url, None, port=4567).connect()
        assert await echoes(stream)
        await stream.aclose()
        assert proxy.tunnels == [f"{HOST}:4567"]


async def test_what_the_host_sends_at_once_is_not_taken_for_the_response():
    async def handle(stream):
        await stream.send_all(b"\r\n\r\nSETTINGS")
        await trio.sleep_forever()

    async with listening(handle) as port, HttpProxy({HOST: ("127.0.0.1", port)}).serve() as proxy:
        stream = await connector(proxy.url, None).connect()
        received = b""
        while len(received) < 12:
            received += await stream.receive_some()
        assert received == b"\r\n\r\nSETTINGS"
        await stream.aclose()


async def test_an_address_of_ipv6_has_brackets_in_the_request():
    async with HttpProxy(answer=b"HTTP/1.1 502 Bad Gateway\r\n\r\n").serve() as proxy:
        with pytest.raises(TransportError, match=r"CONNECT \[::1\]:4567"):
            await connector(proxy.url, None, host="::1", port=4567).connect()
        assert proxy.tunnels == ["[::1]:4567"]


REFUSED = [
    (407, "Proxy Authentication Required", ProxyError, "check its user and password in HTTPS_PROXY"),
    (401, "Unauthorized", ProxyError, "check its user and password in HTTPS_PROXY"),
    (403, "Forbidden", ProxyError, "let it allow CONNECT to this host"),
    (405, "Method Not Allowed", ProxyError, "let it allow CONNECT to this host"),
    (302, "Found", ProxyError, "let it allow CONNECT to this host"),
    (502, "Bad Gateway", TransportError, "it cannot reach this host now"),
    (503, "Service Unavailable", TransportError, "it cannot reach this host now"),
    (504, "Gateway Timeout", TransportError, "it cannot reach this host now"),
]


@pytest.mark.parametrize(("status", "reason", "kind", "advice"), REFUSED)
async def test_a_refusal_names_the_proxy_and_its_status(ca_file, status, reason, kind, advice):
    answer = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/html\r\n\r\n<html>".encode()
    proxy = HttpProxy(answer=answer, credentials=f"user:{SECRET}")
    async with proxy.serve():
        with pytest.raises(TransportError, match=advice) as raised:
            await connector(proxy.url, ca_file).connect()
    message = str(raised.value)
    assert type(raised.value) is kind
    assert raised.value.retryable == (kind is TransportError)
    assert f"the proxy 127.0.0.1:{proxy.port} (HTTPS_PROXY) answers {status} {reason}" in message
    assert f"CONNECT {HOST}:443" in message
    assert SECRET not in message


async def test_credentials_that_are_missing_are_asked_for(ca_file):
    async with HttpProxy(credentials="user:secret").serve() as proxy:
        with pytest.raises(ProxyError, match=r"answers 407 .*: set its user and password in HTTPS_PROXY, http://USER"):
            await connector(f"http://127.0.0.1:{proxy.port}", ca_file).connect()


ANSWERS = [
    (b"SSH-2.0-OpenSSH_9.2\r\n", ProxyError, "does not speak HTTP/1: check HTTPS_PROXY"),
    (b"HTTP/1.1 200 OK\r\n" + b"X-Header: y\r\n" * 3000, ProxyError, "head has more than 16384 bytes"),
    (b"\x15\x03\x03\x00\x02\x02\x46", ProxyError, "speaks TLS: check HTTPS_PROXY, which is http://"),
    (b"", TransportError, "closed the connection after CONNECT"),
    (b"HTTP/1.1 200 OK\r\nVia:", TransportError, "closed the connection after CONNECT"),
]


@pytest.mark.parametrize(("answer", "kind", "message"), ANSWERS)
async def test_what_is_no_answer_of_a_proxy_is_an_error(ca_file, answer, kind, message):
    async with HttpProxy(answer=answer).serve() as proxy:
        with pytest.raises(TransportError, match=rf"the proxy 127\.0\.0\.1:{proxy.port} .*{message}") as raised:
            await connector(proxy.url, ca_file).connect()
        assert type(raised.value) is kind


async def test_a_proxy_that_is_down_is_a_retryable_error(ca_file):
    async with listening(None) as port:
        pass
    with pytest.raises(TransportError, match=rf"cannot connect to the proxy 127\.0\.0\.1:{port}.*refused") as raised:
        await connector(f"http://127.0.0.1:{port}", ca_file).connect()
    assert raised.value.retryable


async def test_a_proxy_whose_name_does_not_resolve_is_named(ca_file, monkeypatch):
    async def getaddrinfo(*_args, **_options):
        raise trio.socket.gaierror(trio.socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("trio._highlevel_open_tcp_stream.getaddrinfo", getaddrinfo)
    with pytest.raises(TransportError, match=r"cannot resolve the name proxy\.test \(Name or .*: check HTTPS_PROXY"):
        await connector("http://proxy.test:3128", ca_file).connect()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", r"no answer of the proxy 127\.0\.0\.1:\d+ \(HTTPS_PROXY\) to CONNECT"),
        (b"HTTP/1.1 200 OK\r\n", r"no answer of the proxy 127\.0\.0\.1:\d+ \(HTTPS_PROXY\) to CONNECT"),
        (b"HTTP/1.1 200 OK\r\n\r\n", r"no answer of .*amazonaws\.com:443 through .* in the TLS handshake"),
    ],
)
async def test_a_proxy_that_hangs_is_left_after_the_time_for_a_connection(
    ca_file, monkeypatch, mock_clock, answer, message
):
    attempts = []
    monkeypatch.setattr(
        "efo.kinesis.aws.connector._Attempt", lambda said: attempts.append(_Attempt(said)) or attempts[0]
    )

    async def pass_time():
        while not (attempts and re.search(message, attempts[0].waits_for)):
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(TIMEOUT)

    async with HttpProxy(answer=answer, stays_open=True).serve() as proxy, trio.open_nursery() as nursery:
        nursery.start_soon(pass_time)
        with pytest.raises(TransportError, match=rf"{message}.* within {TIMEOUT:g} s") as raised:
            await connector(proxy.url, ca_file).connect()
        assert raised.value.retryable
    assert TIMEOUT < 10  # the pool's, which is also for SETTINGS


async def test_a_cancellation_closes_the_connection_to_the_proxy(ca_file):
    reached, closed = trio.Event(), trio.Event()

    async def handle(stream):
        await stream.receive_some()
        reached.set()
        try:
            while await stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass
        closed.set()

    async with listening(handle) as port, trio.open_nursery() as nursery:
        async with trio.open_nursery() as connecting:
            connecting.start_soon(connector(f"http://127.0.0.1:{port}", ca_file).connect)
            await reached.wait()
            connecting.cancel_scope.cancel()
        with trio.fail_after(30):
            await closed.wait()
        nursery.cancel_scope.cancel()


async def test_after_a_first_connection_a_refusal_is_retried(authority, ca_file):
    async with a_host(authority) as targets, HttpProxy(targets).serve() as proxy:
        connecting = connector(proxy.url, ca_file)
        await trio.aclose_forcefully(await connecting.connect())
        for answer in (b"HTTP/1.1 407 No\r\n\r\n", b"HTTP/1.1 403 No\r\n\r\n", b"garbage"):
            proxy.answer = answer
            with pytest.raises(TransportError, match="the proxy") as raised:
                await connecting.connect()
            assert raised.value.retryable
        proxy.answer = None
        await trio.aclose_forcefully(await connecting.connect())


class TestInterception:
    """A proxy that ends the TLS of tunnels, with certificates of its own authority."""

    async def test_its_authority_is_trusted_by_ca_file(self, authority, ca_file):
        async with listening(trio_echo) as port:
            proxy = HttpProxy({HOST: ("127.0.0.1", port)}, intercepts=authority)
            async with proxy.serve():
                stream = await connector(proxy.url, ca_file).connect()
                assert await echoes(stream)
                await trio.aclose_forcefully(stream)

    async def test_an_authority_that_is_not_trusted_is_an_error(self, ca_file):
        async with listening(trio_echo) as port:
            proxy = HttpProxy({HOST: ("127.0.0.1", port)}, intercepts=trustme.CA())
            async with proxy.serve():
                with pytest.raises(TlsError, match=r"through the proxy 127.*not trusted.*set ca_file"):
                    await connector(proxy.url, ca_file).connect()

    @pytest.mark.parametrize("alpn", [(), ("http/1.1",)])
    async def test_without_http2_it_is_named(self, authority, ca_file, alpn):
        async with listening(trio_echo) as port:
            proxy = HttpProxy({HOST: ("127.0.0.1", port)}, intercepts=authority, alpn=alpn)
            async with proxy.serve():
                with pytest.raises(NotHttp2Error, match=r"through the proxy 127.* a proxy that intercepts TLS has to"):
                    await connector(proxy.url, ca_file).connect()


class TestProxyTls:
    """A proxy that is itself reached over TLS."""

    async def test_its_certificate_must_be_trusted(self, ca_file):
        async with HttpProxy(tls=trustme.CA()).serve() as proxy:
            with pytest.raises(TlsError, match=r"the certificate of the proxy 127\.0\.0\.1:\d+ \(HTTPS_PROXY\) is not"):
                await connector(proxy.url, ca_file).connect()

    async def test_a_proxy_without_tls_is_named(self, ca_file):
        async def handle(stream):
            async with stream:
                await stream.receive_some()
                await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        async with listening(handle) as port:
            with pytest.raises(ProxyError, match=r"the proxy .* does not speak TLS: check HTTPS_PROXY"):
                await connector(f"https://127.0.0.1:{port}", ca_file).connect()

    async def test_a_certificate_for_another_name_points_to_the_setting(self, authority, ca_file):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("other.test").configure_cert(context)
        async with listening(tls_handler(authority, name="other.test")) as port:
            with pytest.raises(TlsError, match="it is for another address: check HTTPS_PROXY"):
                await connector(f"https://127.0.0.1:{port}", ca_file).connect()


async def trio_echo(stream):
    async with stream:
        async for data in stream:
            await stream.send_all(data)
