"""Translates botocore's exceptions to efo's: the only place that does."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import botocore.exceptions

from efo.aws.wrong_server import unreachable, wrong_server
from efo.errors import ConfigurationError, EfoError, TlsError, TransportError, WrongEndpointError
from efo.protocol.service_errors import service_error

_NO_CREDENTIALS: Final = (
    botocore.exceptions.NoCredentialsError,
    botocore.exceptions.PartialCredentialsError,
    botocore.exceptions.CredentialRetrievalError,
)
_CREDENTIAL_CALLS: Final = {
    "AssumeRole", "AssumeRoleWithSAML", "AssumeRoleWithWebIdentity", "CreateToken", "GetRoleCredentials",
}  # fmt: skip
"""Calls that botocore makes to get credentials: their errors say nothing about Kinesis."""


@contextmanager
def translated(*, had_credentials: bool = False) -> Iterator[None]:
    """Translate botocore's exceptions.

    `had_credentials`: there were credentials before, so that a failure to get them is temporary and not a wrong
    setting.
    """
    errors = botocore.exceptions
    try:
        yield
    except errors.ClientError as error:
        if had_credentials and error.operation_name in _CREDENTIAL_CALLS:
            raise TransportError(f"the AWS credentials cannot be refreshed now: {error}") from error
        raise _wrong_endpoint(error, had_credentials=had_credentials) or _error_response(error) from error
    except errors.NoRegionError as error:
        raise ConfigurationError("no AWS region: set region or AWS_REGION, or use the stream's ARN") from error
    except (*_NO_CREDENTIALS, RuntimeError) as error:
        # botocore has no class for credentials that have expired when they are fetched.
        if isinstance(error, RuntimeError) and "expired" not in str(error):
            raise
        if had_credentials:
            raise TransportError(f"the AWS credentials cannot be refreshed now: {error}") from error
        raise ConfigurationError(
            f"no usable AWS credentials: {error}; botocore looks in the environment, in ~/.aws, and in the roles of "
            "the container and the instance"
        ) from error
    except (errors.HTTPClientError, errors.ConnectionError) as error:
        failure = TransportError(f"Kinesis' control plane cannot be reached: {unreachable(error)}")
        raise _wrong_endpoint(error, had_credentials=had_credentials) or failure from error
    except (errors.BotoCoreError, ValueError) as error:
        raise ConfigurationError(f"botocore rejects the settings: {error}") from error


def _wrong_endpoint(error: Exception, *, had_credentials: bool) -> TransportError | None:
    """Return the error for what answers in place of Kinesis; None if that may be Kinesis."""
    if (reason := wrong_server(error)) is None:
        return None
    is_untrusted = isinstance(getattr(error, "kwargs", {}).get("error"), ssl.SSLCertVerificationError)
    first = TlsError if is_untrusted else WrongEndpointError
    return (TransportError if had_credentials else first)(f"Kinesis' control plane cannot be reached: {reason}")


def _error_response(error: botocore.exceptions.ClientError) -> EfoError:
    """Return the error of a response whose status is not 200."""
    content = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code, message = str(content.get("Code", "")), " ".join(str(content.get("Message", "")).split())
    return service_error(code, message, status)
