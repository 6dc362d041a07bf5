"""Signatures made by botocore, the independent side, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest
import trio

from efo.testing import Credential, FakeKinesis, FakeSettings
from efo.testing.errors import FakeError
from efo.testing.server.sigv4 import verify

NOW = datetime.now(UTC).timestamp()
KEYS = {
    "AKIDPLAIN": Credential("plain secret"),
    "AKIDSESSION": Credential("session secret", session_token="tok/en+=", expires_at=NOW + 60),
}
BODY = b'{"StreamName":"s"}'


@pytest.fixture(autouse=True)
def _botocore_signs_now(monkeypatch):
    """However long the tests before these took."""
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(NOW, UTC))


def signed(key="AKIDPLAIN", secret="plain secret", token=None, region="us-east-1", service="kinesis", **headers):  # noqa: S107 - made up
    """Return the headers of a request, as botocore signs it now."""
    plain = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "Kinesis_20131202.ListShards"} | headers
    request = botocore.awsrequest.AWSRequest("POST", "https://kinesis.fake:4567/", headers=plain, data=BODY)
    credentials = botocore.credentials.Credentials(key, secret, token)
    botocore.auth.SigV4Auth(credentials, service, region).add_auth(request)
    lowered = {name.lower(): str(value) for name, value in request.headers.items()}
    return {":authority": "kinesis.fake:4567"} | lowered


def refused(headers, body=BODY, now=NOW):
    with pytest.raises(FakeError) as caught:
        verify(headers, body, KEYS, "us-east-1", now)
    assert "secret" not in str(caught.value).lower().replace("secret access key", "")
    assert "tok/en" not in str(caught.value)
    return caught.value.code


def test_what_botocore_signs_is_right():
    verify(signed(), BODY, KEYS, "us-east-1", NOW)
    verify(signed("AKIDSESSION", "session secret", "tok/en+="), BODY, KEYS, "us-east-1", NOW)
    verify(signed(**{"X-Amz-Odd": "  two   spaces "}), BODY, KEYS, "us-east-1", NOW)


def test_the_host_header_is_as_good_as_the_authority():
    headers = signed()
    headers["host"] = headers.pop(":authority")
    verify(headers, BODY, KEYS, "us-east-1", NOW)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"secret": "another"}, "InvalidSignatureException"),
        ({"key": "AKIDUNKNOWN"}, "UnrecognizedClientException"),
        ({"region": "eu-west-1"}, "InvalidSignatureException"),
        ({"service": "dynamodb"}, "InvalidSignatureException"),
        ({"key": "AKIDSESSION", "secret": "session secret"}, "UnrecognizedClientException"),
        ({"key": "AKIDSESSION", "secret": "session secret", "token": "wrong"}, "UnrecognizedClientException"),
        ({"token": "none is expected"}, "UnrecognizedClientException"),
    ],
)
def test_who_is_not_known(arguments, code):
    assert refused(signed(**arguments)) == code


def test_a_session_ends():
    headers = signed("AKIDSESSION", "session secret", "tok/en+=")
    assert refused(headers, now=NOW + 60) == "ExpiredTokenException"


@pytest.mark.parametrize(("skew", "fine"), [(-290, True), (290, True), (-310, False), (310, False)])
def test_the_clock_may_be_five_minutes_off(skew, fine):
    headers = signed()
    if fine:
        verify(headers, BODY, KEYS, "us-east-1", NOW + skew)
    else:
        assert refused(headers, now=NOW + skew) == "InvalidSignatureException"


@pytest.mark.parametrize("changed", ["x-amz-target", "content-type", ":authority", "x-amz-date"])
def test_every_signed_header_counts(changed):
    headers = signed()
    headers[changed] = datetime.fromtimestamp(NOW + 1, UTC).strftime("%Y%m%dT%H%M%SZ") if "date" in changed else "other"
    assert refused(headers) == "InvalidSignatureException"


def test_the_body_counts():
    assert refused(signed(), body=BODY + b" ") == "InvalidSignatureException"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda _: "", "MissingAuthenticationTokenException"),
        (lambda _: "Basic abc", "IncompleteSignatureException"),
        (lambda _: "AWS4-HMAC-SHA256", "IncompleteSignatureException"),
        (lambda text: text.partition(", Signature")[0], "IncompleteSignatureException"),
        (lambda text: text.replace("/aws4_request", ""), "IncompleteSignatureException"),
        (lambda text: text.replace("SignedHeaders=", "Signed="), "IncompleteSignatureException"),
        (lambda text: text.replace("host;", ""), "InvalidSignatureException"),
        (lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"), "InvalidSignatureException"),
    ],
)
def test_a_mangled_authorization(change, code):
    headers = signed()
    headers["authorization"] = change(headers["authorization"])
    assert refused(headers) == code


@pytest.mark.parametrize("told", ["yesterday", "2026-01-01T00:00:00Z", ""])
def test_a_mangled_date(told):
    headers = signed() | {"x-amz-date": told}
    assert refused(headers) == "IncompleteSignatureException"


def test_a_missing_date():
    headers = signed()
    del headers["x-amz-date"]
    assert refused(headers) == "IncompleteSignatureException"


def test_secrets_are_not_shown():
    assert "session secret" not in repr(FakeSettings(credentials=KEYS))
    assert "tok/en" not in repr(KEYS["AKIDSESSION"])


async def test_who_comes_by_a_port_must_sign_and_who_comes_in_memory_need_not(http2_client):
    async with FakeKinesis(settings=FakeSettings(credentials=KEYS), clock=lambda: NOW) as fake:
        fake.create_stream("s")
        inside = http2_client(await fake.kinesis("s").connect())
        assert len((await (await inside.call("ListShards", BODY)).json())["Shards"]) == 1
        async with fake.serve(tls=False) as address, await trio.open_tcp_stream(address.host, address.port) as tcp:
            outside = http2_client(tcp)
            unsigned = await outside.call("ListShards", BODY)
            assert (await unsigned.json())["__type"] == "MissingAuthenticationTokenException"
            headers = {name: value for name, value in signed().items() if name in {"authorization", "x-amz-date"}}
            call = await outside.call("ListShards", BODY, **headers)
            assert (await call.json())["__type"] == "InvalidSignatureException"  # signed for another authority
