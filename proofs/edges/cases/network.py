"""Networks that let out only what they know: proxies, hosts, certificates, DNS; and servers that are not AWS's."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import trio

import efo
from efo.errors import NotHttp2Error, TlsError, TransportError
from efo.kinesis.aws.client import credential_provider
from efo.testing import FakeKinesis
from proofs.edges.egress import (
    ACCOUNT,
    ARN,
    CONFIGURATION,
    HOST,
    UNAVAILABLE,
    Reader,
    behind_a_proxy,
    first_error,
    made_authority,
    put,
    reported,
    run_efo,
    set_environment,
)
from proofs.local_servers.http_proxy import HttpProxy, serve_tinyproxy
from proofs.local_servers.named_hosts import NamedHosts
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("network")

RECORDS, PUT = 10, 100
USER = f"reader:{CANARY}%2F1"
KNOWN = f"reader:{CANARY}/1"
RUN = {"EFO_KINESIS__STREAM": "orders", "EFO_RELAY__DIRECTORY": "log", "EFO_LEASES__PATH": "leases.sqlite"}


def by_user(proxy: HttpProxy) -> str:
    return f"http://{USER}@127.0.0.1:{proxy.port}"


async def reads_through(read_mode: efo.ReadMode, *, by_variable: bool) -> Outcome:
    authority, ca_file = made_authority()
    async with behind_a_proxy(authority, credentials=KNOWN) as (fake, proxy):
        set_environment(AWS_CA_BUNDLE=ca_file, **({"HTTPS_PROXY": by_user(proxy)} if by_variable else {}))
        settings = efo.ConsumerSettings(read_mode=read_mode)
        reader = Reader(settings=settings, **({} if by_variable else {"proxy_url": by_user(proxy)}))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.run)
            has_read = await reader.wait_for(10)
            put(fake, 10, first=10)
            has_read = has_read and await reader.wait_for(20)
            nursery.cancel_scope.cancel()
        is_right = has_read and set(proxy.tunnels) == {f"{HOST}:443"}
        return Outcome(
            f"read {len(reader.records)} of 20 by {len(proxy.tunnels)} tunnels",
            is_right,
            {"records_lost_silently": reader.lost(20)},
        )


@cases.case("reads by CONNECT with the credentials of HTTPS_PROXY, and tells them nowhere")
async def fan_out_through_a_proxy_of_the_environment() -> Outcome:
    return await reads_through("fanout", by_variable=True)


@cases.case("reads by CONNECT through the proxy of the setting")
async def polling_through_a_proxy_of_a_setting() -> Outcome:
    return await reads_through("polling", by_variable=False)


@cases.case("puts by CONNECT")
async def a_producer_through_a_proxy() -> Outcome:
    authority, ca_file = made_authority()
    async with behind_a_proxy(authority, credentials=KNOWN) as (fake, proxy):
        set_environment(AWS_CA_BUNDLE=ca_file)
        async with efo.open_producer("orders", proxy_url=by_user(proxy)) as producer:
            for number in range(PUT):
                await producer.put(b"data", partition_key=str(number))
        stored = sum(map(len, fake.records("orders").values()))
        is_right = stored == PUT + RECORDS and set(proxy.tunnels) == {f"{HOST}:443"}
        return Outcome(f"stored {stored} of 110", is_right)


@cases.case("passes subscriptions through tinyproxy, with Basic credentials")
async def a_real_proxy() -> Outcome:
    if shutil.which("tinyproxy") is None:
        return Outcome("tinyproxy is not installed, and was not tried", is_right=True)
    with serve_tinyproxy() as url:
        async with FakeKinesis(clock=time.time) as fake, fake.serve() as address:
            fake.create_stream("orders", shards=2)
            put(fake, 10)
            set_environment(HTTPS_PROXY=url)
            reader = Reader(endpoint_url=address.url, ca_file=str(address.ca_file))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reader.run)
                has_read = await reader.wait_for(10)
                nursery.cancel_scope.cancel()
            return Outcome(f"read {len(reader.records)} of 10", has_read, {"records_lost_silently": reader.lost(10)})


async def run_through(answer: bytes, *, seconds: float = 40.0) -> tuple[int, str, int]:
    """Run `efo run` behind a proxy with this answer; return its status, its output and the proxy's port."""
    async with HttpProxy(answer=answer).serve() as proxy:
        environment = {**RUN, "HTTPS_PROXY": by_user(proxy)}
        status, output = await run_efo("run", environment=environment, seconds=seconds)
        return status, output, proxy.port


