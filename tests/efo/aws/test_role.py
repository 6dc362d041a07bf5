"""A role to assume: STS on loopback, which botocore calls as it calls that of AWS."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from efo.aws.clock import ServiceClock
from efo.aws.credentials import CredentialSource
from efo.aws.role import AssumedRole
from efo.errors import ConfigurationError, CredentialsError
from efo.kinesis.aws.client import Signer, credential_provider, open_kinesis
from efo.testing import FakeKinesis

ARN = "arn:aws:iam::123456789012:role/kinesis-reader"
ROLE = AssumedRole(ARN, "external-7", "efo-orders")
GRANTED = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/kinesis-reader/efo</Arn>
<AssumedRoleId>x:efo</AssumedRoleId>
</AssumedRoleUser><Credentials><AccessKeyId>AKROLE{number}</AccessKeyId><SecretAccessKey>hunter2</SecretAccessKey>
<SessionToken>token{number}</SessionToken><Expiration>{expiration}</Expiration></Credentials></AssumeRoleResult>
</AssumeRoleResponse>"""
DENIED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>AccessDenied</Code>
<Message>User me is not authorized to perform: sts:AssumeRole on resource: {arn}</Message></Error>
</ErrorResponse>"""


class Sts:
    """An STS. `calls`: the parameters of each AssumeRole. `lifetime`: of its credentials, in seconds."""

    def __init__(self) -> None:
        self.calls: list[dict[str, str]] = []
        self.signed_by: list[str] = []
        self.lifetime = 3600.0
        self.denies = False

    def respond(self, request: BaseHTTPRequestHandler) -> tuple[int, str]:
        body = request.rfile.read(int(request.headers["Content-Length"])).decode()
        self.calls.append({name: values[0] for name, values in parse_qs(body).items()})
        self.signed_by.append(request.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        if self.denies:
            return 403, DENIED.format(arn=ARN)
        expiration = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.lifetime))
        return 200, GRANTED.format(number=len(self.calls), expiration=expiration)


@pytest.fixture
def sts(monkeypatch, tmp_path):
    sts = Sts()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, text = sts.respond(self)
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKCHAIN")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_port}")
        yield sts
        server.shutdown()
        thread.join()


def signer_of(role=ROLE, monotonic=time.monotonic):
    source = CredentialSource(None, "eu-west-1", role, monotonic=monotonic)
    return Signer(source, ServiceClock(), "https://localhost/", "eu-west-1")


async def signed_by(signer: Signer) -> tuple[str, str]:
    headers = dict(await signer.sign("T", b""))
    key = headers["Authorization"].partition("Credential=")[2].partition("/")[0]
    return key, headers["X-Amz-Security-Token"]


async def test_requests_are_signed_with_the_credentials_of_the_role(sts):
    signer = signer_of()
    assert await signed_by(signer) == ("AKROLE1", "token1")
    assert await signed_by(signer) == ("AKROLE1", "token1")
    (call,) = sts.calls
    assert {name: call[name] for name in ("Action", "RoleArn", "ExternalId", "RoleSessionName")} == {
        "Action": "AssumeRole",
        "RoleArn": ARN,
        "ExternalId": "external-7",
        "RoleSessionName": "efo-orders",
    }
    assert sts.signed_by == ["AKCHAIN"]  # the credentials of the chain assume the role


async def test_the_credentials_are_refreshed_before_they_expire(sts):
    now = 0.0
    signer = signer_of(monotonic=lambda: now)
    assert await signed_by(signer) == ("AKROLE1", "token1")
    now = 3100.0
    assert await signed_by(signer) == ("AKROLE2", "token2")
    assert await signed_by(signer) == ("AKROLE2", "token2")


async def test_a_role_that_may_not_be_assumed_is_reported_with_the_provider(sts):
    sts.denies = True
    with pytest.raises(ConfigurationError, match="AWS STS: AssumeRole was answered with AccessDenied"):
        await signed_by(signer_of())


async def test_a_refresh_that_fails_later_is_temporary(sts):
    now = 0.0
    signer = signer_of(monotonic=lambda: now)
    await signed_by(signer)
    sts.denies, now = True, 3601.0
    with pytest.raises(CredentialsError, match="cannot be refreshed now"):
        await signed_by(signer)


async def test_calls_and_subscriptions_of_a_client_use_the_role(sts):
    async with FakeKinesis(clock=time.time) as fake, fake.serve() as address:
        fake.create_stream("orders", shards=2)
        client = open_kinesis(
            "orders", region="eu-west-1", endpoint_url=address.url, ca_file=str(address.ca_file), role=ROLE
        )
        async with client as kinesis:
            assert len(await kinesis.control_plane.list_shards()) == 2
    assert len(sts.calls) == 1


async def test_doctor_names_the_provider(sts):
    assert await credential_provider(None, "eu-west-1", ROLE) == "assume-role"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kinesis-reader",), "'kinesis-reader' is not the ARN of a role: expected arn:aws:iam::ACCOUNT:role/NAME"),
        (("arn:aws:iam::123456789012:user/me",), "is not the ARN of a role"),
        ((ARN, "a b"), "the external id is not one"),
        ((ARN, None, "a/b"), "'a/b' is not the name of a role's session"),
    ],
)
def test_what_sts_does_not_take_is_refused(arguments, message):
    with pytest.raises(ConfigurationError) as caught:
        AssumedRole(*arguments)
    assert message in str(caught.value)
    assert "a b" not in str(caught.value)  # an external id is nobody else's business
