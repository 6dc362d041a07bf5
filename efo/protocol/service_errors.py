"""Maps the error codes of Kinesis, in error responses and exception frames, to the classes of efo.errors."""

from __future__ import annotations

from typing import Final

from efo.errors import (
    AccessDeniedError,
    ExpiredCredentialsError,
    ExpiredIteratorError,
    InternalFailureError,
    KmsError,
    ResourceInUseError,
    ResourceNotFoundError,
    ServiceError,
    ThrottledError,
)

_SERVER_ERROR: Final = 500
MAX_CODE: Final = 128
MAX_MESSAGE: Final = 2000
"""Longer codes and messages are cut, in characters: both are logged, and a peer may send megabytes."""

_BY_NAME: Final[dict[str, type[ServiceError]]] = {
    "ResourceInUseException": ResourceInUseError,
    "ResourceNotFoundException": ResourceNotFoundError,
    "LimitExceededException": ThrottledError,
    "ProvisionedThroughputExceededException": ThrottledError,
    "KMSThrottlingException": ThrottledError,
    "RequestLimitExceeded": ThrottledError,
    "RequestThrottled": ThrottledError,
    "RequestThrottledException": ThrottledError,
    "SlowDown": ThrottledError,
    "BandwidthLimitExceeded": ThrottledError,
    "HTTP429": ThrottledError,
    "ExpiredNextTokenException": InternalFailureError,
    "RequestTimeout": InternalFailureError,
    "RequestTimeoutException": InternalFailureError,
    "HTTP408": InternalFailureError,
    "InternalServerError": InternalFailureError,
    "ServiceUnavailableError": InternalFailureError,
    "TooManyRequestsException": ThrottledError,
    "InternalError": InternalFailureError,
    "InternalFailure": InternalFailureError,
    "InternalFailureException": InternalFailureError,
    "ServiceUnavailable": InternalFailureError,
    "ServiceUnavailableException": InternalFailureError,
    "AccessDenied": AccessDeniedError,
    "AccessDeniedException": AccessDeniedError,
    "UnrecognizedClientException": AccessDeniedError,
    "InvalidSignatureException": AccessDeniedError,
    "IncompleteSignatureException": AccessDeniedError,
    "InvalidClientTokenId": AccessDeniedError,
    "MissingAuthenticationTokenException": AccessDeniedError,
    "ExpiredIteratorException": ExpiredIteratorError,
    "ExpiredToken": ExpiredCredentialsError,
    "ExpiredTokenException": ExpiredCredentialsError,
}

# For families of names with a common prefix: Throttling, ThrottlingException, ThrottledException; KMS*.
_BY_PREFIX: Final[tuple[tuple[str, type[ServiceError]], ...]] = (
    ("Throttl", ThrottledError),
    ("KMS", KmsError),
)


def service_error(code: str, message: str, status: int | None = None) -> ServiceError:
    """Return the error to raise for an error response or exception frame.

    `code`: the name of the error on the wire. It is the `__type` of a response body, which may have a namespace
    (`com.amazonaws.kinesis#ResourceInUseException`), or the header `x-amzn-ErrorType`, where `:` and a URL may follow
    the name, or the `:exception-type` of a frame.
    `message`: the service's text. `status`: the HTTP status, None for an error within a response stream.

    Source: AWS, "JSON 1.1 protocol", operation error serialization.
    """
    name = code.rpartition("#")[2].partition(":")[0].strip()
    return _error_class(name, status)(_cut(name, MAX_CODE) or "UnknownError", _cut(message, MAX_MESSAGE), status=status)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def _error_class(name: str, status: int | None) -> type[ServiceError]:
    if name in _BY_NAME:
        return _BY_NAME[name]
    for prefix, error_class in _BY_PREFIX:
        if name.startswith(prefix):
            return error_class
    if status is not None and status >= _SERVER_ERROR:
        return InternalFailureError
    return ServiceError
