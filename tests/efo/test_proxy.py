"""The proxy of a host: the setting, or the variables as urllib and botocore read them; never a secret in a message."""

import urllib.request

import botocore.utils
import pytest
from botocore.httpsession import ProxyConfiguration

from efo.errors import ConfigurationError
from efo.proxy import Proxy, as_mapping, default_proxies, find_proxy, host_and_port, parse_proxy, without_credentials

HOST = "https://kinesis.eu-west-1.amazonaws.com"
SECRET = "CaNaRy7h3"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Return a monkeypatch of an environment without proxies."""
    for name in urllib.request.getproxies_environment():
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("value", "scheme", "host", "port"),
    [
        ("http://proxy.test:3128", "http", "proxy.test", 3128),
        ("http://proxy.test:3128/", "http", "proxy.test", 3128),
        ("https://proxy.test", "https", "proxy.test", 443),
        ("HTTP://Proxy.test", "http", "proxy.test", 80),
        ("proxy.test:3128", "http", "proxy.test", 3128),
        ("//proxy.test:3128", "http", "proxy.test", 3128),
        ("http://[::1]:3128", "http", "::1", 3128),
        ("[::1]:3128", "http", "::1", 3128),
        ("http://user:secret@proxy.test:3128", "http", "proxy.test", 3128),
    ],
)
def test_a_proxy_is_named_by_a_url_or_by_host_and_port(value, scheme, host, port):
    proxy = parse_proxy(value)
    assert (proxy.scheme, proxy.host, proxy.port) == (scheme, host, port)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (f"socks5://user:{SECRET}@proxy.test:1080", "names a SOCKS proxy"),
        (f"ftp://user:{SECRET}@proxy.test", "names no HTTP proxy"),
        (f"http://user:{SECRET}/x@proxy.test:3128", "percent-encoded"),
        (f"http://user:{SECRET}#x@proxy.test:3128", "percent-encoded"),
        (f"http://user:{SECRET}@proxy.test:port", "is not the URL"),
        (f"http://user:{SECRET}@proxy.test:99999", "is not the URL"),
        (f"http://user:{SECRET}@proxy.test:0", "is not the URL"),
        (f"http://user:{SECRET}@", "is not the URL"),
        (f"http://user:{SECRET}@[::1", "is not the URL"),
        (f"http://proxy.test/{SECRET}", "is not the URL"),
        (f"http://proxy.test?{SECRET}", "is not the URL"),
        (f"http://user:{SECRET}@proxy.test\n", "blanks or control characters"),
        (f" http://user:{SECRET}@proxy.test", "blanks or control characters"),
        (f"http://user:{SECRET} x@proxy.test", "blanks or control characters"),
        (f"http://user:{SECRET}%C3%A9@proxy.test", "printable ASCII"),
        (f"http://user:{SECRET}%0D%0AX:@proxy.test", "printable ASCII"),
        (f"http://us%3Aer:{SECRET}@proxy.test", "colon"),
        (f"http://user:{SECRET}@proxy.test".encode(), "is a bytes"),
    ],
)
def test_what_names_no_proxy_is_refused_without_its_text(value, message):
    with pytest.raises(ConfigurationError, match=message) as raised:
        parse_proxy(value, "HTTPS_PROXY")
    assert str(raised.value).startswith("HTTPS_PROXY")
    assert SECRET not in str(raised.value)


def test_neither_the_repr_nor_the_text_of_a_proxy_has_its_credentials():
    proxy = parse_proxy(f"http://{SECRET}:{SECRET}@proxy.test:3128", "HTTPS_PROXY")
    assert str(proxy) == "the proxy proxy.test:3128 (HTTPS_PROXY)"
    assert SECRET not in f"{proxy} {proxy!r}"
    assert SECRET in proxy.url


@pytest.mark.parametrize(
    "userinfo", ["user:secret", "user:p%40ss%2Fw%3Ard", "user%40corp:secret", "dom%5Cuser:secret", "user:s@cret"]
)
def test_the_authorization_is_that_of_botocore(userinfo):
    proxy = parse_proxy(f"http://{userinfo}@proxy.test:3128")
    assert ProxyConfiguration().proxy_headers_for(proxy.url) == {"Proxy-Authorization": proxy.authorization}


def test_a_user_without_a_password_has_an_empty_one():
    assert parse_proxy("http://user@proxy.test").authorization == "Basic dXNlcjo="
    assert parse_proxy("http://proxy.test").authorization is None


NO_PROXY = [
    ("", False),
    ("*", True),
    ("kinesis.eu-west-1.amazonaws.com", True),
    ("KINESIS.eu-west-1.amazonaws.com", True),
    ("amazonaws.com", True),
    (".amazonaws.com", True),
    ("other.test, .amazonaws.com ,", True),
    ("naws.com", False),
    ("kinesis", False),
    ("kinesis.eu-west-1.amazonaws.com:443", False),
    ("*.amazonaws.com", False),
    ("10.0.0.0/8", False),
]


@pytest.mark.parametrize(("value", "is_bypassed"), NO_PROXY)
def test_no_proxy_excludes_hosts_as_botocore_reads_it(environment, value, is_bypassed):
    environment.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    environment.setenv("NO_PROXY", value)
    assert (find_proxy(HOST, None) is None) == is_bypassed
    assert (botocore.utils.get_environ_proxies(HOST) == {}) == is_bypassed


@pytest.mark.parametrize(
    ("url", "value", "is_bypassed"),
    [
        ("https://10.1.2.3", "10.1.2.3", True),
        ("https://10.1.2.3:4567", "10.1.2.3", True),
        ("https://host.test:4567", "host.test:4567", True),
        ("https://host.test:4568", "host.test:4567", False),
        ("https://[::1]:4567", "::1", True),
        ("https://[::1]:4567", "[::1]", True),
        ("https://10.1.2.3", "10.0.0.0/8", False),
    ],
)
def test_no_proxy_knows_addresses_and_ports_but_no_networks(environment, url, value, is_bypassed):
    environment.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    environment.setenv("NO_PROXY", value)
    assert (find_proxy(url, None) is None) == is_bypassed


def source_of(url, proxy_url=None):
    proxy = find_proxy(url, proxy_url)
    return None if proxy is None else (proxy.host, proxy.source)


def test_the_variable_of_the_scheme_is_taken_and_the_lower_case_first(environment):
    environment.setenv("ALL_PROXY", "http://all.test")
    assert source_of(HOST) is None
    environment.setenv("HTTP_PROXY", "http://plain.test")
    assert source_of(HOST) is None
    assert source_of("http://host.test") == ("plain.test", "HTTP_PROXY")
    environment.setenv("HTTPS_PROXY", "http://upper.test")
    assert source_of(HOST) == ("upper.test", "HTTPS_PROXY")
    environment.setenv("https_proxy", "http://lower.test")
    assert source_of(HOST) == ("lower.test", "https_proxy")
    environment.setenv("https_proxy", "")  # urllib: an empty lower case one removes the other
    assert source_of(HOST) is None


def test_the_setting_goes_before_the_environment_and_an_empty_one_is_no_proxy(environment):
    environment.setenv("HTTPS_PROXY", "http://variable.test")
    environment.setenv("NO_PROXY", "*")
    assert source_of(HOST, "http://setting.test") == ("setting.test", "proxy_url")
    environment.delenv("NO_PROXY")
    assert source_of(HOST, "") is None


def test_a_wrong_variable_is_refused_only_for_hosts_that_it_is_for(environment):
    environment.setenv("HTTPS_PROXY", "socks5://proxy.test")
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY names a SOCKS proxy"):
        find_proxy(HOST, None)
    environment.setenv("NO_PROXY", "amazonaws.com")
    assert find_proxy(HOST, None) is None


def test_clients_of_botocore_get_the_setting_or_decide_by_the_environment(environment):
    url = "http://user:secret@proxy.test:3128"
    assert default_proxies(HOST, url) == {"http": url, "https": url}
    assert default_proxies(HOST, "") == {}
    environment.setenv("HTTPS_PROXY", url)
    assert default_proxies(HOST, None) is None
    assert as_mapping(find_proxy(HOST, None)) == {"http": url, "https": url}
    assert as_mapping(None) == {}
    environment.setenv("HTTPS_PROXY", "http://")
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY"):
        default_proxies(HOST, None)


def test_addresses_of_ipv6_have_brackets():
    assert host_and_port("::1", 443) == "[::1]:443"
    assert host_and_port("host.test", 443) == "host.test:443"
    assert str(Proxy("http", "::1", 8, "proxy_url", "http://[::1]:8")) == "the proxy [::1]:8 (proxy_url)"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://user:secret@proxy.test:3128", "http://***@proxy.test:3128"),
        ("//user:secret@proxy.test", "//***@proxy.test"),
        ("user:secret@proxy.test:3128", "***@proxy.test:3128"),
        ("http://user:s@cret@proxy.test", "http://***@proxy.test"),
        ("http://proxy.test:3128", "http://proxy.test:3128"),
        ("", ""),
    ],
)
def test_credentials_are_masked_where_the_setting_is_shown(value, shown):
    assert without_credentials(value) == shown
