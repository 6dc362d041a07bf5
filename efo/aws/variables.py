"""Values of AWS's variables and settings that cannot be right: with blanks around them, or control characters.

A Secret that was made with `echo` ends with a newline. Such a value would come back in the error of whatever uses it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES

from efo.checks import is_clean
from efo.errors import ConfigurationError

_OTHERS: Final = frozenset({
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN",
    "AWS_CREDENTIAL_EXPIRATION", "AWS_ACCOUNT_ID", "AWS_REGION", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_EC2_METADATA_DISABLED",
    "AWS_CREDENTIAL_FILE", "BOTO_CONFIG",
})  # fmt: skip
"""Variables that botocore's providers and efo read, besides those of botocore's table."""
_ENDPOINT: Final = re.compile(r"AWS_ENDPOINT_URL(_[A-Z0-9_]+)?")
_ADVICE: Final = "a value made with `echo` ends with a newline (use echo -n or printf)"
_CREDENTIAL: Final = re.compile(r"[\x21-\x7e]+")


def check_variables(environ: Mapping[str, str] | None = None) -> None:
    """Raise ConfigurationError, with their names, if variables of AWS have blanks around them or control characters."""
    environ = os.environ if environ is None else environ
    names = [name for name in sorted(environ) if _is_read(name) and not is_clean(environ[name])]
    if names:
        raise ConfigurationError(
            f"environment {', '.join(names)}: the value has white space around it, or control characters: {_ADVICE}"
        )


def check_profiles(session: Any) -> None:
    """Raise ConfigurationError, with its name, if a setting of the AWS configuration has control characters."""
    name = session.get_config_variable("profile") or "default"
    profiles = session.full_config.get("profiles", {})
    seen: set[str] = set()
    while name in profiles and name not in seen:
        seen.add(name)
        for key in _unclean(profiles[name]):
            raise ConfigurationError(
                f"the AWS configuration: {key} of the profile {name!r} has control characters, or a second line"
            )
        name = profiles[name].get("source_profile", "")


def check_credentials(*values: str | None) -> str | None:
    """Return what is wrong with an access key id, a secret and a token; None if nothing is."""
    for name, value in zip(("access key id", "secret access key", "session token"), values, strict=True):
        if value is not None and not _CREDENTIAL.fullmatch(value):
            is_empty = not value
            return (
                f"the {name} is empty" if is_empty else f"the {name} has white space or control characters: {_ADVICE}"
            )
    return None


def _is_read(name: str) -> bool:
    return name in _NAMES or _ENDPOINT.fullmatch(name) is not None


def _names() -> Iterator[str]:
    yield from _OTHERS
    for _, variables, *_ in BOTOCORE_DEFAUT_SESSION_VARIABLES.values():
        yield from [variables] if isinstance(variables, str) else variables or ()


_NAMES: Final = frozenset(_names())


def _unclean(settings: Mapping[str, object]) -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, str) and not is_clean(value):
            yield key
