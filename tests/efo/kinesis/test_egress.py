"""How efo leaves the machine: through which proxy each service is called, and which hosts are called at all.

Names of AWS resolve to loopback, or only a proxy knows them.
"""

import asyncio
import json
import os
import time
from contextlib import asynccontextmanager
from functools import partial

import botocore.session
import pytest
import trio
import trustme

import efo
from efo.aws.egress import find_authorities, reach_metadata_directly
from efo.errors import ConfigurationError, LeaseStoreUnavailableError, ProxyError, TransportError, WrongEndpointError
from efo.kinesis.aws.client import credential_provider, open_kinesis
from efo.kinesis.aws.role import AssumedRole
from efo.leases.stores.dynamodb.client import TableLocation, open_table
from efo.telemetry.cloudwatch.client import PutError, open_client
from efo.testing import FakeKinesis
from proofs.local_servers.http_proxy import HttpProxy, serve_tinyproxy
from proofs.local_servers.named_hosts import NamedHosts
from tests.efo.kinesis.test_aws import listening, tls_handler

KINESIS = "kinesis.us-east-1.amazonaws.com"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SECRET = "CaNaRy7h3"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Return a monkeypatch of an environment with credentials and a region alone."""
    for name in [*os.environ]:
        if name.startswith("AWS_") or name.upper() in {*PROXIES, "REQUESTS_CA_BUNDLE"}:
            monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority, tmp_path_factory):
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


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
    async def test_both_ways_of_the_control_plane_go_through_the_proxy(self, authority, ca_file, environment, by):
        async with behind_a_proxy(authority, credentials=f"user:{SECRET}") as (_, proxy):
            if by == "variable":
                environment.setenv("HTTPS_PROXY", proxy.url)
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
    async def test_no_proxy_reaches_hosts_directly(self, environment, tls, no_proxy):
        async with (
            HttpProxy().serve() as proxy,
            FakeKinesis(clock=time.time) as fake,
            fake.serve(tls=tls) as address,
        ):
            fake.create_stream("orders", shards=2)
            for name in PROXIES:
                environment.setenv(name, proxy.url)
            environment.setenv("NO_PROXY", no_proxy)
            options = {"endpoint_url": address.url, "ca_file": str(address.ca_file) if tls else None}
            async with open_kinesis("orders", **options) as kinesis:
                await calls(kinesis)
                await trio.aclose_forcefully(await kinesis.connect())
            assert proxy.requests == []
            environment.delenv("NO_PROXY")
            async with open_kinesis("orders", proxy_url="", **options) as kinesis:
                await calls(kinesis)
            assert proxy.requests == []

    async def test_an_endpoint_without_tls_is_tunnelled_and_forwarded_through_http_proxy(self, environment):
        """HTTP/2 needs a tunnel; aiobotocore's HTTP/1.1 is forwarded by the same proxy."""
        async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address:
            fake.create_stream("orders", shards=2)
            async with HttpProxy({"kinesis.test": ("127.0.0.1", address.port)}).serve() as proxy:
                environment.setenv("HTTP_PROXY", proxy.url)
                async with open_kinesis("orders", endpoint_url="http://kinesis.test") as kinesis:
                    await calls(kinesis)
                assert proxy.requests == [
                    "CONNECT kinesis.test:80 HTTP/1.1",
                    "POST http://kinesis.test/ HTTP/1.1",
                ]

    @pytest.mark.parametrize("status", [403, 407])
    async def test_a_proxy_that_refuses_is_told_at_once(self, authority, ca_file, status):
        async with behind_a_proxy(authority, answer=f"HTTP/1.1 {status} No\r\n\r\n".encode()) as (_, proxy):
            async with open_kinesis("orders", ca_file=ca_file, proxy_url=proxy.url) as kinesis:
                with pytest.raises(ProxyError, match=rf"127\.0\.0\.1:{proxy.port} \(proxy_url\) answers {status}"):
                    await kinesis.control_plane.describe_stream()
            assert len(proxy.requests) == 1

    async def test_a_proxy_that_is_down_is_told_by_its_step(self, ca_file, monkeypatch):
        async with listening(None) as port:
            pass
        async with open_kinesis("orders", ca_file=ca_file, proxy_url=f"http://127.0.0.1:{port}") as kinesis:
            with pytest.raises(TransportError, match=rf"cannot connect to the proxy 127\.0\.0\.1:{port}") as raised:
                await kinesis.control_plane.list_shards()
        assert raised.value.retryable

    async def test_a_wrong_proxy_is_refused_at_the_call(self, environment):
        with pytest.raises(ConfigurationError, match="proxy_url names a SOCKS proxy"):
            async with efo.open_consumer("orders", application="billing", proxy_url="socks5://proxy.test"):
                pass
        environment.setenv("https_proxy", f"http://user:{SECRET}")
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
        lambda: efo.DynamoDbLeaseStore("leases", region="us-east-1", **WRONG),
        lambda: efo.open_lease_store("dynamodb:leases?region=us-east-1&proxy_url=socks5://proxy.test", "a", "orders"),
        lambda: efo.open_lease_store("dynamodb:leases", "a", "orders", "us-east-1", WRONG["proxy_url"]),
        lambda: efo.open_cloudwatch("a", **WRONG),
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
async def test_each_way_to_consume_takes_the_setting_and_refuses_a_wrong_one(consuming, tmp_path, environment):
    environment.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="proxy_url names a SOCKS proxy"):
        await consuming(application="a", **WRONG)


