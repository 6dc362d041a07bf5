"""What the failure of a provider of credentials means: which provider, what failed, what to do. Pure.

Nothing of an exception's text is reported but what `efo.third_party_errors` shows: an answer may hold credentials.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import botocore.exceptions as errors

from efo.errors import class_name_of
from efo.third_party_errors import reason_of
from efo.tls import certificate_advice

_SERVER_ERROR: Final = 500
_MAX_TEXT: Final = 300
_STATUS: Final = re.compile(r"non 200 response (\d{3})")
_STS: Final = "AWS STS"
_SSO: Final = "IAM Identity Center (SSO)"
_IMDS: Final = "the instance metadata service (IMDS)"
_SERVICES: Final = {"sts": _STS, "portal": _SSO, "oidc": _SSO, "169": _IMDS}
"""What answers at a host of AWS, by a part of its name."""


@dataclass(frozen=True, slots=True)
class _Provider:
    """How messages name a provider, which service it asks, and what to do if it fails."""

    name: str
    remedy: str = ""
    service: str = ""


_PROVIDERS: Final = {
    "env": _Provider("the environment", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    "assume-role": _Provider(
        "the assumed role", "check role_arn, its trust policy, and the credentials that assume it", _STS
    ),
    "assume-role-with-web-identity": _Provider(
        "the web identity (IRSA)",
        "check AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN and the role's trust policy",
        _STS,
    ),
    "sso": _Provider(_SSO, "check the profile", _SSO),
    "login": _Provider("the login session", "check the profile", "AWS sign-in"),
    "shared-credentials-file": _Provider("the credentials file", "correct the profile in ~/.aws/credentials"),
    "config-file": _Provider("the configuration file", "correct the profile in ~/.aws/config"),
    "custom-process": _Provider(
        "credential_process", "run the command of the profile by hand: it must print credentials as JSON"
    ),
    "container-role": _Provider(
        "the container's credentials (ECS, EKS Pod Identity)",
        "check AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI, and the agent that serves it",
        "the container's credentials endpoint",
    ),
    "iam-role": _Provider("the instance's role", "give the instance a role", _IMDS),
}
"""By botocore's name of the provider."""


class ChainError(Exception):
    """The chain has no credentials now. The text is one sentence with its remedy.

    `is_unavailable`: a service could not be reached, or failed; otherwise something must be corrected first.
    """

    def __init__(self, text: str, *, is_unavailable: bool = False) -> None:
        super().__init__(text)
        self.is_unavailable = is_unavailable


def failure(method: str, what: str, remedy: str | None = None, *, is_unavailable: bool = False) -> ChainError:
    """Return the error of a provider. `method`: botocore's name of it. `remedy`: by default the provider's own."""
    provider = _PROVIDERS.get(method, _Provider(method or "the AWS configuration"))
    remedy = provider.remedy if remedy is None else remedy
    return ChainError(f"{provider.name}: {what}" + (f": {remedy}" if remedy else ""), is_unavailable=is_unavailable)


def nothing_found(profile: str | None) -> ChainError:
    """Return the error of a chain in which no provider has credentials."""
    return ChainError(
        f"there are none in the environment, the profile {profile or 'default'!r}, a container's endpoint or {_IMDS}:"
        " set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or give this pod, container or instance a role"
    )


def mfa_needed() -> ChainError:
    """Return the error of a profile with `mfa_serial`. botocore would wait for a line of stdin."""
    return failure(
        "assume-role",
        "the profile needs a code of a device (mfa_serial), and efo never asks for one",
        "use a role without MFA, or credentials that another program has obtained, as by credential_process",
    )


def explained(error: Exception, method: str, profile: str | None) -> ChainError:
    """Return what an exception of a provider means. `profile`: the one in use, for the command of a login."""
    for kinds, explain in _EXPLANATIONS:
        if isinstance(error, kinds):
            return explain(error, method, profile)
    if method == "container-role":
        return _of_container(error, method, profile)
    if (service := _service(method)) is not None:
        text = f"{service} gave an answer that is none of its own, as of a proxy ({reason_of(error)})"
        return failure(method, text, "", is_unavailable=True)
    if method == "custom-process":
        return failure(method, f"what the command printed are no credentials ({class_name_of(error)})")
    return failure(method, reason_of(error))


