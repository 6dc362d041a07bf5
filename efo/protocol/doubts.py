"""One odd answer is no refusal (rule R16): a call that fails in an unknown way is made again some times.

A proxy, a load balancer or a service that is being deployed may answer in AWS's place, mostly with status 400. Refusals
of kinds that AWS documents are believed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from efo.errors import EfoError, ProtocolError, ServiceError
from efo.protocol.denials import is_final

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