def test_each_door_takes_the_setting_and_refuses_a_wrong_one(tmp_path, environment):
    environment.chdir(tmp_path)

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


# --- the other services ----------------------------------------------------------------------------------------

TABLE = {"Table": {"TableName": "leases", "TableStatus": "ACTIVE"}}
ROLE = AssumedRole("arn:aws:iam::123456789012:role/reader")


def json_server(document, content_type="application/x-amz-json-1.0"):
    async def handle(stream):
        received = b""
        while b"\r\n\r\n" not in received:
            data = await stream.receive_some()
            if not data:
                return
            received += data
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        await stream.send_all(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
            % (content_type.encode(), len(text), text)
        )
        await stream.aclose()

    return listening(handle)


@pytest.mark.parametrize("by", ["variable", "setting"])
async def test_dynamodb_and_cloudwatch_go_through_the_proxy(authority, ca_file, environment, by):
    environment.setenv("AWS_CA_BUNDLE", ca_file)
    async with json_server(TABLE) as port:
        hosts = ("dynamodb.us-east-1.amazonaws.com", "monitoring.us-east-1.amazonaws.com")
        proxy = HttpProxy(dict.fromkeys(hosts, ("127.0.0.1", port)), intercepts=authority, credentials="user:secret")
        async with proxy.serve():
            proxy_url = None
            if by == "variable":
                environment.setenv("HTTPS_PROXY", proxy.url)
            else:
                environment.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
                proxy_url = proxy.url
            async with open_table("leases", TableLocation(region="us-east-1", proxy_url=proxy_url)) as table:
                assert await table.call("describe_table")
            where = {"region": None, "endpoint_url": None, "ca_file": None, "profile": None}
            async with open_client("billing", **where, proxy_url=proxy_url) as cloudwatch:
                await cloudwatch.put([])
            assert proxy.tunnels == [f"{host}:443" for host in hosts]


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (b"HTTP/1.1 407 No\r\n\r\n", ConfigurationError, "answers 407: check its user and password"),
        (b"HTTP/1.1 403 No\r\n\r\n", ConfigurationError, "answers 403: let it allow CONNECT to this host"),
        (b"HTTP/1.1 503 No\r\n\r\n", LeaseStoreUnavailableError, "answers 503;"),
        (b"", LeaseStoreUnavailableError, "proxy_url"),
        (b"garbage\r\n\r\n", LeaseStoreUnavailableError, "proxy_url"),
    ],
)
async def test_a_proxy_that_does_not_reach_dynamodb_and_cloudwatch_is_named(answer, kind, message):
    async with HttpProxy(answer=answer, credentials=f"user:{SECRET}").serve() as proxy:
        location = TableLocation(region="us-east-1", proxy_url=proxy.url)
        async with open_table("leases", location) as table:
            with pytest.raises(
                kind, match=rf"cannot be reached: .*the proxy 127\.0\.0\.1:{proxy.port} \(.*{message}"
            ) as raised:
                await table.call("describe_table")
            table._had_credentials = True
            with pytest.raises(LeaseStoreUnavailableError, match=message):
                await table.call("describe_table")
        where = {"region": None, "endpoint_url": None, "ca_file": None, "profile": None}
        async with open_client("billing", **where, proxy_url=proxy.url) as cloudwatch:
            with pytest.raises(PutError, match=message.rstrip(";")) as failed:
                await cloudwatch.put([])
    assert SECRET not in f"{raised.value} {failed.value}"


