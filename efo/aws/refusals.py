"""What a refusal of a service says about the credentials and the clock by which a call was signed."""

from __future__ import annotations

from efo.aws.clock import ServiceClock
from efo.aws.credentials import CredentialSource
from efo.errors import (
    AccessDeniedError,
    ClockSkewError,
    ExpiredCredentialsError,
    RejectedCredentialsError,
    ServiceError,
)


class Refusals:
    """Corrects what was wrong with refused calls. `source`: their credentials. `clock`: the service's."""

    def __init__(self, source: CredentialSource, clock: ServiceClock) -> None:
        self._source = source
        self._clock = clock

    async def correct(self, error: ServiceError, date: str | None = None) -> bool:
        """Return whether a call that was refused with this error may succeed if it is signed again at once.

        `date`: the header `Date` of the refusal.
        """
        match error:
            case ClockSkewError():
                return self._clock.correct(error, date)
            case ExpiredCredentialsError() | RejectedCredentialsError():
                return await self._source.replace()
            case AccessDeniedError():
                return await self._source.replace(is_denied=True)
            case _:
                return False
