"""How Kinesis is called: through which proxy, and at which host. Nothing leaves the machine."""

import asyncio
import time
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

import efo
from efo.errors import ConfigurationError, ProxyError, TransportError
from efo.kinesis.aws.client import open_kinesis
from efo.testing import FakeKinesis
from proofs.local_servers.http_proxy import HttpProxy, serve_tinyproxy
from proofs.local_servers.named_hosts import NamedHosts
from tests.loopback import listening

KINESIS = "kinesis.us-east-1.amazonaws.com"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SECRET = "CaNaRy7h3"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
pytestmark = pytest.mark.usefixtures("aws_environment")


@asynccontextmanager
async def behind_a_proxy(authority, **options):
    """Serve a fake that only a proxy reaches, by the name of AWS's host. Yields the fake and the proxy."""
    async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address:
        fake.create_stream("orders", shards=2)
        targets = {KINESIS: ("127.0.0.1", address.port)}
        async with HttpProxy(targets, intercepts=authority, **options).serve() as proxy:
            yield fake, proxy


async def calls(kinesis):
    """Call Kinesis in both ways: efo's own connection, and aiobotocore."""
    assert len(await kinesis.control_plane.list_shards()) == 2
    assert await kinesis.control_plane.list_consumers(ARN) == []


def tunnels_of(proxy):
    return set(proxy.tunnels), len(proxy.tunnels)


