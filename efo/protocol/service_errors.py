"""What Kinesis' error names mean: from the code of an error response or exception frame to our error tree."""

from __future__ import annotations

from typing import Final

from efo.errors import (
    AccessDeniedError,
    ExpiredCredentialsError,
    InternalFailureError,
    KmsError,
    ResourceInUseError,
    ResourceNotFoundError,
    ServiceError,
    ThrottledError,
)

_SERVER_ERROR: Final = 500

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
    "ExpiredToken": ExpiredCredentialsError,
    "ExpiredTokenException": ExpiredCredentialsError,
}

# Families, for the names that share a beginning: Throttling, ThrottlingException, ThrottledException; KMS*.
_BY_PREFIX: Final[tuple[tuple[str, type[ServiceError]], ...]] = (
    ("Throttl", ThrottledError),
    ("KMS", KmsError),
)


def service_error(code: str, message: str, status: int | None = None) -> ServiceError:
    """Return the error to raise for what the service said.

    `code` is the error's name as it stands on the wire: `__type` of a response's body (perhaps with a
    namespace, `com.amazonaws.kinesis#ResourceInUseException`), the header `x-amzn-ErrorType` (perhaps with
    `:` and an address after the name), or `:exception-type` of a frame. `status` is the HTTP status, None
    where the error came inside a stream. Source: AWS, "JSON 1.1 protocol", operation error serialization.
    """
    name = code.rpartition("#")[2].partition(":")[0].strip()
    return _kind(name, status)(name or "UnknownError", message, status=status)


def _kind(name: str, status: int | None) -> type[ServiceError]:
    if name in _BY_NAME:
        return _BY_NAME[name]
    for prefix, kind in _BY_PREFIX:
        if name.startswith(prefix):
            return kind
    if status is not None and status >= _SERVER_ERROR:
        return InternalFailureError
    return ServiceError