@pytest.mark.parametrize("by", ["variable", "setting"])
async def test_the_services_that_provide_credentials_go_through_the_proxy(authority, ca_file, environment, by):
    environment.setenv("AWS_CA_BUNDLE", ca_file)
    granted = b"""<AssumeRoleResponse><AssumeRoleResult><AssumedRoleUser>
    <Arn>arn:aws:sts::123456789012:assumed-role/r</Arn></AssumedRoleUser><Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>b</SecretAccessKey>
    <SessionToken>c</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>
    </AssumeRoleResponse>"""
    host = "sts.us-east-1.amazonaws.com"
    async with json_server(granted, "text/xml") as port:
        proxy = HttpProxy({host: ("127.0.0.1", port)}, intercepts=authority)
        async with proxy.serve():
            environment.setenv("HTTPS_PROXY", proxy.url if by == "variable" else "http://127.0.0.1:1")
            proxy_url = None if by == "variable" else proxy.url
            assert await credential_provider(None, "us-east-1", ROLE, proxy_url) == "assume-role"
            assert proxy.tunnels == [f"{host}:443"]


@asynccontextmanager
async def metadata():
    """Serve the credentials of an instance's role, in the protocol of IMDSv2, on loopback; yield its URL."""
    answers = {
        "PUT /latest/api/token": "token",
        "GET /latest/meta-data/iam/security-credentials/": "role",
        "GET /latest/meta-data/iam/security-credentials/role": json.dumps({
            "Code": "Success", "AccessKeyId": "AKINSTANCE", "SecretAccessKey": "s", "Token": "t",
            "Expiration": "2999-01-01T00:00:00Z",
        }),
    }  # fmt: skip

    async def handle(stream):
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive_some()
            method, target, _ = received.split(b"\r\n")[0].decode().split(" ")
            path = "/" + target.removeprefix("http://").partition("/")[2]
            text = answers[f"{method} {path}"].encode()
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(text) + text
            )

    async with listening(handle) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("way", ["aiobotocore", "botocore"])
@pytest.mark.parametrize("by", ["variable", "setting"])
async def test_the_metadata_of_the_instance_is_never_asked_by_a_proxy(environment, way, by):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        environment.delenv(name)
    async with metadata() as url, HttpProxy().serve() as proxy:
        environment.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        environment.setenv("HTTP_PROXY", proxy.url)
        environment.setenv("HTTPS_PROXY", proxy.url)
        if way == "aiobotocore":
            assert (
                await credential_provider(None, "us-east-1", None, proxy.url if by == "setting" else None) == "iam-role"
            )
        else:
            session = botocore.session.Session()
            reach_metadata_directly(session)
            credentials = await trio.to_thread.run_sync(session.get_credentials)
            assert credentials.access_key == "AKINSTANCE"
        assert proxy.requests == []


