"""What answers at an endpoint is no service of AWS: plain HTTP for https://, a page of a portal or of another server.

botocore takes a page with status 200 for a response in which everything is missing, and a write for done.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import botocore.exceptions

from efo.proxy import Proxy, host_and_port
from efo.third_party_errors import reason_of
from efo.tls import certificate_advice, speaks_no_tls

_FORMATS: Final = ("json", "cbor", "xml")
"""What the types of the content of AWS's responses name."""
_IDS: Final = frozenset({"x-amzn-requestid", "x-amz-request-id"})
_LATER: Final = frozenset({408, 429})
"""Statuses of HTTP after which the same request may succeed, besides server errors."""
_SERVER_ERRORS: Final = 500
_UNAUTHORIZED: Final = frozenset({401, 407})
_PORTS: Final = {"http": 80, "https": 443}


def wrong_server(error: BaseException, proxy: Proxy | None = None) -> str | None:
    """Return why an error of botocore means another server, or a certificate that is not trusted; None if it does not.

    The text follows "cannot be reached: ". A server error (5xx) is none: it passes by itself.
    """
    if isinstance(error, botocore.exceptions.SSLError):
        cause = error.kwargs.get("error")
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {reason_of(cause)}; {certificate_advice(cause)}"
        return (
            "what answers does not speak TLS: check endpoint_url, which is https://" if speaks_no_tls(cause) else None
        )
    if (answer := _proxy_answer(error)) is not None:
        return unreachable(error, proxy) if answer < _SERVER_ERRORS else None
    if isinstance(error, botocore.exceptions.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        details = error.response.get("Error") or {}
        # Without a code of AWS, botocore takes the status and the content.
        code, message = str(details.get("Code", "")), str(details.get("Message", ""))
        is_page = code == str(status) and (not message or message.lstrip().startswith("<"))
        return wrong_page(status) if is_page and status < _SERVER_ERRORS and status not in _LATER else None
    return None


def unreachable(error: BaseException, proxy: Proxy | None = None) -> str:
    """Return why a service cannot be reached, to follow "cannot be reached: ". A proxy is named, with its answer.

    `proxy`: through which the service is called. Errors between it and the client do not name it.
    """
    if not isinstance(error, botocore.exceptions.ProxyConnectionError):
        return reason_of(error) if proxy is None else f"{reason_of(error)}, through {proxy}"
    url = urlsplit(str(error.kwargs.get("proxy_url")))
    named = proxy or f"the proxy {host_and_port(url.hostname or '', url.port or _PORTS.get(url.scheme, 80))}"
    answer = _proxy_answer(error)
    if answer is None:
        return f"{named} does not answer: check the proxy, and HTTPS_PROXY or proxy_url"
    what = "check its user and password" if answer in _UNAUTHORIZED else "let it allow CONNECT to this host"
    return f"{named} answers {answer}" + (f": {what}" if answer < _SERVER_ERRORS else "")


def _proxy_answer(error: BaseException) -> int | None:
    """Return the status with which a proxy refused CONNECT; None if another error happened."""
    if not isinstance(error, botocore.exceptions.ProxyConnectionError):
        return None
    answer = re.match(r"([1-9]\d\d)\b", str(error.kwargs.get("error")))  # httpcore: the status and its reason
    return None if answer is None else int(answer[1])


def wrong_content(response: Mapping[str, Any]) -> str | None:
    """Return why a response of botocore is none of AWS; None if it may be: it has AWS's id, or a format of AWS.

    Servers for tests may have another type of content, or none.
    """
    metadata = response.get("ResponseMetadata", {})
    headers = metadata.get("HTTPHeaders", {})
    content = str(headers.get("content-type", "")).lower()
    if not content or any(name in content for name in _FORMATS) or not _IDS.isdisjoint(headers):
        return None
    return wrong_page(metadata.get("HTTPStatusCode", 0))


def wrong_page(status: int) -> str:
    """Return what a page with this status means."""
    return f"what answers is another server (HTTP {status}): check endpoint_url, and proxies in between"
