"""Errors of the service, in addition to those of the library."""

from __future__ import annotations

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
