"""Runs `protocol.polling` over HTTP/2: the events of one shard by GetRecords.

A call is made only when the reader wants an event, in its own task. So there is no buffer, and back-pressure needs no
mechanism (rule R9). It costs no time: after a page, the service's limits ask for a pause, in which the reader works.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from efo.errors import EfoError, NotVisibleError, ResourceNotFoundError, without_tracebacks
from efo.events import EndReason, EventReceived, Observer, PollAttempted, PollOperation, ignore_events
from efo.health import ActiveReadMode, SubscriptionState
from efo.kinesis.client import Correct, Sign
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.service_call import ServiceCaller
from efo.kinesis.shard_source import ShardEnd
from efo.kinesis.subscribe_call import whole_milliseconds
from efo.model import Position
from efo.protocol.denials import is_final
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.polling import GetIterator, Poll, Polling, RecordsPage, parse_iterator, parse_page
from efo.protocol.subscription import Deliver, Fail, Finish

MAX_RECORDS: Final = 10_000
"""The most records of a page (AWS: GetRecords, Limit)."""

ExplainMissing = Callable[[str, str, float], Awaitable[EfoError | None]]
"""Returns why an operation did not find a shard; None if it is listed. See `MissingShards.explain`."""


class ShardPolling:
    """Polls one shard after a position. A ShardSource.

    The position must not be LATEST: a failed first call would skip records (rule R4). `interval`: the most seconds
    between two calls for a shard that is current. `rng`: the source of jitter. `is_final`: whether an error ends it.
    `on_success`: called with each page.
    """

    def __init__(
        self,
        shard_id: str,
        position: Position,
        *,
        caller: PollCaller,
        explain_missing: ExplainMissing,
        rng: random.Random,
        interval: float,
        is_final: Callable[[EfoError], bool] = is_final,
        on_success: Callable[[], None] = lambda: None,
        observer: Observer = ignore_events,
    ) -> None:
        self.shard_id = shard_id
        self._is_final = is_final
        self._machine = Polling(position, rng.random, interval=interval, is_final=is_final)
        self._caller = caller
        self._explain_missing = explain_missing
        self._on_success = on_success
        self._observer = observer
        self._ready: deque[Deliver | Finish | Fail] = deque()
        self._last_event_at: float | None = None
        self._call = trio.CancelScope()
        self._is_wanted = False
        self._interrupted = False

    @property
    def position(self) -> Position:
        """The position after what was delivered."""
        return self._machine.position

    @property
    def state(self) -> SubscriptionState:
        """The state of the polling, in the words of a subscription."""
        return self._machine.state

    @property
    def read_mode(self) -> ActiveReadMode:
        """How the events are read now."""
        return "polling"

    @property
    def has_pending(self) -> bool:
        """Whether the reader, not Kinesis, is what is slow: nothing is asked for that it does not want."""
        return not self._is_wanted

    @property
    def pending_since(self) -> None:
        """None: what was not asked for does not arrive."""
        return None

    async def receive(self) -> SubscribeToShardEvent | ShardEnd | None:
        """Wait for the next page, as an event; None after `interrupt`. Raises the EfoError that retries cannot cure."""
        self._interrupted = False
        self._is_wanted = True
        try:
            while not self._ready:
                with trio.CancelScope() as self._call:
                    await self._step()
                if self._interrupted and not self._ready:
                    return None
        finally:
            self._is_wanted = False
        match self._ready.popleft():
            case Deliver(event=event, wire_bytes=wire_bytes):
                self._report(event, wire_bytes)
                return event
            case Finish(children=children):
                return ShardEnd(children)
            case Fail(error=error):
                raise error

    def interrupt(self) -> None:
        """Let a `receive` that waits return None. A call that is cancelled by this is made again."""
        self._interrupted = True
        self._call.cancel()

    def close(self, _reason: EndReason) -> None:
        """End the polling."""
        self.interrupt()

    async def _step(self) -> None:
        """Wait for the time of the next call, and make it."""
        await trio.sleep_until(self._machine.due)
        now = trio.current_time()
        call = self._machine.next_call(now)
        operation: PollOperation = "GetRecords" if isinstance(call, Poll) else "GetShardIterator"
        try:
            await self._make(call, now)
        except EfoError as error:
            failure = await self._explained(error, operation)
            self._attempted(operation, now, error, is_final=self._is_final(failure))
            self._ready += self._machine.failed(without_tracebacks(failure), trio.current_time())
        else:
            self._attempted(operation, now, None)

    async def _make(self, call: GetIterator | Poll, now: float) -> None:
        if isinstance(call, GetIterator):
            self._machine.started(await self._caller.get_iterator(self.shard_id, call.position), now)
        else:
            page, size = await self._caller.get_records(call.iterator, MAX_RECORDS)
            self._on_success()
            self._ready += self._machine.received(page, size, now)

    async def _explained(self, error: EfoError, operation: str) -> EfoError:
        """Return what a failure means: of a ResourceNotFoundException, whether the shard is gone."""
        if not isinstance(error, ResourceNotFoundError):
            return error
        try:
            found = await self._explain_missing(self.shard_id, operation, trio.current_time())
        except EfoError as failure:
            return failure
        return found or NotVisibleError(f"{self.shard_id} exists, but not for {operation}: {error}")

    def _attempted(
        self, operation: PollOperation, called_at: float, error: EfoError | None, *, is_final: bool = False
    ) -> None:
        duration = trio.current_time() - called_at
        error_type = error.error_type if error else None
        self._observer(PollAttempted(self.shard_id, operation, duration, error_type, str(error or ""), is_final))

    def _report(self, event: SubscribeToShardEvent, wire_bytes: int) -> None:
        now = trio.current_time()
        interval = None if self._last_event_at is None else now - self._last_event_at
        self._last_event_at = now
        behind = event.millis_behind_latest
        self._observer(EventReceived(self.shard_id, len(event.records), wire_bytes, behind, interval))


MAX_PAGE: Final = 24 * 1024 * 1024
"""The most bytes of a response to GetRecords: 10 MiB of data in base64, and 10,000 long partition keys."""
_MAX_ITERATOR: Final = 64 * 1024


class PollCaller:
    """Calls GetShardIterator and GetRecords for one stream, on efo's own HTTP/2 connections.

    `stream`: the stream's name. `stream_arn`: its ARN, which a stream of another account needs; None: by its name.
    `silence`: the most seconds without a byte of a response (rule R8).
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        sign: Sign,
        authority: str,
        scheme: str,
        stream: str,
        stream_arn: str | None,
        silence: float,
        correct: Correct | None = None,
    ) -> None:
        self._service = ServiceCaller(pool, sign=sign, authority=authority, scheme=scheme, correct=correct)
        self._of_stream = {"StreamName": stream} if stream_arn is None else {"StreamARN": stream_arn}
        self._of_arn = {} if stream_arn is None else {"StreamARN": stream_arn}
        self._silence = silence

    async def get_iterator(self, shard_id: str, position: Position) -> str:
        """Return an iterator at a position of a shard (AWS: GetShardIterator).

        Raises TransportError, ProtocolError, and ServiceError if the service rejects the call.
        """
        request: dict[str, object] = {**self._of_stream, "ShardId": shard_id, "ShardIteratorType": position.type.value}
        if position.sequence_number is not None:
            request["StartingSequenceNumber"] = position.sequence_number
        if position.timestamp is not None:
            request["Timestamp"] = whole_milliseconds(position.timestamp)
        body = msgspec.json.encode(request)
        response, _ = await self._service.fetch("GetShardIterator", body, limit=_MAX_ITERATOR, silence=self._silence)
        return parse_iterator(response)

    async def get_records(self, iterator: str, limit: int) -> tuple[RecordsPage, int]:
        """Return a page of up to `limit` records, and the size of the response in bytes (AWS: GetRecords).

        Raises TransportError, ProtocolError, and ServiceError if the service rejects the call.
        """
        body = msgspec.json.encode({**self._of_arn, "ShardIterator": iterator, "Limit": limit})
        response, _ = await self._service.fetch("GetRecords", body, limit=MAX_PAGE, silence=self._silence)
        return parse_page(response), len(response)
