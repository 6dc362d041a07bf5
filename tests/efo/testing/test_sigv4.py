"""Signatures that botocore creates are accepted; wrong ones are rejected."""

from __future__ import annotations

from datetime import UTC, datetime

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest
import trio

from efo.testing import Credential, FakeKinesis, FakeSettings
from efo.testing.errors import FakeError
from efo.testing.sigv4 import verify

NOW = datetime.now(UTC).timestamp()
KEYS = {
    "AKIDPLAIN": Credential("plain secret"),
    "AKIDSESSION": Credential("session secret", session_token="tok/en+=", expires_at=NOW + 60),
}
BODY = b'{"StreamName":"s"}'


@pytest.fixture(autouse=True)
def _botocore_signs_now(monkeypatch):
    """Make botocore sign with the time NOW, independent of the duration of earlier tests."""
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(NOW, UTC))


def signed(key="AKIDPLAIN", secret="plain secret", token=None, region="us-east-1", service="kinesis", **headers):  # noqa: S107 - not a real secret
    """Return the headers of a request that botocore has signed."""
    plain = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "Kinesis_20131202.ListShards"} | headers
    request = botocore.awsrequest.AWSRequest("POST", "https://kinesis.fake:4567/", headers=plain, data=BODY)
    credentials = botocore.credentials.Credentials(key, secret, token)
    botocore.auth.SigV4Auth(credentials, service, region).add_auth(request)
    lowered = {name.lower(): str(value) for name, value in request.headers.items()}
    return {":authority": "kinesis.fake:4567"} | lowered


def error_of(headers, body=BODY, now=NOW):
    with pytest.raises(FakeError) as caught:
        verify(headers, body, KEYS, "us-east-1", now)
    assert "secret" not in str(caught.value).lower().replace("secret access key", "")
    assert "tok/en" not in str(caught.value)
    return caught.value.code


def test_a_signature_of_botocore_is_accepted():
    verify(signed(), BODY, KEYS, "us-east-1", NOW)
    verify(signed("AKIDSESSION", "session secret", "tok/en+="), BODY, KEYS, "us-east-1", NOW)
    verify(signed(**{"X-Amz-Odd": "  two   spaces "}), BODY, KEYS, "us-east-1", NOW)


def test_the_host_header_is_accepted_instead_of_the_authority():
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
def test_wrong_credentials_or_a_wrong_scope_are_rejected(arguments, code):
    assert error_of(signed(**arguments)) == code


def test_an_expired_session_is_rejected():
    headers = signed("AKIDSESSION", "session secret", "tok/en+=")
    assert error_of(headers, now=NOW + 60) == "ExpiredTokenException"


@pytest.mark.parametrize(("skew", "accepted"), [(-290, True), (290, True), (-310, False), (310, False)])
def test_a_clock_skew_of_less_than_five_minutes_is_accepted(skew, accepted):
    headers = signed()
    if accepted:
        verify(headers, BODY, KEYS, "us-east-1", NOW + skew)
    else:
        assert error_of(headers, now=NOW + skew) == "InvalidSignatureException"


@pytest.mark.parametrize("changed", ["x-amz-target", "content-type", ":authority", "x-amz-date"])
def test_a_changed_signed_header_is_rejected(changed):
    headers = signed()
    headers[changed] = datetime.fromtimestamp(NOW + 1, UTC).strftime("%Y%m%dT%H%M%SZ") if "date" in changed else "other"
    assert error_of(headers) == "InvalidSignatureException"


def test_a_changed_body_is_rejected():
    assert error_of(signed(), body=BODY + b" ") == "InvalidSignatureException"


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
def test_a_malformed_authorization_header_is_rejected(change, code):
    headers = signed()
    headers["authorization"] = change(headers["authorization"])
    assert error_of(headers) == code


@pytest.mark.parametrize("date", ["yesterday", "2026-01-01T00:00:00Z", ""])
def test_a_malformed_date_is_rejected(date):
    headers = signed() | {"x-amz-date": date}
    assert error_of(headers) == "IncompleteSignatureException"


def test_a_missing_date_is_rejected():
    headers = signed()
    del headers["x-amz-date"]
    assert error_of(headers) == "IncompleteSignatureException"


def test_reprs_contain_no_secrets():
    assert "session secret" not in repr(FakeSettings(credentials=KEYS))
    assert "tok/en" not in repr(KEYS["AKIDSESSION"])


async def test_signatures_are_required_on_a_port_but_not_in_memory(http2_client):
    async with FakeKinesis(settings=FakeSettings(credentials=KEYS), clock=lambda: NOW) as fake:
        fake.create_stream("s")
        in_memory = http2_client(await fake.kinesis("s").connect())
        assert len((await (await in_memory.call("ListShards", BODY)).json())["Shards"]) == 1
        async with fake.serve(tls=False) as address, await trio.open_tcp_stream(address.host, address.port) as tcp:
            on_port = http2_client(tcp)
            unsigned = await on_port.call("ListShards", BODY)
            assert (await unsigned.json())["__type"] == "MissingAuthenticationTokenException"
            headers = {name: value for name, value in signed().items() if name in {"authorization", "x-amz-date"}}
            call = await on_port.call("ListShards", BODY, **headers)
            assert (await call.json())["__type"] == "InvalidSignatureException"  # signed for another authority
