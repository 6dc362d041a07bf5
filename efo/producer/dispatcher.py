"""Sends the requests that the buffer decides on, and lists the shards again when they have changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

import trio

from efo.errors import EfoError, ServiceError, error_type_of, without_tracebacks
from efo.events import (
    Observer,
    PutRecordsCalled,
    RecordsDelivered,
    RecordsNotDelivered,
    ShardMapChanged,
    ShardsListed,
    ShardSyncFailed,
)
from efo.kinesis.control_plane import ControlPlane
from efo.kinesis.put_records import PutRecordsCaller, PutRecordsEntry, PutRecordsResult
from efo.producer.buffer import REFUSED_WHOLE, Buffer, Request, Settled
from efo.producer.entry import Entry, Stored, Unseen
from efo.producer.shard_map import ShardMap
from efo.protocol.backoff import Backoff
from efo.protocol.service_errors import service_error

LIST_INTERVAL: Final = 1.0
"""Seconds between two lists of the shards at least, and after a failure at first."""
MAX_LIST_INTERVAL: Final = 10.0


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
        max_in_flight: int,
        observer: Observer,
        rng: Random,
    ) -> None:
        self._buffer = buffer
        self._caller = caller
        self._control_plane = control_plane
        self._observer = observer
        self._rng = rng
        self._max_in_flight = max_in_flight
        self._sending: dict[Request, None] = {}
        self._changed = trio.Event()
        self._stale = trio.Event()
        self._shards: ShardMap | None = None  # to be applied when no request is in flight
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

    # --- requests ------------------------------------------------------------------------------------------

    async def _next_request(self) -> Request:
        while True:
            self._changed = trio.Event()
            now = trio.current_time()
            if late := self._buffer.expire(now):
                self._given_up(late)
            self._apply_shards(now)
            if self._shards is None and len(self._sending) < self._max_in_flight:
                polled = self._buffer.poll(now)
                if isinstance(polled, Request):
                    return polled
                wake_at = polled
            else:
                wake_at = self._buffer.expires_from()
            with trio.move_on_at(wake_at):
                await self._changed.wait()

    async def _send(self, request: Request) -> None:
        entries = request.entries
        began = trio.current_time()
        wire = [PutRecordsEntry(entry.data, entry.partition_key, entry.explicit_hash_key) for entry in entries]
        size = sum(entry.size for entry in entries)
        results: Sequence[Stored | EfoError]
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
                sum(lane.again for lane in settled),
                now - began,
                size,
                None if refused is None else error_type_of(refused),
                _detail(refused),
            )
        )
        self._report(settled, now)
        self._changed.set()

    def _report(self, settled: Iterable[Settled], now: float) -> None:
        for lane in settled:
            if lane.stored:
                self._stored(lane.stored, now)
            if lane.failed:
                self._given_up(lane.failed)
        self.progress.unpark_all()

    def _stored(self, entries: Sequence[Entry], now: float) -> None:
        stored = entries[0].stored
        self._observer(
            RecordsDelivered(
                stored.shard_id if stored else "",
                sum(entry.records for entry in entries),
                len(entries),
                now - min(entry.put_at for entry in entries),
                max(entry.attempts for entry in entries),
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
            await self._stale.wait()
            backoff = Backoff(self._rng.random, initial=LIST_INTERVAL, limit=MAX_LIST_INTERVAL, jitter=0.5)
            while True:
                shards = await self._listed()
                if shards is not None and self._buffer.accepts(shards):
                    break
                await trio.sleep(backoff.next())
            self._stale = trio.Event()
            self._shards = shards
            self._changed.set()
            await trio.sleep(LIST_INTERVAL)

    async def _listed(self) -> ShardMap | None:
        try:
            shards = await self._control_plane.list_shards()
            self._observer(ShardsListed(len(shards)))
            return ShardMap(shards)
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
        stored, repeated = self._buffer.apply(shards, now)
        self._observer(ShardMapChanged(len(shards.shard_ids), repeated))
        if stored:
            self._stored(stored, now)
            self.progress.unpark_all()


def _detail(error: EfoError | None) -> str:
    """Return the text of an error for events, which are logged. AWS's text of a refused request may have a key."""
    if error is None:
        return ""
    return error.code if isinstance(error, ServiceError) and error.code in REFUSED_WHOLE else str(error)


def _outcome(result: PutRecordsResult) -> Stored | EfoError:
    if result.shard_id and result.sequence_number:
        return Stored(result.shard_id, result.sequence_number)
    return service_error(result.error_code or "UnknownError", result.error_message or "")
