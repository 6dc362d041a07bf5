from __future__ import annotations

import pytest

from efo_service.web.security.access import SESSION_SECONDS, Access, Caller, is_loopback

TOKEN = "correct-horse-battery-staple"
OPEN, GUARDED = Access(), Access(TOKEN)


def caller(
    address="10.0.0.7", *, cookie=None, scheme="http", has_certificate=False, http_version="1.1", **headers
) -> Caller:
    named = {"host": "efo:8080"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return Caller(address, named, cookie, scheme, has_certificate, http_version)


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
        # Proxies and gateways have a field of their own, each another one.
        *(
            caller("127.0.0.1", host="localhost", **{name: "10.0.0.7"})
            for name in (
                *(
                    "via",
                    "x_client_ip",
                    "client_ip",
                    "true_client_ip",
                    "cf_connecting_ip",
                    "fastly_client_ip",
                    "x_cluster_client_ip",
                ),
                *(
                    "x_original_forwarded_for",
                    "x_azure_clientip",
                    "x_appengine_user_ip",
                    "cdn_loop",
                    "proxy_connection",
                ),
                *("x_amzn_trace_id", "x_request_id", "traceparent", "x_any_other"),
            )
        ),
        caller("127.0.0.1", host="localhost", http_version="1.0"),  # nginx adds no field, and speaks HTTP/1.0
        # Pages of other sites that a browser of this machine shows.
        caller("127.0.0.1", host="localhost", origin="https://evil.example"),
        caller("127.0.0.1", host="localhost:8080", origin="http://localhost:9999"),
        caller("127.0.0.1", host="localhost", origin="null"),
        caller("127.0.0.1", host="localhost", sec_fetch_site="cross-site"),
        caller("127.0.0.1", host="localhost", sec_fetch_site="same-site"),
        caller(
            "127.0.0.1",
            host="localhost",
            sec_fetch_site="cross-site",
            sec_fetch_mode="navigate",
            sec_fetch_dest="iframe",
        ),
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
    cookie = GUARDED.session(GUARDED.find(TOKEN), 1000.0)
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
    asked = caller(cookie=GUARDED.session(GUARDED.find(TOKEN), 0), **headers)
    assert GUARDED.may_act(asked, 0) == "foreign_site"
    same = caller(
        cookie=GUARDED.session(GUARDED.find(TOKEN), 0), origin="http://efo:8080", sec_fetch_site="same-origin"
    )
    assert GUARDED.may_act(same, 0) == "allowed"


def test_a_proxy_may_end_https_before_the_service():
    """The browser tells the origin that it sees; the connection of the proxy is plain."""
    session = GUARDED.session(GUARDED.find(TOKEN), 0)
    asked = caller(cookie=session, host="efo.example", origin="https://efo.example", sec_fetch_site="same-origin")
    assert GUARDED.may_act(asked, 0) == "allowed"
    assert asked.uses_https
    assert not caller(origin="http://efo:8080").uses_https
    plain = caller(cookie=session, host="efo.example", scheme="https", origin="http://efo.example")
    assert GUARDED.may_act(plain, 0) == "foreign_site"  # whoever changes pages of plain HTTP cannot act over HTTPS


BROWSER = {
    "accept": "text/html", "accept_encoding": "gzip", "accept_language": "en", "cache_control": "max-age=0",
    "connection": "keep-alive", "cookie": "a=b", "dnt": "1", "if_none_match": '"x"', "priority": "u=0",
    "referer": "http://localhost:8080/", "sec_ch_ua": "x", "sec_ch_ua_mobile": "?0", "sec_fetch_dest": "empty",
    "sec_fetch_mode": "cors", "sec_fetch_site": "same-origin", "sec_gpc": "1", "te": "trailers",
    "upgrade_insecure_requests": "1", "user_agent": "x",
}  # fmt: skip


def test_a_browser_and_other_clients_of_this_machine_may_read():
    assert OPEN.may_read(caller("127.0.0.1", host="localhost:8080", **BROWSER), 0) == "allowed"
    java = {"upgrade": "h2c", "connection": "Upgrade, HTTP2-Settings", "http2_settings": "x"}
    assert OPEN.may_read(caller("127.0.0.1", host="localhost:8080", **java), 0) == "allowed"


def test_a_link_on_another_site_leads_to_the_page():
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert OPEN.may_read(caller("127.0.0.1", host="localhost", **link), 0) == "allowed"
    assert OPEN.may_read(caller("127.0.0.1", host="localhost", origin="null", **link), 0) == "closed"


def test_another_site_cannot_use_a_browsers_certificate():
    assert OPEN.may_read(caller(has_certificate=True, sec_fetch_site="cross-site"), 0) == "closed"


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8080", "127.0.0.1", "127.8.8.8:1", "[::1]", "[::1]:65535", "[0:0:0:0:0:0:0:1]"),
        "[::ffff:127.0.0.1]:80",
    ],
)
def test_hosts_that_name_this_machine(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", "x", "10.0.0.1", "[::1]x", "[::1", "::1", "[::1]:", "[::1]:1:2", "[::1]:80.evil.example", "[[::1]]"),
        *("[::1%lo]", "[::1%25lo]:80", "[fe80::1%lo]", "[::]", "[::ffff:10.0.0.1]", "[localhost]", "[127.0.0.1]"),
        *("localhost.evil.example", "localhost:x", "localhost:", "localhost:123456", "evil@localhost", "localhost/"),
        *("localhost:80@evil.example", "localhost,evil.example", "localhost evil.example", " localhost", "localhost "),
        *("127.0.0.1.evil.example", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.01", "127.0.0.999"),
        *("\uff10.0.0.0", "localhost\uff1a80", "\uff4cocalhost", "127.0.0.1:\u0663"),
        *("localhost.", "localhost\n"),
    ],
)
def test_other_hosts_do_not(host):
    assert not is_loopback(host)