async def test_the_agent_of_a_container_is_never_asked_by_a_proxy(environment):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment.delenv(name)
    document = {"AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t", "Expiration": "2999-01-01T00:00:00Z"}
    async with json_server(document, "application/json") as port, HttpProxy().serve() as proxy:
        environment.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{port}/credentials")
        environment.setenv("HTTP_PROXY", proxy.url)
        assert await credential_provider(None, "us-east-1", None, proxy.url) == "container-role"
        assert proxy.requests == []


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
async def test_both_ways_call_the_host_of_the_region_alone(authority, ca_file, environment, stream, variables, host):
    for name, value in variables.items():
        environment.setenv(name, value)
    environment.setenv("AWS_CA_BUNDLE", ca_file)
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
async def test_a_consumer_calls_the_hosts_that_the_page_lists(authority, ca_file, environment, read_mode):
    environment.setenv("AWS_CA_BUNDLE", ca_file)
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


# --- which authorities -----------------------------------------------------------------------------------------


def test_the_authorities_are_found_in_botocores_order(environment, tmp_path):
    def found(ca_file=None):
        authorities = find_authorities(botocore.session.Session(), ca_file)
        return authorities.path, authorities.source

    assert found()[1] == "botocore"
    environment.setenv("SSL_CERT_FILE", "/ssl.pem")
    environment.setenv("SSL_CERT_DIR", "/ssl")
    assert found()[1] == "botocore"
    environment.setenv("REQUESTS_CA_BUNDLE", "/requests.pem")
    assert found() == ("/requests.pem", "REQUESTS_CA_BUNDLE")
    (tmp_path / "config").write_text("[default]\nca_bundle = /profile.pem\n")
    assert found() == ("/profile.pem", "ca_bundle in the AWS configuration")
    environment.setenv("AWS_CA_BUNDLE", "/aws.pem")
    assert found() == ("/aws.pem", "AWS_CA_BUNDLE")
    assert found("/argument.pem") == ("/argument.pem", "ca_file")


@pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
@pytest.mark.parametrize("value", ["", " "])
async def test_an_empty_variable_is_refused_by_its_name(environment, name, value):
    environment.setenv(name, value)
    with pytest.raises(ConfigurationError, match=f"{name} is empty"):
        async with open_kinesis("orders"):
            pass
    with pytest.raises(ConfigurationError, match=f"{name} is empty"):
        async with open_table("leases", TableLocation(region="us-east-1")):
            pass


@pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"", "it has no certificate"),
        (b"not a certificate", "it has no certificate"),
        (b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", "a certificate in it is damaged"),
    ],
)
async def test_a_file_without_certificates_is_refused_by_all_clients(environment, tmp_path, name, content, reason):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    environment.setenv(name, str(path))
    where = {"region": "us-east-1", "endpoint_url": None, "ca_file": None, "profile": None}
    for opening in (
        open_kinesis("orders"),
        open_table("leases", TableLocation(region="us-east-1")),
        open_client("billing", **where),
    ):
        with pytest.raises(ConfigurationError, match=rf"ca\.pem \({name}\): {reason}"):
            async with opening:
                pass


async def test_requests_ca_bundle_is_trusted_for_each_service(authority, ca_file, environment):
    environment.setenv("REQUESTS_CA_BUNDLE", ca_file)
    async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address, json_server(TABLE) as port:
        fake.create_stream("orders", shards=2)
        async with NamedHosts(
            authority, {"kinesis": address.port, "dynamodb": port, "monitoring": port}
        ).serve() as hosts:
            async with open_kinesis("orders") as kinesis:
                await calls(kinesis)
            async with open_table("leases", TableLocation(region="us-east-1")) as table:
                assert await table.call("describe_table")
            where = {"region": None, "endpoint_url": None, "ca_file": None, "profile": None}
            async with open_client("billing", **where) as cloudwatch:
                await cloudwatch.put([])
            assert len(hosts.connected) == 4