class TestKinesis:
    @pytest.mark.parametrize("by", ["variable", "setting"])
    async def test_both_ways_of_the_control_plane_go_through_the_proxy(self, authority, ca_file, aws_environment, by):
        async with behind_a_proxy(authority, credentials=f"user:{SECRET}") as (_, proxy):
            if by == "variable":
                aws_environment.setenv("HTTPS_PROXY", proxy.url)
            options = {} if by == "variable" else {"proxy_url": proxy.url}
            async with open_kinesis("orders", ca_file=ca_file, **options) as kinesis:
                await calls(kinesis)
            assert tunnels_of(proxy) == ({f"{KINESIS}:443"}, 2)

    @pytest.mark.parametrize("read_mode", ["fanout", "polling", "auto"])
    async def test_records_are_read_and_put_through_the_proxy(self, authority, ca_file, read_mode):
        async with behind_a_proxy(authority) as (_, proxy):
            options = {"ca_file": ca_file, "proxy_url": proxy.url}
            async with efo.open_producer("orders", **options) as producer:
                await producer.put(b"data", partition_key="key")
            read = trio.Event()

            async def handle(batch):
                assert [record.data for record in batch] == [b"data"]
                read.set()

            consuming = partial(
                efo.consume,
                "orders",
                handle,
                application="billing",
                leases="memory:",
                settings=efo.ConsumerSettings(read_mode=read_mode),
                **options,
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consuming)
                with trio.fail_after(60):
                    await read.wait()
                nursery.cancel_scope.cancel()
            assert set(proxy.tunnels) == {f"{KINESIS}:443"}

    @pytest.mark.parametrize("tls", [True, False], ids=["https", "http"])
    @pytest.mark.parametrize("no_proxy", ["127.0.0.1", "*"])
    async def test_no_proxy_reaches_hosts_directly(self, aws_environment, tls, no_proxy):
        async with (
            HttpProxy().serve() as proxy,
            FakeKinesis(clock=time.time) as fake,
            fake.serve(tls=tls) as address,
        ):
            fake.create_stream("orders", shards=2)
            for name in PROXIES:
                aws_environment.setenv(name, proxy.url)
            aws_environment.setenv("NO_PROXY", no_proxy)
            options = {"endpoint_url": address.url, "ca_file": str(address.ca_file) if tls else None}
            async with open_kinesis("orders", **options) as kinesis:
                await calls(kinesis)
                await trio.aclose_forcefully(await kinesis.connect())
            assert proxy.requests == []
            aws_environment.delenv("NO_PROXY")
            async with open_kinesis("orders", proxy_url="", **options) as kinesis:
                await calls(kinesis)
            assert proxy.requests == []

    async def test_an_endpoint_without_tls_is_tunnelled_and_forwarded_through_http_proxy(self, aws_environment):
        """HTTP/2 needs a tunnel; aiobotocore's HTTP/1.1 is forwarded by the same proxy."""
        async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address:
            fake.create_stream("orders", shards=2)
            async with HttpProxy({"kinesis.test": ("127.0.0.1", address.port)}).serve() as proxy:
                aws_environment.setenv("HTTP_PROXY", proxy.url)
                async with open_kinesis("orders", endpoint_url="http://kinesis.test") as kinesis:
                    await calls(kinesis)
                assert proxy.requests == [
                    "CONNECT kinesis.test:80 HTTP/1.1",
                    "POST http://kinesis.test/ HTTP/1.1",
                ]

    @pytest.mark.parametrize("status", [403, 407])
    async def test_a_proxy_that_refuses_is_reported_at_once(self, authority, ca_file, status):
        async with behind_a_proxy(authority, answer=f"HTTP/1.1 {status} No\r\n\r\n".encode()) as (_, proxy):
            async with open_kinesis("orders", ca_file=ca_file, proxy_url=proxy.url) as kinesis:
                with pytest.raises(ProxyError, match=rf"127\.0\.0\.1:{proxy.port} \(proxy_url\) answers {status}"):
                    await kinesis.control_plane.describe_stream()
            assert len(proxy.requests) == 1

    async def test_a_proxy_that_is_down_is_reported_by_its_step(self, ca_file, monkeypatch):
        async with listening(None) as port:
            pass
        async with open_kinesis("orders", ca_file=ca_file, proxy_url=f"http://127.0.0.1:{port}") as kinesis:
            with pytest.raises(TransportError, match=rf"cannot connect to the proxy 127\.0\.0\.1:{port}") as raised:
                await kinesis.control_plane.list_shards()
        assert raised.value.retryable

    async def test_a_wrong_proxy_is_refused_at_the_call(self, aws_environment):
        with pytest.raises(ConfigurationError, match="proxy_url names a SOCKS proxy"):
            async with efo.open_consumer("orders", application="billing", proxy_url="socks5://proxy.test"):
                pass
        aws_environment.setenv("https_proxy", f"http://user:{SECRET}")
        with pytest.raises(ConfigurationError, match="https_proxy is not the URL") as raised:
            async with open_kinesis("orders"):
                pass
        assert SECRET not in str(raised.value)

    async def test_its_credentials_are_in_no_line_of_the_log(self, authority, ca_file, caplog):
        caplog.set_level("DEBUG")
        async with behind_a_proxy(authority, credentials=f"user:{SECRET}") as (_, proxy):
            async with open_kinesis("orders", ca_file=ca_file, proxy_url=proxy.url) as kinesis:
                await calls(kinesis)
            url, proxy.credentials = proxy.url, "user:another"
            async with open_kinesis("orders", ca_file=ca_file, proxy_url=url) as kinesis:
                with pytest.raises(TransportError) as raised:
                    await kinesis.control_plane.list_consumers(ARN)
        assert SECRET not in f"{caplog.text} {raised.value!r}"

    async def test_a_real_proxy_passes_subscriptions(self, servers):
        """tinyproxy with Basic credentials, and a fake with TLS behind it."""
        url = servers.url(serve_tinyproxy)
        async with FakeKinesis(clock=time.time) as fake, fake.serve() as address:
            fake.create_stream("orders", shards=2)
            fake.put("orders", "key", b"data")
            options = {"endpoint_url": address.url, "ca_file": str(address.ca_file), "proxy_url": url}
            read = trio.Event()

            async def handle(_batch):
                read.set()

            consuming = partial(efo.consume, "orders", handle, application="b", leases="memory:", **options)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consuming)
                with trio.fail_after(60):
                    await read.wait()
                nursery.cancel_scope.cancel()
            async with open_kinesis("orders", **options) as kinesis:
                assert len(await kinesis.control_plane.list_shards()) == 2
                assert len(await kinesis.control_plane.list_consumers(ARN)) == 1
            wrong = options | {"proxy_url": url.replace("reader", "writer")}
            async with open_kinesis("orders", **wrong) as kinesis:
                with pytest.raises(ProxyError, match=r"answers 40[17] .*check its user and password"):
                    await kinesis.control_plane.list_shards()


WRONG = {"proxy_url": "socks5://proxy.test"}


async def ignore(_batch): ...


