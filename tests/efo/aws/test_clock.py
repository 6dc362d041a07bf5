"""The service's time: from refusals alone, by their texts or dates."""

import time
from email.utils import formatdate

import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.session import Session

from efo.aws.clock import ClockedSigV4, ServiceClock
from efo.errors import ClockSkewError

HOST = 1_800_000_000.0


def refusal(service_time=None):
    return ClockSkewError("InvalidSignatureException", "the request was signed 600 s behind", service_time=service_time)


def test_the_hosts_clock_is_believed_until_a_service_refuses_it():
    assert ServiceClock(lambda: HOST).now() == HOST


@pytest.mark.parametrize("skew", [600.0, -600.0, 7 * 86400.0])
def test_the_text_of_a_refusal_says_the_time(skew, caplog):
    clock = ServiceClock(lambda: HOST)
    assert clock.correct(refusal(HOST + skew), formatdate(HOST - 5000, usegmt=True))  # the date is of a proxy
    assert clock.now() == HOST + skew
    assert f"the clock of this host is {abs(skew):.0f} s {'behind' if skew > 0 else 'ahead of'}" in caplog.text


def test_without_it_the_date_of_the_refusal_does():
    clock = ServiceClock(lambda: HOST)
    assert clock.correct(refusal(), formatdate(HOST + 600, usegmt=True))
    assert clock.now() == HOST + 600


@pytest.mark.parametrize("date", [None, "", "yesterday", formatdate(HOST + 30, usegmt=True)])
def test_a_refusal_that_says_no_other_time_corrects_nothing(date):
    clock = ServiceClock(lambda: HOST)
    assert not clock.correct(refusal(), date)
    assert clock.now() == HOST


def test_a_clock_that_is_set_right_later_is_learned_again(caplog):
    host = HOST
    clock = ServiceClock(lambda: host)
    clock.correct(refusal(HOST + 600))
    host = HOST + 600
    assert clock.now() == HOST + 1200
    assert clock.correct(refusal(HOST + 600))
    assert clock.now() == HOST + 600
    assert "is right again" in caplog.messages[-1]


def test_calls_that_were_refused_together_correct_it_once():
    clock = ServiceClock(lambda: HOST)
    assert clock.correct(refusal(HOST + 600))
    assert not clock.correct(refusal(HOST + 600))
    assert clock.now() == HOST + 600


@pytest.mark.parametrize("skew", [0.0, 600.0])
def test_clients_of_botocore_sign_by_it(skew):
    clock = ServiceClock()
    clock.correct(refusal(time.time() + skew))
    session = Session()
    session.set_credentials("AK", "SK")
    clock.install(session)
    signed = {}
    client = session.create_client("dynamodb", region_name="eu-west-1")
    client.meta.events.register_last("before-send.dynamodb", lambda request, **_: signed.update(request.headers) or 1)
    with pytest.raises(AttributeError):  # 1 is no response
        client.list_tables()
    at = time.strptime(signed["X-Amz-Date"].decode(), "%Y%m%dT%H%M%SZ")
    assert time.mktime(at) - time.timezone == pytest.approx(time.time() + skew, abs=20)
    assert signed["Authorization"].startswith(b"AWS4-HMAC-SHA256 Credential=AK/")


def test_calls_that_are_not_signed_stay_unsigned():
    session = Session()
    ServiceClock().install(session)
    session.set_credentials("AK", "SK")
    sent = {}
    client = session.create_client("sts", region_name="eu-west-1")
    client.meta.events.register_last("before-send.sts", lambda request, **_: sent.update(request.headers) or 1)
    with pytest.raises(AttributeError):
        client.assume_role_with_web_identity(RoleArn="x" * 20, RoleSessionName="efo", WebIdentityToken="token")
    assert "Authorization" not in sent


def test_a_request_without_a_stamp_is_signed_as_by_botocore():
    request = AWSRequest("POST", "https://localhost/", data=b"", headers={})
    ClockedSigV4(ReadOnlyCredentials("AK", "SK", None), "kinesis", "eu-west-1").add_auth(request)
    assert request.headers["X-Amz-Date"][:8] == time.strftime("%Y%m%d", time.gmtime())
