"""The HTTP proxy through which a host is reached: as a setting says, or the environment.

The environment is read as urllib reads it, and so botocore: HTTPS_PROXY for https:// URLs, HTTP_PROXY for http://, and
NO_PROXY for the hosts that are reached directly; lower case goes first. ALL_PROXY is not read.
"""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from efo.errors import ConfigurationError

SETTING: Final = "proxy_url"
_PORTS: Final = {"http": 80, "https": 443}
_EXPECTED: Final = "expected http://HOST:PORT or https://HOST:PORT"


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy. Neither its repr nor any message has its credentials.

    `scheme`: "https" if the proxy itself is reached over TLS. `source`: the setting or the variable that names it.
    `url`: with its credentials, for botocore. `authorization`: the value of Proxy-Authorization, None without
    credentials.
    """

    scheme: Literal["http", "https"]
    host: str
    port: int
    source: str
    url: str = field(repr=False)
    authorization: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"the proxy {host_and_port(self.host, self.port)} ({self.source})"


def host_and_port(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def find_proxy(url: str, proxy_url: str | None) -> Proxy | None:
    """Return the proxy for a URL; None if its host is reached directly.

    `proxy_url`: the setting, which goes before the environment with all its variables; "" is no proxy, None is the
    environment's. Raises ConfigurationError if it, or the variable, names none. Its message has nothing of the value.
    """
    if proxy_url is not None:
        return parse_proxy(proxy_url) if proxy_url else None
    target = urlsplit(url)
    return None if _is_bypassed(target) else environment_proxy(target.scheme)


def environment_proxy(scheme: str) -> Proxy | None:
    """Return the proxy that a variable names for URLs of a scheme, whatever NO_PROXY says. Raises as `find_proxy`."""
    value = getproxies().get(scheme)
    return parse_proxy(value, _variable(scheme)) if value else None


def as_mapping(proxy: Proxy | None) -> dict[str, str]:
    """Return the option `proxies` of a botocore client whose host is reached by this proxy, or directly."""
    return {} if proxy is None else dict.fromkeys(_PORTS, proxy.url)


def default_proxies(url: str, proxy_url: str | None) -> dict[str, str] | None:
    """Return the option `proxies` of botocore clients whose hosts botocore finds, such as that of STS.

    None: botocore decides for each host by the environment, as `find_proxy` does. `url`: what one of them may call, for
    which the environment is checked. Raises as `find_proxy`.
    """
    proxy = find_proxy(url, proxy_url)
    return None if proxy_url is None else as_mapping(proxy)


def parse_proxy(value: str, source: str = SETTING) -> Proxy:
    """Return the proxy that a URL names, also without a scheme: HOST:PORT. Raises ConfigurationError."""
    if not isinstance(value, str):  # not shown: it may have a password
        raise ConfigurationError(f"{source} is a {type(value).__name__}: {_EXPECTED}, as a text")
    if value != value.strip() or not value.isprintable() or " " in value:
        raise ConfigurationError(f"{source} has blanks or control characters in it: {_EXPECTED}")
    # As botocore completes it.
    url = value if "://" in value else f"http:{value}" if value.startswith("//") else f"http://{value}"
    kind = url.partition(":")[0].lower()
    if kind not in _PORTS:
        names = "a SOCKS proxy" if kind.startswith("socks") else "no HTTP proxy"
        raise ConfigurationError(f"{source} names {names}: {_EXPECTED}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # the port is not a number, or the brackets contain no address
        parts, port = SplitResult("", "", "", "", ""), 0
    is_host = re.fullmatch(r"[^\s/?#@\[\]%]+", parts.hostname or "")
    if not is_host or port == 0 or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ConfigurationError(
            f"{source} is not the URL of an HTTP proxy: {_EXPECTED}; special characters of its user and password are "
            "percent-encoded, such as %40 for @"
        )
    scheme: Literal["http", "https"] = "https" if kind == "https" else "http"
    return Proxy(scheme, parts.hostname or "", port or _PORTS[scheme], source, url, _authorization(parts, source))


def without_credentials(value: str) -> str:
    """Return the URL of a proxy with asterisks for its user and password."""
    return re.sub(r"^((?:[^/]*:)?//)?[^/]*@", r"\1***@", value)


def _authorization(parts: SplitResult, source: str) -> str | None:
    """Return the value of Proxy-Authorization (RFC 7617)."""
    if parts.username is None:
        return None
    user, password = unquote(parts.username), unquote(parts.password or "")
    if not (user + password).isascii() or not (user + password).isprintable():
        raise ConfigurationError(f"{source}: the proxy's user and password have other than printable ASCII characters")
    if ":" in user:
        raise ConfigurationError(f"{source}: the user has a colon, which Basic authentication does not allow")
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _is_bypassed(url: SplitResult) -> bool:
    """Return whether NO_PROXY has the host. urllib compares texts: an IPv6 address is also tried without brackets."""
    return any(proxy_bypass(name) for name in {url.netloc.rpartition("@")[2], url.hostname or ""})


def _variable(scheme: str) -> str:
    """Return the name of the variable that urllib takes, the lower case first."""
    names = [f"{scheme}_proxy", *sorted(name for name in os.environ if name.lower() == f"{scheme}_proxy")]
    return next((name for name in names if os.environ.get(name)), "the settings of the system")
