"""The mapping from error codes of Kinesis to error classes."""

from __future__ import annotations

import pytest

from efo import errors
from efo.protocol.service_errors import service_error


@pytest.mark.parametrize(
    ("code", "status", "kind", "retryable"),
    [
        ("ResourceInUseException", 400, errors.ResourceInUseError, True),
        ("ResourceNotFoundException", 400, errors.ResourceNotFoundError, False),
        ("LimitExceededException", 400, errors.ThrottledError, True),
        ("ProvisionedThroughputExceededException", 400, errors.ThrottledError, True),
        ("ThrottlingException", 400, errors.ThrottledError, True),
        ("Throttling", 400, errors.ThrottledError, True),
        ("KMSThrottlingException", None, errors.ThrottledError, True),
        ("InternalFailure", 500, errors.InternalFailureError, True),
        ("InternalError", None, errors.InternalFailureError, True),
        ("InternalFailureException", None, errors.InternalFailureError, True),
        ("ServiceUnavailable", 503, errors.InternalFailureError, True),
        ("NeverSeenBefore", 502, errors.InternalFailureError, True),
        ("AccessDeniedException", 400, errors.AccessDeniedError, False),
        ("InvalidSignatureException", 403, errors.AccessDeniedError, False),
        ("KMSDisabledException", None, errors.KmsError, False),
        ("KMSOptInRequired", None, errors.KmsError, False),
        ("InvalidArgumentException", 400, errors.ServiceError, False),
        ("ValidationException", 400, errors.ServiceError, False),
    ],
)
def test_each_error_code_has_its_class(code, status, kind, retryable):
    error = service_error(code, "why", status)
    assert type(error) is kind
    assert (error.code, error.message, error.status, error.retryable) == (code, "why", status, retryable)


@pytest.mark.parametrize(
    "code",
    [
        "com.amazonaws.kinesis.v20131202#ResourceInUseException",
        "ResourceInUseException:http://internal.amazon.com/coral/com.amazonaws.kinesis/",
        "com.amazonaws.kinesis#ResourceInUseException:http://internal.amazon.com/coral/",
    ],
)
def test_a_namespace_and_a_url_are_removed_from_the_code(code):
    error = service_error(code, "busy", 400)
    assert type(error) is errors.ResourceInUseError
    assert error.code == "ResourceInUseException"
    assert str(error) == "ResourceInUseException: busy"


def test_an_error_response_without_a_code_is_an_unknown_error():
    assert service_error("", "", 400).code == "UnknownError"
    assert type(service_error("", "", 503)) is errors.InternalFailureError


def test_a_code_and_a_message_of_any_length_are_cut():
    error = service_error("x" * 60_000, "y" * 1_000_000)
    assert len(error.code) < 150
    assert len(str(error)) < 2_200
    assert service_error("Throttl" + "x" * 60_000, "").retryable
