"""Errors of the service, in addition to those of the library."""

from __future__ import annotations

from typing import Final

from efo.errors import EfoError


class UsageError(EfoError):
    """A command was called with arguments that cannot work. The message says what to write instead."""

    error_type = "usage"


class NoLeaseStoreError(UsageError):
    """A command looks for leases where no lease store exists."""


class UnavailableError(EfoError):
    """Something that the service needs at its start is missing: a port, Java, another process."""

    error_type = "unavailable"


class DrainDeadlineError(EfoError):
    """The drain was cut short. Records that are not committed will be read again."""

    error_type = "drain_deadline"


_OPTIONAL: Final = {
    "pyarrow": "the log and its readers need it: pip install 'efo[service]', or another image than that for Kafka",
    **dict.fromkeys(
        ("starlette", "prometheus_client", "opentelemetry.sdk", "opentelemetry.exporter"),
        "a service needs it, and the extra `cli` is without: pip install 'efo[service]'",
    ),
}
"""Packages and modules of the extra `service` that some installations are without, and who needs them."""


def missing_package(error: BaseException | None) -> str | None:
    """Return a sentence if the error is, or was caused by, the import of a package that may be missing; else None."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name in _OPTIONAL:
            return f"{error.name} is not installed: {_OPTIONAL[error.name]}"
        error = error.__cause__
    return None
