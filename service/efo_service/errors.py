"""What may go wrong in the service itself, beside what the library raises."""

from __future__ import annotations

from efo.errors import EfoError


class UsageError(EfoError):
    """A command was called in a way that cannot work: the message says what to write instead."""

    error_type = "usage"


class UnavailableError(EfoError):
    """Something that the service needs at its start is not there: a port, Java, another process."""

    error_type = "unavailable"


class DrainDeadlineError(EfoError):
    """The service was told to stop and was cut short: what was not committed will be read again."""

    error_type = "drain_deadline"
