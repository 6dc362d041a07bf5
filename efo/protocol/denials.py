"""When a refusal of the service is final, and when one odd answer is none (rule R16).

IAM takes some seconds to apply a new role or policy, and somebody may change a policy, or disable a KMS key, and put it
back. So a consumer or producer that has worked waits, for as long as it takes, and one that has not waits for a while.

A proxy, a load balancer or a service that is being deployed may answer in AWS's place, mostly with status 400. Refusals
of kinds that AWS documents are believed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from efo.errors import AccessDeniedError, EfoError, KmsError, ProtocolError, ServiceError

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


DOUBTS: Final = 5
"""How many odd answers in a row are doubted."""
_BELIEVED: Final = frozenset({
    "InvalidArgumentException", "ValidationException", "ValidationError", "InvalidParameterValue",
    "InvalidParameterCombination", "MissingParameter", "InvalidAction", "UnknownOperationException", "OptInRequired",
})  # fmt: skip
"""Codes of refusals that AWS documents, and that are about the request (AWS: SubscribeToShard, Common Errors)."""


def is_odd(error: EfoError) -> bool:
    """Return whether an answer has no known meaning: a refusal that is none of AWS's kinds, or what cannot be read."""
    if isinstance(error, ProtocolError):
        return error.retryable
    return type(error) is ServiceError and error.code not in _BELIEVED


class Doubts:
    """The odd answers to the calls of one shard. `believed`: whether an error that is not doubted is final."""

    def __init__(self, believed: Callable[[EfoError], bool] = is_final) -> None:
        self._believed = believed
        self._seen = 0

    def is_final(self, error: EfoError) -> bool:
        """Return whether to repeat the call cannot help."""
        if not error.retryable and is_odd(error):
            self._seen += 1
            if self._seen <= DOUBTS:
                return False
        return self._believed(error)

    def settled(self) -> None:
        """Note that a call has succeeded."""
        self._seen = 0
