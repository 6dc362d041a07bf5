"""Signatures in a simulation: credentials that cannot be obtained for a while, and a host's clock that steps.

The fake checks each signature by its own clock. What signs is efo's own signer, with efo's idea of the service's clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import trio
from botocore.credentials import ReadOnlyCredentials

from efo.aws.clock import ServiceClock
from efo.errors import ClockSkewError, CredentialsError, ServiceError
from efo.kinesis.aws.client import Signer
from efo.kinesis.client import KinesisClient
from efo.testing.sigv4 import Credential

KEYS: Final = ReadOnlyCredentials("AKSIMULATED", "secret", None)
KNOWN: Final = {KEYS.access_key: Credential(KEYS.secret_key)}
"""What the fake of such a world knows."""
CORRECTED: Final = "a signature was refused for its time, and signed again"
_MAX_OUTAGE: Final = 25.0
_MAX_SKEW: Final = 7200.0
logging.getLogger("efo.aws").addHandler(logging.NullHandler())  # the story tells it


@dataclass(frozen=True, slots=True)
class SigningPlan:
    """When credentials cannot be obtained, and when the host's clock steps: times of the world, seconds.

    `outages`: when each begins and ends. `steps`: when the clock steps, and by how much it is wrong from then on.
    `denial`: when SubscribeToShard, GetRecords and GetShardIterator are denied; shorter than a start waits for it.
    """

    outages: tuple[tuple[float, float], ...]
    steps: tuple[tuple[float, float], ...]
    denial: tuple[float, float] | None


def plan_signing(random: Random, calm_from: float) -> SigningPlan:
    """Return the plan of a world that is calm from this time on."""
    outages = []
    for _ in range(random.randint(0, 3)):
        at = random.uniform(0.0, calm_from)
        outages.append((at, min(calm_from, at + random.uniform(1.0, _MAX_OUTAGE))))
    times = sorted(random.uniform(0.0, calm_from) for _ in range(random.randint(0, 3)))
    steps = tuple((at, random.choice((0.0, 1.0, 1.0)) * random.uniform(-_MAX_SKEW, _MAX_SKEW)) for at in times)
    at = random.uniform(0.0, calm_from)
    denial = (at, min(calm_from, at + random.uniform(1.0, 20.0))) if random.random() < 0.5 else None
    return SigningPlan(tuple(outages), steps, denial)


class SimulatedSigning:
    """Signs the calls of one worker. `right`: the service's clock. `add`: takes what is reported in the story."""

    def __init__(self, plan: SigningPlan, right: Callable[[], float], add: Callable[[str], object]) -> None:
        self._plan = plan
        self._right = right
        self._add = add
        self._clock = ServiceClock(self._wrong)

    def applied_to(self, kinesis: KinesisClient) -> KinesisClient:
        """Return the client with these signatures."""
        signer = Signer(self, self._clock, f"{kinesis.scheme}://{kinesis.authority}/", "us-east-1")  # type: ignore[arg-type] # it has `get`
        return replace(kinesis, sign=signer.sign, correct=self._correct)

    async def get(self) -> ReadOnlyCredentials:
        """Return the credentials, as CredentialSource does, unless there is an outage."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        if any(start <= now < end for start, end in self._plan.outages):
            raise CredentialsError("the AWS credentials cannot be refreshed now: simulated")
        return KEYS

    def _wrong(self) -> float:
        now = trio.current_time()
        return self._right() + next((skew for at, skew in reversed(self._plan.steps) if at <= now), 0.0)

    async def _correct(self, error: ServiceError, date: str | None) -> bool:
        await trio.lowlevel.checkpoint()
        if not isinstance(error, ClockSkewError) or not self._clock.correct(error, date):
            return False
        self._add(CORRECTED)
        return True
