"""The service's clock, by which requests are signed: AWS refuses a signature that is minutes off.

The host's clock is believed until the service refuses a signature for its time. That refusal says what time it is: in
its text, or else by its `Date` header. The `Date` of other responses is not used for signatures: an accepted one proves
that the time was right, whatever a proxy in between writes. If the host's clock is set right later, the next refusal
teaches that as well.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import botocore.auth
from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth

from efo.errors import ClockSkewError
from efo.third_party_logs import keep_at

keep_at(logging.INFO, "botocore")  # it logs each request that it signs, with the session token

_SIGNATURE_VERSION: Final = "v4-efo"
"""The name by which botocore finds `ClockedSigV4`."""
_TIMESTAMP: Final = "efo_timestamp"
_SAME: Final = 60.0
"""A refusal that changes the known time by fewer seconds is not about the time."""
_LOG: Final = logging.getLogger("efo.aws")


class ClockedSigV4(SigV4Auth):  # type: ignore[misc] # botocore has no types
    """SigV4 at the time that the context of a request has from `ServiceClock.stamp`."""

    def _modify_request_before_signing(self, request: Any) -> None:
        request.context["timestamp"] = request.context.get(_TIMESTAMP, request.context["timestamp"])
        super()._modify_request_before_signing(request)


class ServiceClock:
    """The clock of one service, as far as it is known. `clock`: the host's, seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = time.time if clock is None else clock
        self._skew = 0.0

    def now(self) -> float:
        """Return the service's time, in seconds since the epoch."""
        return self._clock() + self._skew

    def correct(self, refusal: ClockSkewError, date: str | None = None) -> bool:
        """Learn the time from a refusal, or else from its `Date`; return whether the next signature is another one."""
        at = refusal.service_time
        if at is None:
            with suppress(ValueError, TypeError):  # a malformed date
                at = parsedate_to_datetime(date or "").timestamp()
        if at is None or abs(at - self.now()) < _SAME:
            return False
        self._skew = at - self._clock()
        if abs(self._skew) < _SAME:
            _LOG.warning("the clock of this host is right again: signatures use it")
        else:
            _LOG.warning(
                "the clock of this host is %.0f s %s the service's: signatures use the service's time; correct the"
                " clock (NTP), since certificates and other services depend on it",
                abs(self._skew),
                "behind" if self._skew > 0 else "ahead of",
            )
        return True

    def stamp(self, request: Any) -> None:
        """Let a request of botocore's be signed at the service's time."""
        request.context[_TIMESTAMP] = datetime.fromtimestamp(self.now(), UTC).strftime(SIGV4_TIMESTAMP)

    def install(self, session: Any) -> None:
        """Let all clients that a session of botocore makes sign by this clock."""
        botocore.auth.AUTH_TYPE_MAPS[_SIGNATURE_VERSION] = ClockedSigV4
        events = session.get_component("event_emitter")
        events.register_first("choose-signer", _choose_signer)
        events.register("before-sign", self._before_sign)

    def _before_sign(self, request: Any, **_: object) -> None:
        self.stamp(request)


def _choose_signer(signature_version: object, context: Mapping[str, Any], **_: object) -> str | None:
    """Return the name of `ClockedSigV4` for a request that SigV4 would sign; None for any other."""
    is_sigv4 = signature_version == "v4" and context.get("auth_type") in {None, "v4"}
    return _SIGNATURE_VERSION if is_sigv4 else None
