"""What answers at an endpoint is no service of AWS: plain HTTP for https://, a page of a portal or of another server.

botocore takes a page with status 200 for a response in which everything is missing, and a write for done.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

import botocore.exceptions

from efo.tls import certificate_advice, speaks_no_tls

_FORMATS: Final = ("json", "cbor", "xml")
"""What the types of the content of AWS's responses name."""
_SERVER_ERRORS: Final = 500


def wrong_server(error: BaseException) -> str | None:
    """Return why an error of botocore means another server, or a certificate that is not trusted; None if it does not.

    The text follows "cannot be reached: ". A server error (5xx) is none: it passes by itself.
    """
    if isinstance(error, botocore.exceptions.SSLError):
        cause = error.kwargs.get("error")
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = getattr(cause, "verify_message", None) or " ".join(map(str, cause.args[-1:]))
            return f"its certificate is not trusted: {reason}; {certificate_advice(cause)}"
        return (
            "what answers does not speak TLS: check endpoint_url, which is https://" if speaks_no_tls(cause) else None
        )
    if isinstance(error, botocore.exceptions.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        details = error.response.get("Error") or {}
        # Without a code of AWS, botocore takes the status and the content.
        code, message = str(details.get("Code", "")), str(details.get("Message", ""))
        is_page = code == str(status) and (not message or message.lstrip().startswith("<"))
        return wrong_page(status) if is_page and status < _SERVER_ERRORS else None
    return None


def wrong_content(response: Mapping[str, Any]) -> str | None:
    """Return why a response of botocore is none of AWS, by the type of its content; None if it may be."""
    metadata = response.get("ResponseMetadata", {})
    content = str(metadata.get("HTTPHeaders", {}).get("content-type", "")).lower()
    if not content or any(name in content for name in _FORMATS):
        return None
    return wrong_page(metadata.get("HTTPStatusCode", 0))


def wrong_page(status: int) -> str:
    """Return what a page with this status means."""
    return f"what answers is another server (HTTP {status}): check endpoint_url, and proxies in between"
