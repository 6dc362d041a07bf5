"""TLS of the service: its certificate, and those of its clients."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, NamedTuple

from efo.errors import ConfigurationError

_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python's ssl does not name."""


class TlsFiles(NamedTuple):
    """PEM files. `client_ca`: authorities whose clients may read without the token; None: clients show nothing."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of the server. Raises ConfigurationError for files that do not fit.

    A client certificate is optional, since probes have none; one that is shown must be valid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"[service] certificate_file {files.certificate} and key_file {files.key} are not a certificate and its "
            f"unencrypted private key in PEM: {error.strerror or error}"
        ) from None
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"[service] client_ca_file {files.client_ca} has no certificates in PEM: {error.strerror or error}"
            ) from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(certificate: Path) -> ssl.SSLContext:
    """Return the context of a client on the same machine. It trusts this very certificate, by whatever name.

    An expired one, too: a health check that fails for it would have a service restarted that reads its streams.
    Raises OSError if the file cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the name of this machine is rarely in it; the certificate itself is
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    context.load_verify_locations(certificate)
    return context