@cases.case("exit 78 at once, with the proxy's address, its status and what to do")
async def a_proxy_that_asks_for_other_credentials() -> Outcome:
    status, output, port = await run_through(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    is_reported = reported(
        output, f"127.0.0.1:{port} (HTTPS_PROXY) answers 407", "check its user and password in HTTPS_PROXY"
    )
    return Outcome(f"exit {status}, reported: {is_reported}", status == CONFIGURATION and is_reported)


@cases.case("exit 78 at once: the proxy does not allow this host")
async def a_proxy_that_forbids_the_host() -> Outcome:
    status, output, port = await run_through(b"HTTP/1.1 403 Forbidden\r\n\r\n")
    is_reported = reported(output, f"127.0.0.1:{port}", "answers 403 Forbidden", f"CONNECT {HOST}:443")
    return Outcome(f"exit {status}, reported: {is_reported}", status == CONFIGURATION and is_reported)


@cases.case("exit 69 after retries: the proxy cannot reach the host now", seconds=90)
async def a_proxy_whose_way_is_down() -> Outcome:
    status, output, port = await run_through(b"HTTP/1.1 503 Service Unavailable\r\n\r\n", seconds=75)
    is_reported = reported(output, f"127.0.0.1:{port} (HTTPS_PROXY) answers 503", "cannot reach this host now")
    return Outcome(f"exit {status}, reported: {is_reported}", status == UNAVAILABLE and is_reported)


@cases.case("exit 78: what answers is no HTTP proxy, or says far too much")
async def what_is_no_proxy() -> Outcome:
    reported_of = []
    for answer, words in (
        (b"220 mail.example ESMTP\r\n", "does not speak HTTP/1"),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Padding: y\r\n" * 3000, "head has more than 16384 bytes"),
    ):
        status, output, port = await run_through(answer)
        reported_of.append((status, reported(output, f"127.0.0.1:{port} (HTTPS_PROXY)", words)))
    return Outcome(f"{reported_of}", reported_of == [(CONFIGURATION, True)] * 2)


@cases.case("waits at most 8 s for a connection, and says for what")
async def a_proxy_that_hangs() -> Outcome:
    set_environment()
    async with HttpProxy(answer=b"", stays_open=True).serve() as proxy, _opened(proxy.url) as kinesis:
        error = await first_error(kinesis.connect, seconds=15)
    is_right = isinstance(error, TransportError) and error.retryable and "no answer of the proxy 127" in str(error)
    return Outcome(str(error)[:110], is_right)


async def while_running(change: str) -> Outcome:
    """Let the proxy fail for some seconds while a consumer reads through it."""
    authority, ca_file = made_authority()
    async with behind_a_proxy(authority) as (fake, proxy):
        set_environment(AWS_CA_BUNDLE=ca_file, HTTPS_PROXY=proxy.url)
        reader = Reader()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.run)
            has_read = await reader.wait_for(10)
            proxy.answer = b"" if change == "restarted" else b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
            proxy.drop()
            put(fake, 10, first=10)
            await trio.sleep(6)
            has_waited = len(reader.records) == RECORDS and reader.failure is None
            proxy.answer = None
            has_gone_on = await reader.wait_for(20)
            nursery.cancel_scope.cancel()
        return Outcome(
            f"waited: {has_waited}, went on: {has_gone_on}, read {len(set(reader.records))} of 20",
            has_read and has_waited and has_gone_on,
            {"records_lost_silently": reader.lost(20)},
        )


@cases.case("an outage: waited for, and nothing lost")
async def a_proxy_that_is_restarted_while_efo_reads() -> Outcome:
    return await while_running("restarted")


@cases.case("an outage too: after the first success, a refusal of the proxy ends nothing")
async def a_proxy_that_refuses_for_a_while() -> Outcome:
    return await while_running("refuses")


@cases.case("NO_PROXY and an empty setting reach the host directly")
async def hosts_that_are_not_for_the_proxy() -> Outcome:
    async with FakeKinesis(clock=time.time) as fake, fake.serve() as address, HttpProxy().serve() as proxy:
        fake.create_stream("orders", shards=1)
        options = {"endpoint_url": address.url, "ca_file": str(address.ca_file)}
        set_environment(HTTPS_PROXY=proxy.url, NO_PROXY="localhost,127.0.0.1")
        async with _opened(**options) as kinesis:
            await kinesis.control_plane.list_shards()
        del os.environ["NO_PROXY"]
        async with _opened("", **options) as kinesis:
            await kinesis.control_plane.list_shards()
        return Outcome(f"{len(proxy.requests)} requests to the proxy", proxy.requests == [])


