"""Reads a shard with a child process: the life of a record processor, in KCL's multi-language protocol.

    initialize > processRecords, again and again > shardEnded
                                                 > shutdownRequested > leaseLost      a drain, or a hand-off
                                                 > leaseLost                          another worker has the lease

One message at a time. In each but the first and `leaseLost`, the child may checkpoint, which is answered when it is
saved. A lease keeps its child for as long as this worker holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from math import inf
from typing import Final, Literal

import structlog
import trio

from efo.consumer.shard_stream import ShardStream
from efo.errors import IsolateShardError, LeaseError
from efo.model import Batch, Record
from efo.protocol.kcl_checkpoints import INVALID_STATE, SHUTDOWN, KclCheckpointError, Permitted, refusal_of
from efo_service.multilang import messages
from efo_service.multilang.child import Child, ChildError, open_child
from efo_service.multilang.messages import CheckpointRequest, Protocol

LEASE_LOST_SECONDS: Final = 5.0
"""How long a child may finish what it does after its lease is lost. Another worker reads the shard already."""
OVERDUE_SECONDS: Final = 600.0
"""When records without a checkpoint are reported. KCL's processors checkpoint once a minute."""

OnChildFailure = Literal["stop", "isolate"]
"""What the failure of a child process does: end the worker, as KCL's daemon does, or give up its shard for a while."""


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """How shards are processed. `command`: the executable and its arguments.

    `timeout`: seconds for each answer of a child; None: no limit. `max_records`: the most records of one message.
    `empty_after`: after so many seconds without records, the child gets an empty message; None: never.
    """

    command: tuple[str, ...]
    timeout: float | None = None
    max_records: int | None = None
    empty_after: float | None = None
    protocol: Protocol = 2
    on_failure: OnChildFailure = "stop"


Open = Callable[[Sequence[str], str], AbstractAsyncContextManager[Child]]


class ChildReader:
    """Reads shards by child processes, one for each: `await consumer.run(ChildReader(settings, stop))`.

    `stop`: asks the worker to drain; called after the first failure of a child, if such a failure is to end it.
    `failure`: that failure. `children`: those that run, by their shards.
    """

    def __init__(self, settings: ChildSettings, stop: Callable[[], object], open_child: Open = open_child) -> None:
        self.failure: ChildError | None = None
        self.children: dict[str, Child] = {}
        self._settings = settings
        self._stop = stop
        self._open = open_child

    async def __call__(self, shard: ShardStream) -> None:
        """Read one shard. Raises IsolateShardError if its child fails: what it did not checkpoint is read again."""
        try:
            async with self._open(self._settings.command, shard.shard_id) as child:
                self.children[shard.shard_id] = child
                await _Processor(shard, child, self._settings).run()
        except ChildError as error:
            if self._settings.on_failure == "stop":
                self.failure = self.failure or error
                self._stop()
            raise IsolateShardError(str(error)) from error
        finally:
            self.children.pop(shard.shard_id, None)


