"""The other services of AWS: through which proxy they are called, what is never behind one, and whom efo trusts."""

import json
import time
from contextlib import asynccontextmanager

import botocore.session
import pytest

from efo.aws.egress import find_authorities
from efo.aws.role import AssumedRole
from efo.errors import ConfigurationError, LeaseStoreUnavailableError
from efo.kinesis.aws.client import credential_provider, open_kinesis
from efo.leases.stores.dynamodb.client import TableLocation, open_table
from efo.telemetry.cloudwatch.client import PutError, open_client
from efo.testing import FakeKinesis
from proofs.local_servers.http_proxy import HttpProxy
from proofs.local_servers.named_hosts import NamedHosts
from tests.loopback import json_server, listening

KINESIS = "kinesis.us-east-1.amazonaws.com"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SECRET = "CaNaRy7h3"
pytestmark = pytest.mark.usefixtures("aws_environment")


TABLE = {"Table": {"TableName": "leases", "TableStatus": "ACTIVE"}}
ROLE = AssumedRole("arn:aws:iam::123456789012:role/reader")


@pytest.mark.parametrize("by", ["variable", "setting"])
async def test_dynamodb_and_cloudwatch_go_through_the_proxy(authority, ca_file, aws_environment, by):
    aws_environment.setenv("AWS_CA_BUNDLE", ca_file)
    async with json_server(TABLE) as port:
        hosts = ("dynamodb.us-east-1.amazonaws.com", "monitoring.us-east-1.amazonaws.com")
        proxy = HttpProxy(dict.fromkeys(hosts, ("127.0.0.1", port)), intercepts=authority, credentials="user:secret")
        async with proxy.serve():
            proxy_url = None
            if by == "variable":
                aws_environment.setenv("HTTPS_PROXY", proxy.url)
            else:
                aws_environment.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
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
            table._has_responded = True
            with pytest.raises(LeaseStoreUnavailableError, match=message):
                await table.call("describe_table")
        where = {"region": None, "endpoint_url": None, "ca_file": None, "profile": None}
        async with open_client("billing", **where, proxy_url=proxy.url) as cloudwatch:
            with pytest.raises(PutError, match=message.rstrip(";")) as failed:
                await cloudwatch.put([])
    assert SECRET not in f"{raised.value} {failed.value}"


@pytest.mark.parametrize("by", ["variable", "setting"])
async def test_the_services_that_provide_credentials_go_through_the_proxy(authority, ca_file, aws_environment, by):
    aws_environment.setenv("AWS_CA_BUNDLE", ca_file)
    granted = b"""<AssumeRoleResponse><AssumeRoleResult><AssumedRoleUser>
    <Arn>arn:aws:sts::123456789012:assumed-role/r</Arn></AssumedRoleUser><Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>b</SecretAccessKey>
    <SessionToken>c</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>
    </AssumeRoleResponse>"""
    host = "sts.us-east-1.amazonaws.com"
    async with json_server(granted, "text/xml") as port:
        proxy = HttpProxy({host: ("127.0.0.1", port)}, intercepts=authority)
        async with proxy.serve():
            aws_environment.setenv("HTTPS_PROXY", proxy.url if by == "variable" else "http://127.0.0.1:1")
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


@pytest.mark.parametrize("by", ["variable", "setting"])
async def test_the_metadata_of_the_instance_is_never_asked_by_a_proxy(aws_environment, by):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        aws_environment.delenv(name)
    async with metadata() as url, HttpProxy().serve() as proxy:
        aws_environment.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        aws_environment.setenv("HTTP_PROXY", proxy.url)
        aws_environment.setenv("HTTPS_PROXY", proxy.url)
        proxy_url = proxy.url if by == "setting" else None
        assert await credential_provider(None, "us-east-1", None, proxy_url) == "iam-role"
        assert proxy.requests == []


async def test_the_agent_of_a_container_is_never_asked_by_a_proxy(aws_environment):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        aws_environment.delenv(name)
    document = {"AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t", "Expiration": "2999-01-01T00:00:00Z"}
    async with json_server(document, "application/json") as port, HttpProxy().serve() as proxy:
        aws_environment.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{port}/credentials")
        aws_environment.setenv("HTTP_PROXY", proxy.url)
        assert await credential_provider(None, "us-east-1", None, proxy.url) == "container-role"
        assert proxy.requests == []


# --- which authorities -----------------------------------------------------------------------------------------


def test_the_authorities_are_found_in_botocores_order(aws_environment, tmp_path):
    def found(ca_file=None):
        authorities = find_authorities(botocore.session.Session(), ca_file)
        return authorities.path, authorities.source

    assert found()[1] == "botocore"
    aws_environment.setenv("SSL_CERT_FILE", "/ssl.pem")
    aws_environment.setenv("SSL_CERT_DIR", "/ssl")
    assert found()[1] == "botocore"
    aws_environment.setenv("REQUESTS_CA_BUNDLE", "/requests.pem")
    assert found() == ("/requests.pem", "REQUESTS_CA_BUNDLE")
    (tmp_path / "config").write_text("[default]\nca_bundle = /profile.pem\n")
    assert found() == ("/profile.pem", "ca_bundle in the AWS configuration")
    aws_environment.setenv("AWS_CA_BUNDLE", "/aws.pem")
    assert found() == ("/aws.pem", "AWS_CA_BUNDLE")
    assert found("/argument.pem") == ("/argument.pem", "ca_file")


@pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
@pytest.mark.parametrize("value", ["", " "])
async def test_an_empty_variable_is_refused_by_its_name(aws_environment, name, value):
    aws_environment.setenv(name, value)
    refused = f"{name}( is empty|: the value has white space)"
    with pytest.raises(ConfigurationError, match=refused):
        async with open_kinesis("orders"):
            pass
    with pytest.raises(ConfigurationError, match=refused):
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
async def test_a_file_without_certificates_is_refused_by_all_clients(aws_environment, tmp_path, name, content, reason):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    aws_environment.setenv(name, str(path))
    where = {"region": "us-east-1", "endpoint_url": None, "ca_file": None, "profile": None}
    for opening in (
        open_kinesis("orders"),
        open_table("leases", TableLocation(region="us-east-1")),
        open_client("billing", **where),
    ):
        with pytest.raises(ConfigurationError, match=rf"ca\.pem \({name}\): {reason}"):
            async with opening:
                pass


async def test_requests_ca_bundle_is_trusted_for_each_service(authority, ca_file, aws_environment):
    aws_environment.setenv("REQUESTS_CA_BUNDLE", ca_file)
    async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address, json_server(TABLE) as port:
        fake.create_stream("orders", shards=2)
        async with NamedHosts(
            authority, {"kinesis": address.port, "dynamodb": port, "monitoring": port}
        ).serve() as hosts:
            async with open_kinesis("orders") as kinesis:
                assert len(await kinesis.control_plane.list_shards()) == 2
                assert await kinesis.control_plane.list_consumers(ARN) == []
            async with open_table("leases", TableLocation(region="us-east-1")) as table:
                assert await table.call("describe_table")
            where = {"region": None, "endpoint_url": None, "ca_file": None, "profile": None}
            async with open_client("billing", **where) as cloudwatch:
                await cloudwatch.put([])
            assert len(hosts.connected) == 4