def _service(method: str) -> str | None:
    provider = _PROVIDERS.get(method)
    return provider.service if provider is not None and provider.service else None


def _of_response(error: Any, method: str, _profile: str | None) -> ChainError:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0
    text = f"{_service(method) or 'AWS'}: {reason_of(error)}"
    return failure(method, text, is_unavailable=status >= _SERVER_ERROR)


def _of_login(error: Any, method: str, profile: str | None) -> ChainError:
    command = "aws login" if isinstance(error, errors.LoginError) else "aws sso login"
    named = f" --profile {profile}" if profile else ""
    return failure(method, "there is no session, or it has expired", f"run {command}{named}")


def _of_connection(error: Any, method: str, _profile: str | None) -> ChainError:
    """Return which service could not be reached, and its host, without anything else of the URL."""
    host = urlsplit(str(error.kwargs.get("endpoint_url", ""))).hostname or ""
    parts = host.split(".")
    name = next((name for part, name in _SERVICES.items() if part in parts), _service(method) or "a service")
    place = f"{name} at {host}" if host else name
    cause = error.kwargs.get("error")
    if isinstance(cause, ssl.SSLCertVerificationError):
        advice = certificate_advice(cause).replace("ca_file", "AWS_CA_BUNDLE")
        return failure(method, f"the certificate of {place} is not trusted ({reason_of(cause)})", advice)
    return failure(method, f"{place} cannot be reached ({reason_of(error)})", "check the network", is_unavailable=True)


def _of_file(error: Any, method: str, _profile: str | None) -> ChainError:
    return failure(method, f"{error.filename}: {error.strerror}" if error.filename else reason_of(error))


def _of_setting(error: Any, method: str, _profile: str | None) -> ChainError:
    return failure(method, reason_of(error))


def _of_profiles(error: Any, method: str, _profile: str | None) -> ChainError:
    """Return a text of botocore that is made of the names of profiles and settings alone."""
    return failure(method, " ".join(str(error).split())[:_MAX_TEXT], "correct the AWS configuration")


def _of_container(error: Exception, method: str, _profile: str | None) -> ChainError:
    """Return what a failure of the endpoint of ECS or of EKS Pod Identity means. botocore keeps it only as text."""
    text, is_answer = str(error), isinstance(error, errors.CredentialRetrievalError)
    if "legal header" in text:
        return failure(method, "AWS_CONTAINER_AUTHORIZATION_TOKEN, or the file of it, has more than one line", "")
    if text.startswith("Unsupported host"):
        return failure(method, "AWS_CONTAINER_CREDENTIALS_FULL_URI names a host that is not asked without TLS", "")
    if (status := _STATUS.search(text)) is not None:
        is_unavailable = int(status[1]) >= _SERVER_ERROR
        return failure(method, f"the endpoint answers with HTTP {status[1]}", is_unavailable=is_unavailable)
    what = "cannot be reached" if is_answer and "parse JSON" not in text else "gave an answer without credentials"
    return failure(method, f"the endpoint {what}", is_unavailable=True)


_EXPLANATIONS: Final[tuple[tuple[Any, Callable[[Any, str, str | None], ChainError]], ...]] = (
    (errors.ClientError, _of_response),
    ((errors.SSOError, errors.TokenRetrievalError, errors.LoginError), _of_login),
    ((errors.HTTPClientError, errors.ConnectionError), _of_connection),
    (OSError, _of_file),
    ((errors.PartialCredentialsError, errors.ProfileNotFound, errors.ConfigParseError), _of_setting),
    ((errors.InvalidConfigError, errors.UnknownCredentialError), _of_profiles),
)
"""The first one that fits."""