class _Processor:
    """One shard and its child.

    `_pending`: the action that the child has not answered yet. `_asked`: its request that has no answer yet.
    """

    def __init__(self, shard: ShardStream, child: Child, settings: ChildSettings) -> None:
        self._shard = shard
        self._child = child
        self._settings = settings
        self._permitted = Permitted.after(shard.checkpoint)
        self._pending: str | None = None
        self._asked: CheckpointRequest | None = None
        self._is_initialized = False
        shard.overdue_after = OVERDUE_SECONDS

    async def run(self) -> None:
        """Read the shard to its end, a drain, or the loss of its lease. Raises ChildError."""
        shard = self._shard
        try:
            message = messages.initialize(shard.shard_id, shard.checkpoint)
            await self._ask(messages.INITIALIZE, message, may_checkpoint=False)
            self._is_initialized = True
            while await self._process_next():
                pass
            if shard.is_finished:
                await self._ask(*messages.last_action(messages.SHARD_ENDED, self._settings.protocol))
                self._check_end()
            else:
                await self._give_up()
        except trio.Cancelled:
            if shard.is_lost and self._is_initialized and self._child.is_intact:
                with trio.move_on_after(LEASE_LOST_SECONDS, shield=True), suppress(ChildError):
                    await self._finish_pending()
                    await self._lose_lease()
            raise

    async def _give_up(self) -> None:
        """Let the child finish before the lease is given up. If it fails, as old clients may, that changes nothing."""
        try:
            await self._ask(messages.SHUTDOWN_REQUESTED, messages.shutdown_requested())
            await self._lose_lease()
        except ChildError as error:
            structlog.get_logger().warning("child_failed_at_its_end", shard_id=self._shard.shard_id, message=str(error))

    async def _process_next(self) -> bool:
        """Process the next batch; return whether there was one. No variable has it while the next one is awaited."""
        wait = self._settings.empty_after
        with trio.CancelScope(deadline=inf if wait is None else trio.current_time() + wait) as waiting:
            self._child.ended = waiting.cancel
            if self._child.has_ended:
                raise await self._child.failure("closed its stdout")
            batch = await anext(self._shard, None)
        if waiting.cancelled_caught:
            if self._child.has_ended:
                raise await self._child.failure("closed its stdout")
            await self._give((), self._shard.millis_behind_latest or 0)
            return True
        if batch is None:
            return False
        with self._shard.process_span(batch):
            for part in self._parts(batch):
                if not self._shard.is_wanted(batch):
                    break
                self._permitted.give(part[-1])
                await self._give(part, batch.millis_behind_latest)
        return True

    def _parts(self, batch: Batch) -> Iterator[Sequence[Record]]:
        records, most = batch.records, self._settings.max_records or len(batch)
        return (records[start : start + most] for start in range(0, len(records), most))

    async def _give(self, records: Sequence[Record], millis_behind_latest: int) -> None:
        await self._ask(messages.PROCESS_RECORDS, messages.process_records(records, millis_behind_latest))

    async def _lose_lease(self) -> None:
        action, message = messages.last_action(messages.LEASE_LOST, self._settings.protocol)
        await self._ask(action, message, may_checkpoint=False)

    def _check_end(self) -> None:
        if self._shard.has_unacked:
            raise ChildError(
                f"{self._shard.shard_id}: its child process did not checkpoint at the end of the shard: call checkpoint"
                " in shard_ended, or the shard's children never start"
            )

    async def _ask(self, action: str, message: bytes, *, may_checkpoint: bool = True) -> None:
        """Send a message, and wait until the child has done it. Raises ChildError."""
        self._pending = action
        with self._patience(action):
            await self._child.send(message)
        await self._answered(action, may_checkpoint=may_checkpoint)

    async def _answered(self, action: str, *, may_checkpoint: bool = True) -> None:
        while True:
            with self._patience(action):
                received = await self._child.receive()
            if isinstance(received, CheckpointRequest):
                self._asked = received
                await self._answer(received, await self._checkpoint(received) if may_checkpoint else INVALID_STATE)
            elif received.response_for == action:
                self._pending = None
                return
            else:
                raise ChildError(
                    f"{self._shard.shard_id}: its child process answered another action than {action}, which it was"
                    " asked: it must answer one after the other"
                )

    async def _answer(self, request: CheckpointRequest, error: str | None) -> None:
        await self._child.send(messages.checkpointed(request, error))
        self._asked = None

    async def _finish_pending(self) -> None:
        """Let the child finish what it does, without the lease."""
        if self._asked is not None:
            await self._answer(self._asked, SHUTDOWN)
        if self._pending is not None:
            await self._answered(self._pending)

    async def _checkpoint(self, request: CheckpointRequest) -> str | None:
        """Save a checkpoint; return the name of KCL's exception if it is refused."""
        try:
            checkpoint = self._permitted.resolve(request.sequence_number, request.sub_sequence_number)
        except KclCheckpointError as error:
            return error.name
        try:
            if not checkpoint.is_sentinel:  # that of a shard of which nothing was read
                self._shard.ack_to(checkpoint)
            await self._shard.save()
        except LeaseError as error:
            return refusal_of(error)
        return None

    def _patience(self, action: str) -> _Patience:
        return _Patience(self._settings.timeout, self._shard.shard_id, action)


class _Patience:
    """Limits how long a child may take. Raises ChildError after that."""

    def __init__(self, seconds: float | None, shard_id: str, action: str) -> None:
        self._seconds = seconds
        self._shard_id = shard_id
        self._action = action
        self._scope = trio.CancelScope()

    def __enter__(self) -> None:
        if self._seconds is not None:
            self._scope.deadline = trio.current_time() + self._seconds
        self._scope.__enter__()

    def __exit__(self, *details: object) -> bool | None:
        caught = self._scope.__exit__(*details)  # type: ignore[arg-type]
        if self._scope.cancelled_caught:
            raise ChildError(
                f"{self._shard_id}: its child process did not answer {self._action} within timeoutInSeconds"
                f" = {self._seconds:g}"
            )
        return caught
