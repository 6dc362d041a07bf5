"""Recognises a stream that was deleted and created again, by its description, its shards and the leases (rule R15)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import trio

from efo.errors import ServiceError, StreamRecreatedError, TransportError
from efo.identity import evidence_text, recreated
from efo.kinesis.client import ControlPlane
from efo.kinesis.identity import StreamIdentity
from efo.model import Lease, Position, Shard
from efo.protocol.identity import Evidence, evidence_against, has_changed, has_other_starts, is_refusal

MAX_CONFIRMATIONS: Final = 3
"""Suspicions that one check asks the service about: of a former stream's leases, nearly all are refused."""
FRESH_FOR: Final = 60.0
"""Seconds for which the description at the start is relied on."""


class RecreationCheck:
    """Compares each listing of shards of a stream with the leases and with the listing before.

    `listing_lag`: how late a listing may be, in seconds. What lasts longer is certain, even if the service does not
    permit the calls that confirm it.
    """

    def __init__(self, stream: str, control_plane: ControlPlane, identity: StreamIdentity, listing_lag: float) -> None:
        self._stream = stream
        self._control_plane = control_plane
        self._identity = identity
        self._listing_lag = listing_lag
        self._is_first = True
        self._starts: Mapping[str, str] = {}
        self._refuted: set[tuple[str, Position]] = set()
        self._suspected_since: dict[str, float] = {}

    async def check(self, shards: Sequence[Shard], leases: Iterable[Lease]) -> None:
        """Raise StreamRecreatedError if the leases, or what was read until now, are not of this stream.

        Raises ServiceError and TransportError if that cannot be found out now.
        """
        leases = list(leases)
        is_doubtful, now = has_changed(self._starts, shards), trio.current_time()
        since = self._identity.opened_at
        if self._is_first:
            since = max(since, now - FRESH_FOR)  # `run` may be called long after the consumer was opened
        await self._identity.look(now if is_doubtful else since)
        if is_doubtful and self._identity.created_at is None and has_other_starts(self._starts, shards):
            raise self._error("its shards begin at other sequence numbers than before")
        await self._check_leases(shards, leases)
        self._starts = {shard.shard_id: shard.starting_sequence_number for shard in shards}
        self._is_first = False

    async def _check_leases(self, shards: Sequence[Shard], leases: Sequence[Lease]) -> None:
        others = (lease.stream_created_at for lease in leases if lease.stream_created_at is not None)
        if (other := next(others, None)) is not None:
            await self._identity.differs_from(other)  # a server whose times change says nothing by them
        created_at, now = self._identity.created_at, trio.current_time()
        found = evidence_against(leases, shards, created_at)
        open_ones = [evidence.lease.key for evidence in found if evidence.kind == "is_open"]
        self._suspected_since = {key: self._suspected_since.get(key, now) for key in open_ones}
        for evidence in islice(found, MAX_CONFIRMATIONS):
            if evidence.is_certain or await self._is_confirmed(evidence, now):
                raise self._error(evidence_text(evidence, created_at))

    async def _is_confirmed(self, evidence: Evidence, now: float) -> bool:
        """Return whether the service confirms a suspicion, or it has lasted longer than a listing may be late."""
        lease, is_open = evidence.lease, evidence.kind == "is_open"
        position = Position.latest() if is_open else Position.at(lease.checkpoint.sequence_number)
        if (lease.key, position) in self._refuted:
            return False
        try:
            iterator = await self._control_plane.get_shard_iterator(lease.key, position)
            # It knows at once that a shard is closed, and then gives no further iterator.
            if is_open and (await self._control_plane.get_records(iterator, 1)).iterator is not None:
                return True
        except (ServiceError, TransportError) as error:
            if isinstance(error, ServiceError) and is_refusal(error, position):
                return True
            return is_open and now - self._suspected_since[lease.key] > self._listing_lag
        self._refuted.add((lease.key, position))
        return False

    def _error(self, how: str) -> StreamRecreatedError:
        return StreamRecreatedError(recreated(self._stream, how))
