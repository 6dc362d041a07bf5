"""When a refusal of the service is final (rule R16): one for permissions passes by itself, after the first success.

IAM takes some seconds to apply a new role or policy, and somebody may change a policy, or disable a KMS key, and put it
back. So a consumer or producer that has worked waits, for as long as it takes, and one that has not waits for a while.
"""

from __future__ import annotations

from typing import Final

from efo.errors import AccessDeniedError, EfoError, KmsError

GRACE: Final = 30.0
"""Seconds for which a refusal may pass before the first success: IAM applies a change within some 10 s."""


class Denials:
    """The refusals of one consumer or producer. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._has_worked = False
        self._since: float | None = None

    def worked(self) -> None:
        """Note that the service has accepted a call."""
        self._has_worked, self._since = True, None

    def is_final(self, error: EfoError, now: float) -> bool:
        """Return whether repeating the call cannot help."""
        if error.retryable:
            self._since = None
            return False
        if not isinstance(error, AccessDeniedError | KmsError):
            return True
        if self._since is None:
            self._since = now
        return not self._has_worked and now - self._since >= GRACE


def is_final(error: EfoError) -> bool:
    """Return whether repeating a call cannot help, whatever was before."""
    return not error.retryable
