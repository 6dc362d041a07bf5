"""Serves the TLS files as they are now: certificates are renewed while the service runs."""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog

from efo.errors import ConfigurationError
from efo_service.web.process_problems import ProcessProblems
from efo_service.web.tls import TlsFiles, server_context


class RenewedContext:
    """The context of the server, made anew when its files change.

    `problems`: gets what is wrong with a renewal, until one succeeds. Raises ConfigurationError if the files do not fit
    at first.
    """

    def __init__(self, files: TlsFiles, problems: ProcessProblems | None = None) -> None:
        self._files = files
        self._problems = problems or ProcessProblems()
        self._versions = _versions(files)
        self._context = server_context(files)

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection. Files that do not fit leave the one before in use."""
        versions = _versions(self._files)
        if versions != self._versions:
            self._versions = versions  # a pair that is half written is read again when its other half comes
            log = structlog.get_logger()
            try:
                self._context = server_context(self._files)
            except ConfigurationError as error:
                log.warning("certificate_not_renewed", reason=str(error))
                self._problems.began(
                    "certificate_not_renewed",
                    f"the certificate was not renewed, and the one before is still served: {error}",
                )
            else:
                self._problems.ended("certificate_not_renewed")
                log.info("certificate_renewed", file=str(self._files.certificate))
        return self._context


def _versions(files: TlsFiles) -> tuple[tuple[int, int, int] | None, ...]:
    return tuple(None if path is None else version_of(path) for path in files)


def version_of(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with the file. It follows links: Kubernetes renews a secret by another link."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