@pytest.mark.parametrize(
    "opening",
    [
        lambda: efo.open_kinesis("orders", **WRONG),
        lambda: efo.open_consumer("orders", application="a", **WRONG),
        lambda: efo.open_producer("orders", **WRONG),
        lambda: efo.leases.DynamoDbLeaseStore("leases", region="us-east-1", **WRONG),
        lambda: efo.open_lease_store("dynamodb:leases?region=us-east-1&proxy_url=socks5://proxy.test", "a", "orders"),
        lambda: efo.open_lease_store("dynamodb:leases", "a", "orders", "us-east-1", WRONG["proxy_url"]),
        lambda: efo.telemetry.open_cloudwatch("a", **WRONG),
    ],
)
async def test_each_part_takes_the_setting_and_refuses_a_wrong_one(opening):
    with pytest.raises(ConfigurationError, match="proxy_url names a SOCKS proxy"):
        async with opening():
            pass


@pytest.mark.parametrize(
    "consuming",
    [
        partial(efo.consume, "orders", ignore),
        partial(efo.consume_streams, ["orders"], ignore, leases="memory:", on_service_error="stop"),
        partial(efo.consume_in_processes, "orders", ignore, processes=1),
    ],
)
async def test_each_way_to_consume_takes_the_setting_and_refuses_a_wrong_one(consuming, tmp_path, aws_environment):
    aws_environment.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="proxy_url names a SOCKS proxy"):
        await consuming(application="a", **WRONG)


def test_each_surface_takes_the_setting_and_refuses_a_wrong_one(tmp_path, aws_environment):
    aws_environment.chdir(tmp_path)

    async def aio():
        async with efo.aio.open_consumer("orders", application="a", **WRONG):
            pass

    with pytest.raises(ConfigurationError, match="proxy_url names a SOCKS proxy"):
        asyncio.run(aio())
    with (
        pytest.raises(ConfigurationError, match="proxy_url names a SOCKS proxy"),
        efo.sync.open_producer("orders", **WRONG),
    ):
        pass


# --- which hosts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "host"),
    [
        ({}, KINESIS),
        ({"AWS_ACCOUNT_ID": "123456789012"}, KINESIS),
        ({"AWS_ACCOUNT_ID": "123456789012", "AWS_ACCOUNT_ID_ENDPOINT_MODE": "required"}, KINESIS),
        ({"AWS_ACCOUNT_ID_ENDPOINT_MODE": "required"}, KINESIS),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, "kinesis-fips.us-east-1.amazonaws.com"),
        ({"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "kinesis.us-east-1.api.aws"),
        (
            {"AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "true"},
            "kinesis-fips.us-east-1.api.aws",
        ),
        ({"AWS_ENDPOINT_URL": "https://vpce-1.kinesis.us-east-1.vpce.amazonaws.com"},
         "vpce-1.kinesis.us-east-1.vpce.amazonaws.com"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", ["orders", ARN], ids=["name", "ARN"])
async def test_both_ways_call_the_host_of_the_region_alone(
    authority, ca_file, aws_environment, stream, variables, host
):
    for name, value in variables.items():
        aws_environment.setenv(name, value)
    aws_environment.setenv("AWS_CA_BUNDLE", ca_file)
    async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address:
        fake.create_stream("orders", shards=2)
        async with NamedHosts(authority, {"kinesis": address.port}).serve() as hosts:
            async with open_kinesis(stream) as kinesis:
                await calls(kinesis)
                await kinesis.control_plane.register_consumer(ARN, "billing")
                await trio.aclose_forcefully(await kinesis.connect())
            assert set(hosts.asked) == {host}
            assert hosts.connected == [host] * 3


@pytest.mark.parametrize("read_mode", ["fanout", "polling"])
async def test_a_consumer_calls_the_hosts_that_the_page_lists(authority, ca_file, aws_environment, read_mode):
    aws_environment.setenv("AWS_CA_BUNDLE", ca_file)
    async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address:
        fake.create_stream("orders", shards=2)
        fake.put("orders", "key", b"data")
        async with NamedHosts(authority, {"kinesis": address.port}).serve() as hosts:
            settings = efo.ConsumerSettings(read_mode=read_mode)
            read = trio.Event()

            async def handle(_batch):
                read.set()

            consuming = partial(efo.consume, ARN, handle, application="b", leases="memory:", settings=settings)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consuming)
                with trio.fail_after(60):
                    await read.wait()
                nursery.cancel_scope.cancel()
            assert set(hosts.asked) == {KINESIS}
