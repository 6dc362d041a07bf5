from __future__ import annotations

import pytest

from efo_service.web.security.access import SESSION_SECONDS, Access, Caller, host_of, is_loopback

TOKEN = "correct-horse-battery-staple"
OPEN, GUARDED = Access(), Access(TOKEN)


def caller(address="10.0.0.7", *, cookie=None, scheme="http", has_certificate=False, **headers) -> Caller:
    named = {"host": "efo:8080"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return Caller(address, named, cookie, scheme, has_certificate)


LOCAL = caller("127.0.0.1", host="localhost:8080")


def test_this_machine_may_read_by_a_loopback_name():
    for access in (OPEN, GUARDED):
        assert access.may_read(LOCAL, 0) == "allowed"
        assert access.may_read(caller("::1", host="[::1]:8080"), 0) == "allowed"
        assert access.may_read(caller("::ffff:127.0.0.1", host="127.0.0.1"), 0) == "allowed"


@pytest.mark.parametrize(
    "foreign",
    [
        caller("127.0.0.1", host="evil.example:8080"),  # DNS rebinding
        caller("127.0.0.1", host=""),
        caller("127.0.0.1", host="localhost", x_forwarded_for="10.0.0.7"),  # a proxy on this machine
        caller("127.0.0.1", host="localhost", forwarded="for=10.0.0.7"),
        caller("127.0.0.1", host="localhost", x_real_ip="10.0.0.7"),
        # A mesh delivers from a loopback address, and passes the Host header on: Istio, Linkerd.
        caller("127.0.0.6", host="localhost"),
        caller("127.0.0.1", host="localhost", x_forwarded_proto="http"),
        caller("127.0.0.1", host="localhost", x_envoy_attempt_count="1"),
        caller("127.0.0.1", host="localhost", l5d_client_id="other.default.serviceaccount"),
        caller("10.0.0.7", host="localhost"),
        caller(None, host="localhost"),
        caller("127.0.0.1", host="localhost.evil.example"),
        caller("127.0.0.1", host="127.0.0.1.evil.example:80"),
    ],
)
def test_others_need_the_token_to_read(foreign):
    assert OPEN.may_read(foreign, 0) == "closed"
    assert GUARDED.may_read(foreign, 0) == "token_needed"


def test_the_token_or_a_client_certificate_lets_read():
    assert GUARDED.may_read(caller(authorization=f"Bearer {TOKEN}"), 0) == "allowed"
    assert GUARDED.may_read(caller(authorization=f"bearer  {TOKEN} "), 0) == "allowed"
    assert OPEN.may_read(caller(has_certificate=True), 0) == "allowed"


@pytest.mark.parametrize("wrong", ["Bearer", "Bearer x", f"Basic {TOKEN}", TOKEN, "Bearer \udcff", f"Bearer {TOKEN}x"])
def test_anything_else_is_no_token(wrong):
    assert GUARDED.may_read(caller(authorization=wrong), 0) == "token_needed"
    assert OPEN.may_read(caller(authorization=wrong), 0) == "closed"


def test_acting_needs_the_token_also_on_this_machine_and_with_a_certificate():
    assert OPEN.may_act(LOCAL, 0) == "closed"
    assert GUARDED.may_act(LOCAL, 0) == "token_needed"
    assert GUARDED.may_act(caller(has_certificate=True), 0) == "token_needed"
    assert GUARDED.may_act(caller(authorization=f"Bearer {TOKEN}"), 0) == "allowed"


def test_a_session_lasts_for_some_hours_and_has_no_secret():
    cookie = GUARDED.session(1000.0)
    assert TOKEN not in cookie
    assert GUARDED.may_act(caller(cookie=cookie), 1000.0 + SESSION_SECONDS - 1) == "allowed"
    assert GUARDED.may_act(caller(cookie=cookie), 1000.0 + SESSION_SECONDS) == "token_needed"
    assert Access("another-token-of-efo").may_act(caller(cookie=cookie), 1000.0) == "token_needed"


@pytest.mark.parametrize("forged", ["", ".", "99999999999.", "99999999999.abc", "x.y", "²." + "0" * 64, "9" * 5000])
def test_a_forged_session_is_none(forged):
    assert GUARDED.may_act(caller(cookie=forged), 0) == "token_needed"
    assert OPEN.may_act(caller(cookie=forged), 0) == "closed"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://efo:9090"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_a_page_of_another_site_cannot_act_even_with_a_session(headers):
    asked = caller(cookie=GUARDED.session(0), **headers)
    assert GUARDED.may_act(asked, 0) == "foreign_site"
    same = caller(cookie=GUARDED.session(0), origin="http://efo:8080", sec_fetch_site="same-origin")
    assert GUARDED.may_act(same, 0) == "allowed"


def test_a_proxy_may_end_https_before_the_service():
    """The browser tells the origin that it sees; the connection of the proxy is plain."""
    session = GUARDED.session(0)
    asked = caller(cookie=session, host="efo.example", origin="https://efo.example", sec_fetch_site="same-origin")
    assert GUARDED.may_act(asked, 0) == "allowed"
    assert asked.uses_https
    assert not caller(origin="http://efo:8080").uses_https
    plain = caller(cookie=session, host="efo.example", scheme="https", origin="http://efo.example")
    assert GUARDED.may_act(plain, 0) == "foreign_site"  # whoever changes pages of plain HTTP cannot act over HTTPS


def test_hosts_are_parsed_with_and_without_port_and_brackets():
    assert [host_of(header) for header in ("a:1", "a", "[::1]:8080", "[::1]")] == ["a", "a", "::1", "::1"]
    assert [is_loopback(host) for host in ("LOCALHOST", "127.8.8.8", "::1", "10.0.0.1", "", "x")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
