"""Calls a handler until a batch_slice of a shard is settled: handled, held, skipped, or in the dead-letter sink.

`protocol.failure` decides what a failure leads to, this does it (rule R11).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import trio

from efo.consumer.shard_stream import ShardStream
from efo.errors import ConfigurationError, IsolateShardError
from efo.events import FailedCall, HandlerFailed, Observer, RecordDeadLettered, RecordSkipped
from efo.model import Record
from efo.protocol.batch_slice import BatchSlice
from efo.protocol.failure import Action, Decision, FailurePolicy, decide


class HandlerResult(Enum):
    """What a handler may return besides nothing, see `HOLD`."""

    HOLD = auto()


HOLD: Final = HandlerResult.HOLD
"""Returned by a handler: "taken, but not safe yet". The checkpoint stays where it is until a later batch or record of
the shard is done; then this one is too."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that its handler could not handle, for the dead-letter sink.

    `error`: what the handler raised last. `attempts`: how often it was called with this record alone.
    """

    stream: str
    shard_id: str
    record: Record
    error: Exception
    attempts: int


Call = Callable[[BatchSlice], Awaitable[HandlerResult | None]]
DeadLetterSink = Callable[[DeadLetter], Awaitable[None]]
"""Keeps a dead letter. When it returns, the record counts as done."""
OnError = FailurePolicy | Callable[[Exception], FailurePolicy]
"""One policy for all failures, or what tells it by the exception."""


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception
    action: Action
    attempts: int


class _Abandoned(Enum):
    """The batch_slice is not wanted any more: a seek or a drain came between two attempts."""

    ABANDONED = auto()


class FailureHandler:
    """Settles pieces of one shard, several at once if need be. `ack` takes those that are done."""

    def __init__(
        self,
        shard: ShardStream,
        call: Call,
        ack: Callable[[BatchSlice], None],
        *,
        failures: OnError,
        dead_letter: DeadLetterSink | None,
        random: Callable[[], float],
        observer: Observer,
    ) -> None:
        self.held: BatchSlice | None = None
        """The last batch_slice that the handler holds."""
        self._shard = shard
        self._call = call
        self._ack = ack
        self._failures = failures
        self._dead_letter = dead_letter
        self._random = random
        self._observer = observer

    async def process(self, batch_slice: BatchSlice, *, is_half: bool = False) -> None:
        """Settle a batch_slice, or give it up unacked when it is not wanted any more.

        Raises IsolateShardError, and what the handler raised, as the policy says.
        """
        match await self._persist(batch_slice, self._call, is_half=is_half):
            case None:
                self._ack(batch_slice)
                self.held = None
            case HandlerResult.HOLD:
                self.held = batch_slice
            case _Failed() as failed:
                await self._give_in(batch_slice, failed)
            case _Abandoned.ABANDONED:
                pass
            case other:
                raise ConfigurationError(
                    f"a handler returns None when it is done, or efo.HOLD; this one returned {type(other).__name__}"
                )

    async def flush(self, flush: Callable[[str], Awaitable[None]]) -> None:
        """Have what the handler holds made safe, then ack it. Raises as `process` does, but skips nothing."""
        if self.held is None:
            return

        async def call(_piece: BatchSlice) -> None:
            await flush(self._shard.shard_id)

        failed = await self._persist(self.held, call, as_one=True)
        if isinstance(failed, _Failed):
            raise self._stop(self.held, failed)
        if failed is None:
            self._ack(self.held)
            self.held = None

    async def _persist(
        self,
        batch_slice: BatchSlice,
        call: Call,
        *,
        name: FailedCall = "handler",
        is_half: bool = False,
        as_one: bool = False,
    ) -> HandlerResult | _Failed | _Abandoned | None:
        """Call, and try again as long as the policy says.

        `as_one`: the batch_slice is neither split nor skipped; where the policy says so the shard is stopped.
        """
        failures, failed_at = 0, 0.0
        while True:
            called_at = trio.current_time()
            try:
                return await call(batch_slice)
            except IsolateShardError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a handler raises is its failure
                now = trio.current_time()
                failures += 1
                failed_at = failed_at if failures > 1 else now
                decision = self._decide(error, failures, now - failed_at, batch_slice, is_half=is_half, as_one=as_one)
                self._report(batch_slice, failures, now - called_at, error, decision, name)
                if decision.action != "retry":
                    return _Failed(error, decision.action, failures)
            if not await self._shard.wait(batch_slice.batch, decision.delay):
                return _Abandoned.ABANDONED

    def _decide(
        self, error: Exception, failures: int, elapsed: float, batch_slice: BatchSlice, *, is_half: bool, as_one: bool
    ) -> Decision:
        policy = self._failures(error) if callable(self._failures) else self._failures
        decision = decide(
            policy,
            failures=failures,
            elapsed=elapsed,
            records=1 if as_one else len(batch_slice),
            is_half=is_half,
            random=self._random,
        )
        return Decision("stop_shard") if as_one and decision.action in ("skip", "dead_letter") else decision

    def _report(
        self,
        batch_slice: BatchSlice,
        attempt: int,
        duration: float,
        error: Exception,
        decision: Decision,
        name: FailedCall,
    ) -> None:
        self._observer(
            HandlerFailed(
                self._shard.shard_id,
                batch_slice.first.sequence_number,
                len(batch_slice),
                attempt,
                duration,
                _error_type(error),
                decision.action,
                decision.delay,
                name,
            )
        )

    async def _give_in(self, batch_slice: BatchSlice, failed: _Failed) -> None:
        """Do what the policy says when trying again is over."""
        told = (self._shard.shard_id, batch_slice.first.sequence_number, batch_slice.first.sub_sequence_number)
        match failed.action:
            case "split":
                for half in batch_slice.halves():
                    if self._shard.is_wanted(batch_slice.batch):
                        await self.process(half, is_half=True)
            case "skip":
                self._observer(RecordSkipped(*told, _error_type(failed.error)))
                self._set_aside(batch_slice)
            case "dead_letter":
                if await self._bury(batch_slice, failed):
                    self._observer(RecordDeadLettered(*told, _error_type(failed.error)))
                    self._set_aside(batch_slice)
            case _:
                raise self._stop(batch_slice, failed)

    def _set_aside(self, batch_slice: BatchSlice) -> None:
        """Count a record as done that the handler has not taken: behind what it holds it waits with that."""
        if self.held is None:
            self._ack(batch_slice)
        else:
            self.held = batch_slice

    async def _bury(self, batch_slice: BatchSlice, failed: _Failed) -> bool:
        """Give a record to the dead-letter sink; return whether it is there. It is never lost: else the shard stops."""
        if self._dead_letter is None:
            raise ConfigurationError('a policy says then="dead_letter", but there is no dead_letter sink: give one')
        sink = self._dead_letter
        letter = DeadLetter(self._shard.stream, self._shard.shard_id, batch_slice.first, failed.error, failed.attempts)

        async def call(_piece: BatchSlice) -> None:
            await sink(letter)

        outcome = await self._persist(batch_slice, call, name="dead_letter", as_one=True)
        if isinstance(outcome, _Failed):
            raise self._stop(batch_slice, outcome)
        return outcome is None

    def _stop(self, batch_slice: BatchSlice, failed: _Failed) -> Exception:
        """Return what to raise when the shard, or everything, is to stop."""
        if failed.action == "stop":
            return failed.error
        policy = self._failures(failed.error) if callable(self._failures) else self._failures
        error = IsolateShardError(
            f"{self._shard.shard_id}: handling failed with {_error_type(failed.error)} at sequence number "
            f"{batch_slice.first.sequence_number}, attempt {failed.attempts}",
            cooldown=policy.cooldown,
        )
        error.__cause__ = failed.error
        return error


def _error_type(error: Exception) -> str:
    return str(getattr(error, "error_type", type(error).__name__))
