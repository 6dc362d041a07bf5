"""Translates botocore's exceptions to efo's: the only place that does."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import botocore.exceptions

from efo.errors import ConfigurationError, EfoError, TlsError, TransportError
from efo.protocol.service_errors import service_error
from efo.tls import certificate_advice

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
        raise _error_response(error) from error
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
        cause = error.kwargs.get("error")
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise TlsError(
                f"the certificate of Kinesis' control plane is not trusted: {error}; {certificate_advice(cause)}"
            ) from error
        raise TransportError(f"Kinesis' control plane cannot be reached: {error}") from error
    except (errors.BotoCoreError, ValueError) as error:
        raise ConfigurationError(f"botocore rejects the settings: {error}") from error


def _error_response(error: botocore.exceptions.ClientError) -> EfoError:
    """Return the error of a response whose status is not 200."""
    content = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code, message = str(content.get("Code", "")), " ".join(str(content.get("Message", "")).split())
    if code.isdigit() and message.startswith("<"):
        # An HTML page instead of JSON: another server listens there, or a proxy has responded.
        return TransportError(
            f"the endpoint does not respond like Kinesis (HTTP {status}): check endpoint_url, and proxies in between"
        )
    return service_error(code, message, status)
