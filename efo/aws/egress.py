"""How the AWS clients of efo leave this machine: the authorities that they trust, and what is never behind a proxy."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from botocore.httpsession import get_cert_path

from efo.errors import ConfigurationError
from efo.tls import client_tls_context

_BOTOCORE: Final = "botocore"
_INSTANCE_ROLE: Final = "iam-role"
"""botocore's name of the provider that asks the instance metadata service."""


@dataclass(frozen=True, slots=True)
class Authorities:
    """A file of certificate authorities, in PEM format. `source`: the setting or the variable that names it."""

    path: str
    source: str

    @property
    def is_default(self) -> bool:
        """Whether they are those that botocore has, because nothing else is set."""
        return self.source == _BOTOCORE

    def check(self) -> None:
        """Raise ConfigurationError unless the file can be used: it names the source and the path."""
        if not self.is_default:
            client_tls_context(self.path, self.source)


def find_authorities(session: Any | None, ca_file: str | None, setting: str = "ca_file") -> Authorities:
    """Return the authorities to trust, in botocore's order.

    `ca_file`, AWS_CA_BUNDLE, `ca_bundle` of the profile, REQUESTS_CA_BUNDLE, and those that botocore has. SSL_CERT_FILE
    and SSL_CERT_DIR are ignored, as by botocore. `session`: with botocore's `get_config_variable`; None if the service
    is not of AWS, for which AWS's variable and profile do not count. `setting`: what names `ca_file`. Raises
    ConfigurationError for an empty value.
    """
    candidates: list[tuple[str, Callable[[], str | None]]] = [(setting, lambda: ca_file)]
    if session is not None:
        candidates += [
            ("AWS_CA_BUNDLE", lambda: os.environ.get("AWS_CA_BUNDLE")),
            ("ca_bundle in the AWS configuration", lambda: session.get_config_variable("ca_bundle")),
        ]
    candidates.append(("REQUESTS_CA_BUNDLE", lambda: os.environ.get("REQUESTS_CA_BUNDLE")))
    found = ((source, path) for source, find in candidates if (path := find()) is not None)
    source, path = next(found, (_BOTOCORE, get_cert_path(True)))
    if not path.strip():
        raise ConfigurationError(f"{source} is empty: set it to a file of certificates in PEM format, or remove it")
    return Authorities(path, source)


def reach_metadata_directly(resolver: Any) -> None:
    """Let a resolver of credentials, of botocore, ask the instance metadata service without a proxy.

    botocore would ask HTTP_PROXY for this link-local address, and get the metadata of the proxy's machine: its role.
    The agents of containers and pods are never asked by a proxy.
    """
    for provider in resolver.providers:
        if provider.METHOD == _INSTANCE_ROLE:
            fetcher = provider._role_fetcher  # noqa: SLF001 - botocore has no option for it
            fetcher._session = type(fetcher._session)(timeout=fetcher._timeout, proxies={})  # noqa: SLF001 - the same