@cases.case("is asked directly: the proxy's machine has another role")
async def the_role_of_the_instance() -> Outcome:
    async with HttpProxy().serve() as proxy, _metadata() as url:
        os.environ.pop("AWS_EC2_METADATA_DISABLED", None)
        os.environ.update(HTTP_PROXY=proxy.url, HTTPS_PROXY=proxy.url, AWS_EC2_METADATA_SERVICE_ENDPOINT=url)
        provider = await credential_provider(None, "us-east-1", None, proxy.url)
        return Outcome(f"{provider}, {len(proxy.requests)} requests to the proxy", proxy.requests == [])


@cases.case("exit 78 with the variable's name, and nothing of its value")
async def a_variable_that_names_no_proxy() -> Outcome:
    reported_of = []
    for value in (f"socks5://user:{CANARY}@proxy:1080", f"http://user:{CANARY}/x@proxy:3128", f"http://{CANARY}\n"):
        status, output = await run_efo("run", environment={**RUN, "HTTPS_PROXY": value})
        reported_of.append((status, reported(output, "HTTPS_PROXY ")))
    return Outcome(f"{reported_of}", reported_of == [(CONFIGURATION, True)] * 3)


@cases.case("is trusted by AWS_CA_BUNDLE or REQUESTS_CA_BUNDLE, and reported without them")
async def a_proxy_that_intercepts_tls() -> Outcome:
    authority, ca_file = made_authority()
    found = []
    async with behind_a_proxy(authority) as (_, proxy):
        for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
            set_environment(**{name: ca_file})
            async with efo.open_kinesis("orders", proxy_url=proxy.url) as kinesis:
                error = await first_error(kinesis.control_plane.list_shards)
                found.append(type(error).__name__)
            del os.environ[name]
    return Outcome(f"{found}", found == ["NoneType", "NoneType", TlsError.__name__])


@cases.case("NotHttp2Error names the proxy and what it has to offer")
async def a_proxy_that_intercepts_without_http2() -> Outcome:
    authority, ca_file = made_authority()
    set_environment(AWS_CA_BUNDLE=ca_file)
    async with behind_a_proxy(authority, alpn=["http/1.1"]) as (_, proxy):
        error = await first_error(
            partial(efo.consume, "orders", _ignore, application="a", leases="memory:", proxy_url=proxy.url)
        )
    is_right = isinstance(error, NotHttp2Error) and "a proxy that intercepts TLS has to offer h2" in str(error)
    return Outcome(f"{type(error).__name__}: {str(error)[:80]}", is_right)


@cases.case("one host: that of the region, in both ways, with an ARN and a known account too")
async def which_hosts_are_called() -> Outcome:
    authority, ca_file = made_authority()
    set_environment(AWS_CA_BUNDLE=ca_file, AWS_ACCOUNT_ID=ACCOUNT)
    async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address:
        fake.create_stream("orders", shards=2)
        async with NamedHosts(authority, {"kinesis": address.port}).serve() as hosts:
            async with efo.open_kinesis(ARN) as kinesis:
                await kinesis.control_plane.list_shards()
                await kinesis.control_plane.register_consumer(ARN, "billing")
                await trio.aclose_forcefully(await kinesis.connect())
            return Outcome(f"{sorted(set(hosts.asked))}", set(hosts.asked) == {HOST})


