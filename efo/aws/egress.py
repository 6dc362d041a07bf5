"""How the AWS clients of efo leave this machine: the authorities that they trust, and what is never behind a proxy.

For `efo.kinesis`, the lease store in DynamoDB, CloudWatch, and the credentials of an object store.
"""

from __future__ import annotations

import os
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

    def check(self) -> None:
        """Raise ConfigurationError unless the file can be used: it names the source and the path."""
        if self.source != _BOTOCORE:
            client_tls_context(self.path, self.source)


def find_authorities(session: Any, ca_file: str | None) -> Authorities:
    """Return the authorities to trust, in botocore's order.

    `ca_file`, AWS_CA_BUNDLE, `ca_bundle` of the profile, REQUESTS_CA_BUNDLE, and those that botocore has. SSL_CERT_FILE
    and SSL_CERT_DIR are ignored, as by botocore. `session`: of botocore. Raises ConfigurationError for an empty value.
    """
    bundle = session.get_config_variable("ca_bundle")
    configured = "AWS_CA_BUNDLE" if "AWS_CA_BUNDLE" in os.environ else "ca_bundle in the AWS configuration"
    candidates = (
        ("ca_file", ca_file),
        (configured, bundle),
        ("REQUESTS_CA_BUNDLE", os.environ.get("REQUESTS_CA_BUNDLE")),
        (_BOTOCORE, get_cert_path(True)),
    )
    source, path = next((source, path) for source, path in candidates if path is not None)
    if not path.strip():
        raise ConfigurationError(f"{source} is empty: set it to a file of certificates in PEM format, or remove it")
    return Authorities(path, source)


def reach_metadata_directly(session: Any) -> None:
    """Let a session, of botocore or aiobotocore, ask the instance metadata service without a proxy.

    botocore would ask HTTP_PROXY for this link-local address, and get the metadata of the proxy's machine: its role.
    The agents of containers and pods are never asked by a proxy. Call it before the session's first client.
    """

    def make() -> Any:
        resolver = session._create_credential_resolver()  # noqa: SLF001 - botocore has no option for it
        for provider in resolver.providers:
            if provider.METHOD == _INSTANCE_ROLE:
                fetcher = provider._role_fetcher  # noqa: SLF001
                fetcher._session = type(fetcher._session)(timeout=fetcher._timeout, proxies={})  # noqa: SLF001
        return resolver

    session._components.lazy_register_component("credential_provider", make)  # noqa: SLF001
