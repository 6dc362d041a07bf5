"""Maps the error codes of Kinesis, in error responses and exception frames, to the classes of efo.errors."""

from __future__ import annotations

import re
from typing import Final

from efo.errors import (
    AccessDeniedError,
    ClockSkewError,
    ExpiredCredentialsError,
    ExpiredIteratorError,
    InternalFailureError,
    KmsError,
    RejectedCredentialsError,
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
    "UnrecognizedClientException": RejectedCredentialsError,
    "InvalidSignatureException": RejectedCredentialsError,
    "SignatureDoesNotMatch": RejectedCredentialsError,
    "IncompleteSignatureException": RejectedCredentialsError,
    "IncompleteSignature": RejectedCredentialsError,
    "InvalidClientTokenId": RejectedCredentialsError,
    "InvalidAccessKeyId": RejectedCredentialsError,
    "MissingAuthenticationTokenException": RejectedCredentialsError,
    "MissingAuthenticationToken": RejectedCredentialsError,
    "RequestTimeTooSkewed": ClockSkewError,
    "RequestInTheFuture": ClockSkewError,
    "RequestExpired": ClockSkewError,
    "ExpiredIteratorException": ExpiredIteratorError,
    "ExpiredToken": ExpiredCredentialsError,
    "ExpiredTokenException": ExpiredCredentialsError,
}

_FINAL: Final = frozenset({"InvalidArgumentException", "SerializationException", "ValidationException"})
"""Codes of wrong requests, also within a response."""

# For families of names with a common prefix: Throttling, ThrottlingException, ThrottledException; KMS*.
_BY_PREFIX: Final[tuple[tuple[str, type[ServiceError]], ...]] = (
    ("Throttl", ThrottledError),
    ("KMS", KmsError),
)


_SKEWED: Final = re.compile(r"Signature (?:expired|not yet current): (\d{8}T\d{6}Z)\b.*\((\d{8}T\d{6}Z) [+-] \d+ min")
"""What AWS says of a signature whose time is wrong: that time, and in brackets its own."""
_REJECTED: Final = {
    "UnrecognizedClientException": "the service does not know these credentials",
    "InvalidClientTokenId": "the service does not know these credentials",
    "InvalidAccessKeyId": "the service does not know these credentials",
    "InvalidSignatureException": "the signature is not that of these credentials: the secret access key is wrong, or "
    "the request was changed on its way",
    "SignatureDoesNotMatch": "the signature is not that of these credentials: the secret access key is wrong, or the "
    "request was changed on its way",
}
"""What efo says in place of AWS's text about a signature, which quotes the signed headers with the session token."""
_NOT_SIGNED: Final = "the service does not find a complete signature in the request"
_QUOTED_VALUE: Final = re.compile(r"[Vv]alue '.*?'(?= at '|\s|$)", re.DOTALL)
"""In a text about a wrong argument: the argument, which may be a partition key or data."""


def service_error(code: str, message: str, status: int | None = None) -> ServiceError:
    """Return the error to raise for an error response or exception frame.

    `code`: the name of the error on the wire. It is the `__type` of a response body, which may have a namespace
    (`com.amazonaws.kinesis#ResourceInUseException`), or the header `x-amzn-ErrorType`, where `:` and a URL may follow
    the name, or the `:exception-type` of a frame.
    `message`: the service's text, of which the error has what cannot quote a header or an argument. `status`: the HTTP
    status, None for an error within a response: of a subscription that was accepted, or of one record. An unknown code
    is retryable there, since AWS may add some.

    Source: AWS, "JSON 1.1 protocol", operation error serialization.
    """
    name = code.rpartition("#")[2].partition(":")[0].strip()
    error_class = _error_class(name, status)
    if issubclass(error_class, RejectedCredentialsError | ClockSkewError) and (skewed := _SKEWED.search(message)):
        return _clock_skew(name, skewed[1], skewed[2], status)
    if issubclass(error_class, RejectedCredentialsError):
        message = _REJECTED.get(name, _NOT_SIGNED)
    message = _QUOTED_VALUE.sub("a value", message)
    return error_class(_cut(name, MAX_CODE) or "UnknownError", _cut(message, MAX_MESSAGE), status=status)


def _clock_skew(code: str, signed: str, now: str, status: int | None) -> ClockSkewError:
    seconds = _seconds(now) - _seconds(signed)
    which = "behind" if seconds > 0 else "ahead of"
    message = f"the request was signed {abs(seconds)} s {which} the service's clock; correct the clock of this host"
    return ClockSkewError(code, message, status=status, service_time=float(_seconds(now)))


def _seconds(time: str) -> int:
    """Return a time such as 20260131T120000Z in seconds since the epoch."""
    year, month, day = int(time[:4]), int(time[4:6]), int(time[6:8])
    year, month = (year, month) if month > 2 else (year - 1, month + 12)  # noqa: PLR2004 - years that begin in March
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 + day - 719_469
    return days * 86_400 + int(time[9:11]) * 3600 + int(time[11:13]) * 60 + int(time[13:15])


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def _error_class(name: str, status: int | None) -> type[ServiceError]:
    if name in _BY_NAME:
        return _BY_NAME[name]
    for prefix, error_class in _BY_PREFIX:
        if name.startswith(prefix):
            return error_class
    if (status is None and name not in _FINAL) or (status is not None and status >= _SERVER_ERROR):
        return InternalFailureError
    return ServiceError
