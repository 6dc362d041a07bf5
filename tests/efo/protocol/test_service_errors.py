"""The mapping from error codes of Kinesis to error classes."""

from __future__ import annotations

import time

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
        ("NeverSeenBefore", 500, errors.InternalFailureError, True),
        ("NeverSeenBefore", 499, errors.ServiceError, False),
        ("NeverSeenBefore", None, errors.InternalFailureError, True),
        ("AccessDeniedException", 400, errors.AccessDeniedError, False),
        ("InvalidSignatureException", 403, errors.RejectedCredentialsError, False),
        ("KMSDisabledException", None, errors.KmsError, False),
        ("KMSOptInRequired", None, errors.KmsError, False),
        ("InvalidArgumentException", 400, errors.ServiceError, False),
        ("ValidationException", 400, errors.ServiceError, False),
        ("ValidationException", None, errors.ServiceError, False),
        ("ValidationException", 500, errors.InternalFailureError, True),
    ],
)
def test_each_error_code_has_its_class(code, status, kind, retryable):
    error = service_error(code, "why", status)
    assert type(error) is kind
    assert (error.code, error.status, error.retryable) == (code, status, retryable)
    if kind is not errors.RejectedCredentialsError:
        assert error.message == "why"


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


def test_a_code_of_128_and_a_message_of_2000_characters_are_kept_whole():
    error = service_error("x" * 128, "y" * 2000)
    assert (error.code, error.message) == ("x" * 128, "y" * 2000)
    longer = service_error("x" * 129, "y" * 2001)
    assert (longer.code, longer.message) == ("x" * 128 + "...", "y" * 2000 + "...")


CANONICAL = (
    "The request signature we calculated does not match the signature you provided. The Canonical String for this "
    "request should have been 'POST\n/\n\nhost:kinesis\nx-amz-security-token:hunter2\n'"
)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("InvalidSignatureException", CANONICAL),
        ("SignatureDoesNotMatch", CANONICAL),
        ("IncompleteSignatureException", "'hunter2' not a valid key=value pair in Authorization header: 'hunter2'"),
        ("MissingAuthenticationTokenException", "hunter2"),
        ("UnrecognizedClientException", "hunter2"),
        ("ValidationException", "1 validation error: Value 'hunter2' at 'partitionKey' failed to satisfy constraint"),
        ("InvalidArgumentException", "Value 'hunter2\n' at 'explicitHashKey' is not a number"),
    ],
)
def test_a_text_that_quotes_headers_or_arguments_is_not_reported(code, message):
    error = service_error(code, message, 400)
    assert "hunter2" not in str(error)
    assert error.message


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (
            "Signature expired: 20261126T134853Z is now earlier than 20261126T135353Z (20261126T135853Z - 5 min.)",
            "signed 600 s behind the service's clock",
        ),
        (
            "Signature not yet current: 20190305T002809Z is still later than x (20190304T212815Z + 15 min.)",
            "signed 10794 s ahead of the service's clock",
        ),
        (
            "Signature expired: 20261126T134853Z is now earlier than x (20261126T134854Z - 5 min.)",
            "signed 1 s behind the service's clock",
        ),
        (
            "Signature expired: 20261126T134853Z is now earlier than x (20261126T134853Z - 5 min.)",
            "signed 0 s ahead of the service's clock",
        ),
    ],
)
@pytest.mark.parametrize("code", ["InvalidSignatureException", "SignatureDoesNotMatch", "RequestTimeTooSkewed"])
def test_a_signature_of_another_time_is_a_clock_skew_with_its_seconds(code, text, reported):
    error = service_error(code, text, 403)
    assert type(error) is errors.ClockSkewError
    assert error.retryable
    assert reported in str(error)


@pytest.mark.parametrize("at", [0, 951_782_400, 951_868_800, 1_709_164_799, 1_709_164_800, 4_102_444_799])
def test_the_services_time_is_read_from_the_refusal(at):
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    error = service_error(
        "InvalidSignatureException", f"Signature expired: {now} is now earlier than {now} ({now} - 5 min.)"
    )
    assert error.service_time == at


def test_a_skew_without_times_is_one_too():
    error = service_error("RequestTimeTooSkewed", "The difference is too large.", 403)
    assert (type(error), error.service_time) == (errors.ClockSkewError, None)
