"""The credentials of AWS's chain: obtained, kept, refreshed. Every client of AWS that efo makes has them from here.

Before the first success, a failure is a mistake of the configuration, or a service that cannot be reached. After it,
whatever fails is an outage: CredentialsError, which passes, and is tried again once a second by whoever needs them.

Credentials are refreshed when half of their time is over, or ten minutes before its end if that is later. Until they
expire, a refresh that fails takes nothing away. Those that never expire are read again when a service refuses them: so
a file that was rotated, and a session that was revoked, need no restart.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

import trio
from botocore.credentials import ReadOnlyCredentials

from efo.aws.chain import Chain, Loaded
from efo.aws.clock import ServiceClock
from efo.aws.explanations import ChainError
from efo.aws.role import AssumedRole
from efo.aws.variables import check_variables
from efo.errors import (
    AccessDeniedError,
    ClockSkewError,
    ConfigurationError,
    CredentialsError,
    ExpiredCredentialsError,
    RejectedCredentialsError,
    ServiceError,
)

REFRESH_AHEAD: Final = 600.0
"""Seconds before their end at which credentials are refreshed, if half of their time is over by then."""
RETRY_INTERVAL: Final = 1.0
"""Seconds between two attempts while there are none: as long as each service that is asked should have."""
CALM_INTERVAL: Final = 30.0
"""Seconds between two attempts while those that are held are still valid."""
QUIET_AFTER: Final = 60.0
"""Seconds without a refusal after which the next one is logged again."""
LOAD_SECONDS: Final = 90.0
"""How long an attempt may take. Every step of it has a shorter limit; this is for what has none, as a disk."""
_LOG: Final = logging.getLogger("efo.aws")


@dataclass(frozen=True, slots=True)
class _Held:
    """Credentials, and from when on they are refreshed, and invalid, by monotonic time."""

    loaded: Loaded
    since: float
    refresh_at: float
    ends_at: float


class CredentialSource:
    """Credentials of the chain, for trio and for threads. Raises ConfigurationError for a wrong variable.

    `profile`: of the AWS configuration. `region`: the one that efo found, of all services that are asked for the
    credentials. `role`: it is assumed by the chain's credentials. `proxy_url`: through which those services are asked,
    as for `open_kinesis`. `monotonic`: seconds.
    """

    def __init__(
        self,
        profile: str | None = None,
        region: str | None = None,
        role: AssumedRole | None = None,
        *,
        proxy_url: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        check_variables()
        self._chain = Chain(profile, region, role, ServiceClock(), proxy_url)
        self._monotonic = monotonic
        self._held: _Held | None = None
        self._failure = ""
        self._retry_at = -inf
        self._refused_at = -inf
        self._loading = threading.Lock()
        self._asking = trio.Lock()
        self._threads = trio.CapacityLimiter(1)  # one that hangs, and was left alone, holds up the next one here

    @property
    def provider(self) -> str:
        """Botocore's name of the provider that has the credentials, such as "assume-role"; empty before the first."""
        return "" if self._held is None else self._held.loaded.provider

    async def get(self) -> ReadOnlyCredentials:
        """Return valid credentials. Raises ConfigurationError before the first ones; CredentialsError."""
        if (held := self._without_loading()) is None:
            async with self._asking:  # thousands of shards may ask at once
                if (held := self._without_loading()) is None:
                    return await self._loaded()
        return held.loaded.credentials

    async def _loaded(self) -> ReadOnlyCredentials:
        if self._chain.is_environment:
            return self.get_blocking()  # it does not block
        with trio.move_on_after(LOAD_SECONDS):
            return await trio.to_thread.run_sync(self.get_blocking, abandon_on_cancel=True, limiter=self._threads)
        raise CredentialsError(f"the AWS credentials: no result within {LOAD_SECONDS:g} s")

    def get_blocking(self) -> ReadOnlyCredentials:
        """Return valid credentials, as `get`, in a thread."""
        with self._loading:
            held = self._without_loading()
            if held is None:
                held = self._load_now(self._held)
        return held.loaded.credentials

    async def replace(self, *, is_denied: bool = False) -> bool:
        """Read credentials again that a service refuses; return whether there are other ones. See `refused`."""
        held = self._held
        if held is None or not self.refused(is_denied=is_denied):
            return False
        try:
            return bool(await self.get() != held.loaded.credentials)
        except (ConfigurationError, CredentialsError):
            return False  # the next signature says why

    def refused(self, *, is_denied: bool = False) -> bool:
        """Note that a service refuses the credentials: they are read again. Return whether they are.

        That is at most once a second. `is_denied`: the service knows them, and they lack a permission, so that others
        are looked for now and then.
        """
        held, now = self._held, self._monotonic()
        if held is None or now - held.since < (CALM_INTERVAL if is_denied else RETRY_INTERVAL):
            return False
        self._held = replace(held, refresh_at=now, ends_at=held.ends_at if is_denied else now)
        self._retry_at = -inf
        if not is_denied:
            if now - self._refused_at >= QUIET_AFTER:
                _LOG.warning("a service refuses the AWS credentials (%s): they are read again", self.provider)
            self._refused_at = now
        return True

    def _without_loading(self) -> _Held | None:
        """Return what is held if it is to be used now; None if it is time to load. Raises CredentialsError."""
        held, now = self._held, self._monotonic()
        if held is not None and now < held.refresh_at:
            return held
        if now >= self._retry_at:
            return None
        if held is not None and now < held.ends_at:
            return held
        raise CredentialsError(f"the AWS credentials cannot be refreshed now: {self._failure}")

    def _load_now(self, held: _Held | None) -> _Held:
        try:
            loaded = self._chain.load(is_first=held is None)
        except (ChainError, ConfigurationError) as failure:
            if held is None:
                raise _at_first(failure) from None
            self._failed(str(failure), held)
        else:
            return self._keep(loaded)
        if self._monotonic() < held.ends_at:
            return held
        raise CredentialsError(f"the AWS credentials cannot be refreshed now: {self._failure}")

    def _keep(self, loaded: Loaded) -> _Held:
        now = self._monotonic()
        lasting = inf if loaded.seconds is None else loaded.seconds
        if lasting > 0:
            held = _Held(loaded, now, now + max(lasting / 2, lasting - REFRESH_AHEAD), now + lasting)
        else:  # by a wrong clock: they are used until a service refuses them
            held = _Held(loaded, now, now + CALM_INTERVAL, inf)
        if self._failure:
            _LOG.warning("the AWS credentials are refreshed again")
        self._held, self._failure, self._retry_at = held, "", -inf
        return held

    def _failed(self, why: str, held: _Held) -> None:
        now = self._monotonic()
        valid_for = held.ends_at - now
        if not self._failure and valid_for > 0:
            _LOG.warning("the AWS credentials cannot be refreshed, those in use stay valid for a while: %s", why)
        self._failure = why
        self._retry_at = now + max(RETRY_INTERVAL, min(CALM_INTERVAL, valid_for))


def _at_first(failure: Exception) -> ConfigurationError | CredentialsError:
    if isinstance(failure, ConfigurationError):
        return failure
    kind: type[Any] = CredentialsError if getattr(failure, "is_unavailable", False) else ConfigurationError
    error: ConfigurationError | CredentialsError = kind(f"no usable AWS credentials: {failure}")
    return error


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
