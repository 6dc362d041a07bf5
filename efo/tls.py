"""TLS contexts of efo's clients."""

from __future__ import annotations

import ssl

from efo.errors import ConfigurationError


def client_tls_context(ca_file: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the certificate authorities in a PEM file. Raises ConfigurationError."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is a subclass
        raise ConfigurationError(
            f"cannot use the CA file {ca_file}: {error.strerror}: expected certificates in PEM format"
        ) from error
