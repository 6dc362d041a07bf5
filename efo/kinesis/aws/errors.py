"""Translates botocore's exceptions of calls to efo's. Those of obtaining credentials are `efo.aws.chain`'s."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import botocore.exceptions

from efo.errors import ConfigurationError, EfoError, TlsError, TransportError
from efo.foreign_errors import chain_of, reason_of
from efo.protocol.service_errors import service_error
from efo.tls import certificate_advice

_LOG: Final = logging.getLogger("efo.aws")
_OTHER_SERVER: Final = "check endpoint_url, and proxies in between"


@contextmanager
def translated() -> Iterator[None]:
    """Translate all exceptions but efo's own: botocore has no class for some, such as an answer that is no JSON.

    What may quote a header, a URL or a body is not in the message, nor in a traceback.
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
                raise _error_response(error) from None
            case errors.NoRegionError():
                raise ConfigurationError("no AWS region: set region or AWS_REGION, or use the stream's ARN") from None
            case errors.HTTPClientError() | errors.ConnectionError():
                raise _unreachable(error) from None
            case errors.BotoCoreError() | ValueError():
                raise ConfigurationError(f"botocore rejects the settings: {reason_of(error)}") from None
            case _:
                raise TransportError(
                    f"Kinesis' control plane gives an answer that is none of its own ({reason_of(error)}): "
                    f"{_OTHER_SERVER}"
                ) from None


def _unreachable(error: botocore.exceptions.BotoCoreError) -> TransportError:
    cause = error.kwargs.get("error")
    host = urlsplit(str(error.kwargs.get("endpoint_url", ""))).hostname
    where = f"Kinesis' control plane{f' at {host}' if host else ''}"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return TlsError(f"the certificate of {where} is not trusted: {reason_of(cause)}; {certificate_advice(cause)}")
    return TransportError(f"{where} cannot be reached: {reason_of(error)}")


def _error_response(error: botocore.exceptions.ClientError) -> EfoError:
    """Return the error of a response whose status is not 200."""
    content = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code, message = str(content.get("Code", "")), " ".join(str(content.get("Message", "")).split())
    if code.isdigit() and message.startswith("<"):
        # An HTML page instead of JSON: another server listens there, or a proxy has responded.
        return TransportError(f"the endpoint does not respond like Kinesis (HTTP {status}): {_OTHER_SERVER}")
    return service_error(code, message, status)