@cases.case("names the host that does not resolve, and what to check", seconds=90)
async def a_region_that_is_misspelt() -> Outcome:
    def getaddrinfo(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    set_environment(AWS_REGION="eu-wast-1")
    socket.getaddrinfo = getaddrinfo  # type: ignore[assignment] # nothing leaves the machine
    async with efo.open_kinesis("orders") as kinesis:
        error = await first_error(kinesis.control_plane.list_shards, seconds=75)
    is_right = isinstance(error, TransportError) and "cannot resolve the name kinesis.eu-wast-1" in str(error)
    return Outcome(str(error)[:100], is_right)


@cases.case("exit 78 at once: the endpoint has no TLS")
async def plain_http_where_tls_is_expected() -> Outcome:
    async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address:
        url = address.url.replace("http://", "https://")
        began = time.monotonic()
        status, output = await run_efo("run", environment={**RUN, "EFO_KINESIS__ENDPOINT_URL": url})
        is_reported = reported(output, "does not speak TLS", "check endpoint_url")
        return Outcome(
            f"exit {status} after {time.monotonic() - began:.0f} s, reported: {is_reported}",
            status == CONFIGURATION and is_reported,
        )


@cases.case("exit 78 at once: the endpoint has TLS")
async def tls_where_plain_http_is_expected() -> Outcome:
    async with FakeKinesis(clock=time.time) as fake, fake.serve() as address:
        url = address.url.replace("https://", "http://")
        status, output = await run_efo("run", environment={**RUN, "EFO_KINESIS__ENDPOINT_URL": url})
        is_reported = reported(output, "speaks TLS, but endpoint_url is http://", "write https://")
        return Outcome(f"exit {status}, reported: {is_reported}", status == CONFIGURATION and is_reported)


@cases.case("exit 78: another server answers; no lease is taken for written")
async def a_page_of_a_portal_in_place_of_dynamodb() -> Outcome:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: 13\r\n\r\n<html></html>"

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(page)

    async with FakeKinesis(clock=time.time) as fake, fake.serve() as address, trio.open_nursery() as nursery:
        fake.create_stream("orders", shards=1)
        [listener] = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        environment = {
            **RUN,
            "EFO_KINESIS__ENDPOINT_URL": address.url,
            "EFO_KINESIS__CA_FILE": str(address.ca_file),
            "EFO_LEASES__STORE": "dynamodb",
            "EFO_LEASES__DYNAMODB__ENDPOINT_URL": f"http://127.0.0.1:{listener.socket.getsockname()[1]}",
        }
        status, output = await run_efo("run", environment=environment)
        nursery.cancel_scope.cancel()
        is_reported = reported(output, "what answers is another server (HTTP 200)", "check endpoint_url")
        return Outcome(f"exit {status}, reported: {is_reported}", status == CONFIGURATION and is_reported)


@cases.case("names the proxy of each host, without its credentials")
async def doctor_behind_a_proxy() -> Outcome:
    authority, ca_file = made_authority()
    async with behind_a_proxy(authority, credentials=KNOWN) as (_, proxy):
        environment = {
            "EFO_KINESIS__STREAM": "orders",
            "EFO_LEASES__STORE": "dynamodb",
            "EFO_CLOUDWATCH__LEVEL": "summary",
            "AWS_CA_BUNDLE": ca_file,
            "HTTPS_PROXY": by_user(proxy),
        }
        _, output = await run_efo("doctor", "--json", environment=environment, seconds=55)
    named = f"the proxy 127.0.0.1:{proxy.port} (HTTPS_PROXY)"
    found = {check["name"]: check["detail"] for check in json.loads(_document(output))["checks"]}
    names = [name for name in ("region", "lease store", "cloudwatch:PutMetricData") if named in found[name]]
    return Outcome(f"named for {', '.join(names)}", len(names) == len(("Kinesis", "DynamoDB", "CloudWatch")))


def _document(output: str) -> str:
    return next(line for line in output.splitlines() if line.startswith("{"))


async def _ignore(_batch: efo.Batch) -> None: ...


def _opened(proxy_url: str | None = None, **where: str) -> AbstractAsyncContextManager[efo.KinesisClient]:
    return efo.open_kinesis(
        "orders", proxy_url=proxy_url, endpoint_url=where.get("endpoint_url"), ca_file=where.get("ca_file")
    )


@asynccontextmanager
async def _metadata() -> AsyncIterator[str]:
    answers = {
        "/latest/api/token": "token",
        "/latest/meta-data/iam/security-credentials/": "role",
        "/latest/meta-data/iam/security-credentials/role": json.dumps({
            "Code": "Success", "AccessKeyId": "AK", "SecretAccessKey": CANARY, "Token": CANARY,
            "Expiration": "2999-01-01T00:00:00Z",
        }),
    }  # fmt: skip

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            target = bytes(await stream.receive_some()).split(b" ")[1].decode()
            text = answers["/" + target.removeprefix("http://").partition("/")[2] if "://" in target else target]
            head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
            await stream.send_all((head + text).encode())

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()