# --- what is no service of AWS ---------------------------------------------------------------------------------

PAGE = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: 13\r\n\r\n<html></html>"


def page(status):
    async def handle(stream):
        async with stream:
            await stream.receive_some()
            await stream.send_all(PAGE % status)

    return listening(handle)


@pytest.mark.parametrize("status", [b"200 OK", b"302 Found", b"404 Not Found"])
async def test_a_page_of_another_server_is_no_kinesis(status):
    async with page(status) as port, open_kinesis("orders", endpoint_url=f"http://127.0.0.1:{port}") as kinesis:
        for call in (kinesis.control_plane.list_shards(), kinesis.control_plane.list_consumers(ARN)):
            with pytest.raises(WrongEndpointError, match=r"speaks HTTP/1|what answers is another server"):
                await call


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_scheme_that_the_endpoint_does_not_speak_is_told_at_once(authority, ca_file, scheme):
    """TLS for http://, and none for https://: aiobotocore is not asked to try five times."""
    opened = []

    async def handle(stream):
        opened.append(stream)
        if scheme == "https":
            async with stream:
                await stream.receive_some()
                await stream.send_all(PAGE % b"400 Bad Request")
        else:
            await tls_handler(authority, ["h2"])(stream)

    async with (
        listening(handle) as port,
        open_kinesis("orders", endpoint_url=f"{scheme}://127.0.0.1:{port}", ca_file=ca_file) as kinesis,
    ):
        with pytest.raises(WrongEndpointError, match=r"does not speak TLS|speaks TLS, but endpoint_url is http"):
            await kinesis.control_plane.list_shards()
    assert len(opened) == (1 if scheme == "https" else 2)  # a server that closes an HTTP/2 connection is asked for TLS


@pytest.mark.parametrize("status", [b"200 OK", b"302 Found", b"404 Not Found"])
async def test_a_page_of_another_server_is_no_dynamodb_and_no_write_is_taken_for_done(status):
    async with page(status) as port:
        location = TableLocation("us-east-1", f"http://127.0.0.1:{port}")
        async with open_table("leases", location) as table:
            for operation in ("describe_table", "update_item"):
                arguments = {} if operation == "describe_table" else {"Key": {"leaseKey": {"S": "x"}}}
                with pytest.raises(ConfigurationError, match=rf"another server \(HTTP {status[:3].decode()}\)"):
                    await table.call(operation, **arguments)
            table._had_credentials = True
            with pytest.raises(LeaseStoreUnavailableError, match="another server"):
                await table.call("describe_table")


async def test_plain_http_is_told_where_tls_is_expected():
    async with page(b"400 Bad Request") as port:
        url = f"https://127.0.0.1:{port}"
        async with open_table("leases", TableLocation("us-east-1", url)) as table:
            with pytest.raises(ConfigurationError, match="what answers does not speak TLS: check endpoint_url"):
                await table.call("describe_table")
        where = {"region": None, "endpoint_url": url, "ca_file": None, "profile": None}
        async with open_client("billing", **where) as cloudwatch:
            with pytest.raises(PutError, match="what answers does not speak TLS: check endpoint_url") as raised:
                await cloudwatch.put([])
            assert raised.value.error_type == "wrong_server"


@pytest.mark.parametrize("status", [b"200 OK", b"302 Found", b"403 Forbidden"])
async def test_a_page_of_another_server_is_no_cloudwatch(status):
    async with page(status) as port:
        where = {"region": None, "endpoint_url": f"http://127.0.0.1:{port}", "ca_file": None, "profile": None}
        async with open_client("billing", **where) as cloudwatch:
            with pytest.raises(PutError, match="another server"):
                await cloudwatch.put([])
