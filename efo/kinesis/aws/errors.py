"""Translates botocore's exceptions of calls to efo's. Those of obtaining credentials are `efo.aws.chain`'s."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import botocore.exceptions

from efo.aws.wrong_server import unreachable, wrong_server
from efo.errors import (
    ConfigurationError,
    ConnectError,
    EfoError,
    FaultyHostError,
    NameResolutionError,
    TlsError,
    TransportError,
    WrongEndpointError,
)
from efo.protocol.service_errors import service_error
from efo.third_party_errors import chain_of, links_of, reason_of

_LOG: Final = logging.getLogger("efo.aws")
_OTHER_SERVER: Final = "check endpoint_url, and proxies in between"


@contextmanager
def translated(*, has_responded: bool = False) -> Iterator[None]:
    """Translate all exceptions but efo's own: botocore has no class for some, such as an answer that is no JSON.

    What may quote a header, a URL or a body is not in the message, nor in a traceback. `has_responded`: whether the
    service did before, so that what answers in its place is an outage, and no wrong setting.
    """
    errors = botocore.exceptions
    try:
        yield
    except EfoError:
        raise
    except Exception as error:  # noqa: BLE001 - botocore has no class for some
        _LOG.debug("a call through botocore failed: %s", chain_of(error))
        match error:
            case errors.ClientError():
                raise _wrong_endpoint(error, has_responded=has_responded) or _error_response(error) from None
            case errors.NoRegionError():
                raise ConfigurationError("no AWS region: set region or AWS_REGION, or use the stream's ARN") from None
            case errors.HTTPClientError() | errors.ConnectionError():
                wrong = _wrong_endpoint(error, has_responded=has_responded)
                raise wrong or _class_of(error)(f"{_where(error)} cannot be reached: {unreachable(error)}") from None
            case errors.BotoCoreError() | ValueError():
                raise ConfigurationError(
                    f"botocore rejects the settings: {reason_of(error)}: correct it here, or in ~/.aws/config"
                ) from None
            case _:
                raise TransportError(
                    f"Kinesis' control plane gives an answer that is none of its own ({reason_of(error)}): "
                    f"{_OTHER_SERVER}"
                ) from None


def _where(error: Exception) -> str:
    """Return what was called, with its host if the error has it."""
    host = urlsplit(str(getattr(error, "kwargs", {}).get("endpoint_url", ""))).hostname
    return f"Kinesis' control plane{f' at {host}' if host else ''}"


def _wrong_endpoint(error: Exception, *, has_responded: bool) -> TransportError | None:
    """Return the error for what answers in place of Kinesis; None if that may be Kinesis."""
    if (reason := wrong_server(error)) is None:
        return None
    is_untrusted = isinstance(getattr(error, "kwargs", {}).get("error"), ssl.SSLCertVerificationError)
    first = TlsError if is_untrusted else WrongEndpointError
    wrong = first(f"{_where(error)} cannot be reached: {reason}")
    return FaultyHostError(wrong) if has_responded else wrong


def _class_of(error: botocore.exceptions.BotoCoreError) -> type[TransportError]:
    """Return the class of an error of the way to the service: whether its name has an address, and that accepts."""
    cause = error.kwargs.get("error")
    if isinstance(error, botocore.exceptions.EndpointConnectionError) and isinstance(cause, BaseException):
        for link in links_of(cause):
            if isinstance(link, socket.gaierror):
                return NameResolutionError
            if isinstance(link, OSError) and not isinstance(link, ssl.SSLError):
                return ConnectError
    return TransportError


def _error_response(error: botocore.exceptions.ClientError) -> EfoError:
    """Return the error of a response whose status is not 200."""
    content = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code, message = str(content.get("Code", "")), " ".join(str(content.get("Message", "")).split())
    if code.isdigit() and message.startswith("<"):
        # An HTML page instead of JSON, with a status that passes by itself.
        return TransportError(f"the endpoint does not respond like Kinesis (HTTP {status}): {_OTHER_SERVER}")
    return service_error(code, message, status)
