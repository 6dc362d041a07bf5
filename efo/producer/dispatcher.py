"""Sends the requests that the buffer decides on, and lists the shards again when they have changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from random import Random
from typing import Final

import trio

from efo.errors import EfoError, ServiceError, error_type_of, without_tracebacks
from efo.events import (
    DistributionChanged,
    Observer,
    PutRecordsCalled,
    RecordsDelivered,
    RecordsNotDelivered,
    ShardMapChanged,
    ShardsListed,
    ShardSyncFailed,
)
from efo.kinesis.client import ControlPlane
from efo.kinesis.service_call import PutRecordsCaller, PutRecordsEntry, PutRecordsResult
from efo.producer.buffer import REFUSED_WHOLE, Buffer, PutRequest, Settled
from efo.producer.entry import AcceptedRecord, Entry, Unseen
from efo.producer.settings import ProducerSettings, impossible_with_auto
from efo.producer.shard_map import ShardMap
from efo.protocol.backoff import Backoff
from efo.protocol.service_errors import service_error

LIST_INTERVAL: Final = 1.0
"""Seconds between two lists of the shards at least, and after a failure at first."""
MAX_LIST_INTERVAL: Final = 10.0
AUTO_INTERVAL: Final = 60.0
"""Seconds after which the shards are listed while the service distributes the records: no response shows the end of
that."""


class Dispatcher:
    """Empties a buffer. `run` must be running.

    `progress`: woken whenever records are done, so that the buffer has room. `unseen`: failures are counted there.
    """

    def __init__(
        self,
        buffer: Buffer,
        caller: PutRecordsCaller,
        control_plane: ControlPlane,
        *,
        settings: ProducerSettings,
        observer: Observer,
        rng: Random,
    ) -> None:
        self._buffer = buffer
        self._caller = caller
        self._control_plane = control_plane
        self._observer = observer
        self._rng = rng
        self._max_in_flight = settings.max_in_flight
        self._impossible = impossible_with_auto(settings)
        self._sending: dict[PutRequest, None] = {}
        self._changed = trio.Event()
        self._stale = trio.Event()
        self._shards: ShardMap | None = None  # to be applied when no request is in flight
        self._describing = trio.Lock()
        self._described_at = -inf
        self._is_auto = False  # as described then
        self.progress = trio.lowlevel.ParkingLot()
        self.unseen = Unseen()

    def wake(self) -> None:
        """Look at the buffer: a request may be due earlier than it was."""
        self._changed.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send requests until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._list_shards)
            task_status.started()
            while True:
                request = await self._next_request()
                self._sending[request] = None
                nursery.start_soon(self._send, request)

    def abandon(self, error: EfoError) -> None:
        """Give up all records, because of this error where there is no other. `run` must have ended."""
        left = self._buffer.fail_all(self._sending, trio.current_time())
        self._sending.clear()
        for entry in left:
            entry.error = entry.error or error
        self._given_up(left)

    async def allows_keyless(self) -> bool:
        """Return whether the stream takes records without a partition key. The service is asked once a second at most.

        Raises EfoError.
        """
        if self._buffer.is_auto:
            return True
        async with self._describing:  # who comes meanwhile waits for the same answer
            if trio.current_time() >= self._described_at + LIST_INTERVAL:
                self._is_auto = (await self._control_plane.describe_stream()).is_auto
                self._described_at = trio.current_time()
        if self._is_auto:
            self._stale.set()
        return self._is_auto

    # --- requests ------------------------------------------------------------------------------------------

    async def _next_request(self) -> PutRequest:
        while True:
            self._changed = trio.Event()
            now = trio.current_time()
            if late := self._buffer.expire(now):
                self._given_up(late)
            self._apply_shards(now)
            if self._shards is None and len(self._sending) < self._max_in_flight:
                polled = self._buffer.poll(now)
                if isinstance(polled, PutRequest):
                    return polled
                wake_at = polled
            else:
                wake_at = self._buffer.expires_from()
            with trio.move_on_at(wake_at):
                await self._changed.wait()

    async def _send(self, request: PutRequest) -> None:
        entries = request.entries
        began = trio.current_time()
        wire = [PutRecordsEntry(entry.data, entry.partition_key, entry.explicit_hash_key) for entry in entries]
        size = sum(entry.size for entry in entries)
        results: Sequence[AcceptedRecord | EfoError]
        try:
            results = [_outcome(result) for result in await self._caller.call(wire)]
        except EfoError as error:
            results = [without_tracebacks(error)] * len(entries)
        now = trio.current_time()
        settled = self._buffer.settle(request, results, now)
        del self._sending[request]
        if self._buffer.is_stale:
            self._stale.set()
        refused = next((result for result in results if isinstance(result, EfoError)), None)
        self._observer(
            PutRecordsCalled(
                len(entries),
                sum(queue.again for queue in settled),
                now - began,
                size,
                None if refused is None else error_type_of(refused),
                _detail(refused),
            )
        )
        self._report(settled, now)
        self._changed.set()

    def _report(self, settled: Iterable[Settled], now: float) -> None:
        for queue in settled:
            if queue.stored:
                self._stored(queue.stored, now)
            if queue.failed:
                self._given_up(queue.failed)
        self.progress.unpark_all()

    def _stored(self, entries: Sequence[Entry], now: float) -> None:
        by_shard = _by_shard(entries) if self._buffer.is_auto else {_shard_of(entries[0]): entries}
        for shard_id, group in by_shard.items():
            self._observer(
                RecordsDelivered(
                    shard_id,
                    sum(entry.records for entry in group),
                    len(group),
                    now - min(entry.put_at for entry in group),
                    max(entry.attempts for entry in group),
                )
            )

    def _given_up(self, entries: Sequence[Entry]) -> None:
        records = sum(entry.records for entry in entries)
        if records:
            self.unseen.count += records
            error = entries[0].error
            kind = "expired" if error is None else error_type_of(error)
            self._observer(RecordsNotDelivered(records, kind, _detail(error)))
        self.progress.unpark_all()

    # --- the shards ----------------------------------------------------------------------------------------

    async def _list_shards(self) -> None:
        while True:
            with trio.move_on_after(AUTO_INTERVAL if self._buffer.is_auto else inf):
                await self._stale.wait()
            backoff = Backoff(self._rng.random, initial=LIST_INTERVAL, limit=MAX_LIST_INTERVAL, jitter=0.5)
            while (shards := await self._listed()) is None or not self._buffer.accepts(shards):  # noqa: ASYNC110 - no event
                await trio.sleep(backoff.next())
            if self._stale.is_set() or not self._buffer.uses(shards):
                self._shards = shards
                self._changed.set()
            self._stale = trio.Event()
            await trio.sleep(LIST_INTERVAL)

    async def _listed(self) -> ShardMap | None:
        try:
            shards = await self._control_plane.list_shards()
            self._observer(ShardsListed(len(shards)))
            stream = await self._control_plane.describe_stream()
            return ShardMap(shards, is_auto=stream.is_auto)
        except ValueError:  # no shard is open; it is asked again
            return None
        except EfoError as error:
            self._observer(ShardSyncFailed(error_type_of(error), str(error)))
            return None

    def _apply_shards(self, now: float) -> None:
        """Use the list that waits, unless requests are in flight. If it lacks a shard by now, it is listed again."""
        if self._shards is None or self._buffer.in_flight:
            return
        shards, self._shards = self._shards, None
        if not self._buffer.accepts(shards):
            self._stale.set()
            return
        was_auto = self._buffer.is_auto
        applied = self._buffer.apply(shards, now)
        self._observer(ShardMapChanged(shards.count, applied.repeated))
        if shards.is_auto != was_auto:
            self._observer(DistributionChanged("AUTO" if shards.is_auto else "USER_PARTITION_KEY", self._impossible))
        if applied.stored:
            self._stored(applied.stored, now)
            self.progress.unpark_all()
        if applied.refused:
            self._given_up(applied.refused)


def _detail(error: EfoError | None) -> str:
    """Return the text of an error for events, which are logged. AWS's text of a refused request may have a key."""
    if error is None:
        return ""
    return error.code if isinstance(error, ServiceError) and error.code in REFUSED_WHOLE else str(error)


def _shard_of(entry: Entry) -> str:
    return entry.stored.shard_id if entry.stored else ""


def _by_shard(entries: Iterable[Entry]) -> Mapping[str, Sequence[Entry]]:
    by_shard: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_shard[_shard_of(entry)].append(entry)
    return by_shard


def _outcome(result: PutRecordsResult) -> AcceptedRecord | EfoError:
    if result.shard_id and result.sequence_number:
        return AcceptedRecord(result.shard_id, result.sequence_number)
    return service_error(result.error_code or "UnknownError", result.error_message or "")
