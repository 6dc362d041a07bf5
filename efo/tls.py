"""The authorities whose certificates are trusted: a file in PEM."""

from __future__ import annotations

import ssl

from efo.errors import ConfigurationError


def client_tls_context(ca_file: str) -> ssl.SSLContext:
    """Return a client's TLS context that trusts these authorities. Raises ConfigurationError."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"the CA file {ca_file} cannot be used: {error.strerror}: expected certificates in PEM"
        ) from error
