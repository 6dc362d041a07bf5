"""Calls a handler until a batch slice is done: processed, held, skipped, or dead-lettered.

`protocol.failure` decides what happens after a failure. This module does it (rule R11).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import inf
from typing import Final

import trio

from efo.checks import check_type, shown
from efo.consumer.handlers.misuse import misuse_of_efo
from efo.consumer.shard_stream import ShardStream
from efo.errors import (
    ConfigurationError,
    DeserializationError,
    HandlerError,
    IsolateShardError,
    RecordTooOldError,
    class_name_of,
    error_type_of,
)
from efo.events import FailedCall, HandlerFailed, Observer, RecordDeadLettered, RecordSkipped
from efo.exception_groups import leaf_exceptions
from efo.model import Batch, Record, checkpoint_of
from efo.protocol.failure import DeadLetter, Decision, FailureAction, FailurePolicy, OnError, decide, strictest
from efo.protocol.per_key_order import BatchSlice
from efo.protocol.progress import index_of


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """What a handler may return instead of None, see `HOLD`. `first`: the first record that is not done."""

    first: Record | None = None

    def since(self, record: Record) -> HandlerResult:
        """Return a result that says: all records of the shard before this one are done, and this one is not.

        For handlers that hold records for a while, such as those of a window that is open. If the record came with this
        call, exactly those before it are done; if it came earlier, those of the batches before its batch. Raises
        ConfigurationError.
        """
        check_type("record", record, Record, "the first Record that is not done")
        return HandlerResult(record)


HOLD: Final = HandlerResult()
"""Returned by a handler that has taken a batch or record, but has not stored it yet. The checkpoint waits until a later
batch or record of the shard is done; then this one is done too. `HOLD.since(record)`: all before `record` are done."""


@dataclass(frozen=True, slots=True)
class PartDone:
    """What a handler of efo returns that has processed only the first records of a batch: it is called with the others.

    `records`: how many. `result`: what the application's function returned for them.
    """

    records: int
    result: HandlerResult | None


Call = Callable[[BatchSlice], Awaitable[HandlerResult | PartDone | None]]


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception
    policy: FailurePolicy
    action: FailureAction
    attempts: int


class _Abandoned(Enum):
    """The slice is no longer wanted: a seek or a drain came between two attempts."""

    ABANDONED = auto()


class FailureHandler:
    """Processes the batch slices of one shard by `call`, several at once if need be. `ack` acks those that are done."""

    def __init__(
        self,
        shard: ShardStream,
        call: Call,
        ack: Callable[[BatchSlice], object],
        *,
        on_error: OnError,
        random: Callable[[], float],
        observer: Observer | None,
    ) -> None:
        self.held: BatchSlice | None = None
        """The last slice that the handler holds."""
        self.is_abandoned = False
        """Whether a slice was left unprocessed since a seek or a drain came. Later ones must not be acked through."""
        self._shard = shard
        self._call = call
        self._ack = ack
        self._on_error = on_error
        self._random = random
        self._observer = shard.observer if observer is None else observer
        self._now = trio.lowlevel.current_clock().current_time  # a third of the calls of trio.current_time
        if shard.ages is not None and shard.ages.max_age is not None:
            self._too_old = RecordTooOldError(
                f"the record is older than max_record_age_seconds={shard.ages.max_age:g} s"
            )
            self._policy_of_old = self._policy_for(self._too_old)
            if self._policy_of_old.then == "dead_letter":
                shard.ages.dead_letter = self._dead_letter_old

    async def process(self, batch_slice: BatchSlice, *, is_half: bool = False) -> None:
        """Process a slice, or leave it unacked if it is no longer wanted.

        Raises IsolateShardError, HandlerError, and the handler's exception, as the policy decides.
        """
        while True:
            outcome = await self._call_until_decided(batch_slice, self._call, is_half=is_half)
            if not isinstance(outcome, PartDone):
                await self._end(batch_slice, outcome)
                return
            done, batch_slice = batch_slice.split(outcome.records)
            await self._end(done, outcome.result)
            if not self._shard.is_wanted(batch_slice.batch):
                self.is_abandoned = True
                return

    async def _end(self, batch_slice: BatchSlice, outcome: HandlerResult | _Failed | _Abandoned | None) -> None:
        match outcome:
            case None:
                self._ack(batch_slice)
                self.held = None
            case HandlerResult() as held:
                if held.first is not None:
                    self._ack_before(held.first, batch_slice)
                self.held = batch_slice
            case _Failed() as failed:
                await self._carry_out(batch_slice, failed)
            case _Abandoned.ABANDONED:
                self.is_abandoned = True
            case other:
                raise _unexpected("handler", other, "None when it is done, or efo.HOLD")

    async def flush(self, flush: Callable[[str], Awaitable[object]]) -> None:
        """Let the application store what its handler holds, then ack it. Raises as `process` does; skips nothing."""
        if self.held is None:
            return

        async def call(_slice: BatchSlice) -> None:
            if (returned := await flush(self._shard.shard_id)) is not None:
                raise _unexpected("flush function", returned, "None when it is done")

        failed = await self._call_until_decided(self.held, call, is_indivisible=True)
        if isinstance(failed, _Failed):
            raise self._stop(self.held, failed)
        if failed is None:
            self._ack(self.held)
            self.held = None

    async def _call_until_decided(
        self,
        batch_slice: BatchSlice,
        call: Call,
        *,
        name: FailedCall = "handler",
        is_half: bool = False,
        is_indivisible: bool = False,
    ) -> HandlerResult | PartDone | _Failed | _Abandoned | None:
        """Call, and retry as the policy says.

        `is_indivisible`: the slice is neither split nor skipped. If the policy says so, the shard is isolated instead.
        """
        failures, failed_at = 0, 0.0
        while True:
            called_at = self._now()
            try:
                return await call(batch_slice)
            except Exception as error:  # noqa: BLE001 - what no policy may change is raised again
                self._raise_unless_for_policy(error, batch_slice, name)
                now = self._now()
                failures += 1
                failed_at = failed_at if failures > 1 else now
                policy = self._policy_for(error)
                decision = self._decide(
                    policy, failures, now - failed_at, batch_slice, is_half=is_half, is_indivisible=is_indivisible
                )
                self._report(batch_slice, failures, now - called_at, error, decision, name)
                if decision.action != "retry":
                    return _Failed(error, policy, decision.action, failures)
            if not await self._shard.wait(batch_slice.batch, decision.delay):
                return _Abandoned.ABANDONED

    @staticmethod
    def _raise_unless_for_policy(error: Exception, batch_slice: BatchSlice, name: FailedCall) -> None:
        """Raise what no policy may change: a mistake in the function first, then its wish to isolate the shard."""
        if isinstance(error, HandlerError):
            raise error
        if problem := misuse_of_efo(error, batch_slice.batch):
            raise HandlerError(f"the {name.replace('_', '-')} function does not fit efo: {problem}") from error
        for leaf in leaf_exceptions(error):
            if isinstance(leaf, IsolateShardError):
                raise leaf

    def _decide(
        self,
        policy: FailurePolicy,
        failures: int,
        elapsed: float,
        batch_slice: BatchSlice,
        *,
        is_half: bool,
        is_indivisible: bool,
    ) -> Decision:
        decision = decide(
            policy,
            failures=failures,
            elapsed=elapsed,
            records=1 if is_indivisible else len(batch_slice),
            is_half=is_half,
            random=self._random,
        )
        return Decision("isolate") if is_indivisible and decision.action in ("skip", "dead_letter") else decision

    def _policy_for(self, error: Exception) -> FailurePolicy:
        """Return the policy for an exception; for a group, the strictest of those for its exceptions."""
        if isinstance(self._on_error, FailurePolicy):
            policy = self._on_error
        else:
            policy = strictest(self._ask(self._on_error, leaf) for leaf in leaf_exceptions(error))
        # The same data fails each time: retries would only delay the shard.
        return replace(policy, attempts=1, retry_for=inf) if isinstance(error, DeserializationError) else policy

    @staticmethod
    def _ask(on_error: Callable[[Exception], FailurePolicy], error: Exception) -> FailurePolicy:
        try:
            policy = on_error(error)
        except Exception as failure:
            raise HandlerError(
                f"on_error raised {class_name_of(failure)} for {class_name_of(error)}, instead of returning a "
                f"FailurePolicy{f': {failure}' if isinstance(failure, ConfigurationError) else ''}"
            ) from failure
        if not isinstance(policy, FailurePolicy):
            raise HandlerError(
                f"on_error returned {shown(policy)} for {class_name_of(error)}: expected a FailurePolicy"
            )
        return policy

    def _report(
        self,
        batch_slice: BatchSlice,
        attempt: int,
        duration: float,
        error: Exception,
        decision: Decision,
        name: FailedCall,
    ) -> None:
        if self._shard.is_traced:
            from efo.telemetry.spans import record_failure  # noqa: PLC0415 - OpenTelemetry, only if it is used

            record_failure(error_type_of(error), attempt, decision.action)
        self._observer(
            HandlerFailed(
                self._shard.shard_id,
                batch_slice.first.sequence_number,
                len(batch_slice),
                attempt,
                duration,
                error_type_of(error),
                decision.action,
                decision.delay,
                name,
            )
        )

    async def _carry_out(self, batch_slice: BatchSlice, failed: _Failed) -> None:
        """Do what the policy decided after the last attempt."""
        match failed.action:
            case "split":
                for half in batch_slice.halves():
                    if self._shard.is_wanted(batch_slice.batch):
                        await self.process(half, is_half=True)
                    else:
                        self.is_abandoned = True
            case "skip":
                self._observer(RecordSkipped(*self._identity(batch_slice), error_type_of(failed.error)))
                self._ack_unprocessed(batch_slice)
            case "dead_letter":
                if await self._dead_letter(batch_slice, failed):
                    self._ack_unprocessed(batch_slice)
                else:
                    self.is_abandoned = True
            case _:
                raise self._stop(batch_slice, failed)

    def _ack_before(self, first: Record, batch_slice: BatchSlice) -> None:
        """Ack what came before a record, which is in this slice or was held before it."""
        if checkpoint_of(first) > checkpoint_of(batch_slice.batch.records[batch_slice.indexes[-1]]):
            raise HandlerError("HOLD.since(record): the record is after those that the handler was called with")
        if not self._shard.is_current(batch_slice.batch):
            return
        records = batch_slice.batch.records
        if index := index_of(records, first):
            self._shard.ack_to(checkpoint_of(records[index - 1]))
        else:
            self._shard.ack_to(checkpoint_of(first), inclusive=False)

    def _ack_unprocessed(self, batch_slice: BatchSlice) -> None:
        """Count a record as done that the handler has not processed. If the handler holds others, it waits for them."""
        if self.held is None:
            self._ack(batch_slice)
        else:
            self.held = batch_slice

    async def _dead_letter_old(self, batch: Batch) -> bool:
        """Pass records that are too old to the dead-letter sink; return whether all are stored. See `AgeLimits`."""
        failed = _Failed(self._too_old, self._policy_of_old, "dead_letter", attempts=0)
        for index in range(len(batch)):
            one = BatchSlice(batch, (index,))
            if not await self._dead_letter(one, failed):
                return False
        return True

    async def _dead_letter(self, batch_slice: BatchSlice, failed: _Failed) -> bool:
        """Pass a record to the dead-letter sink; return whether it was stored. Raises if it cannot be stored."""
        sink: Callable[[DeadLetter], Awaitable[object]] | None = failed.policy.dead_letter
        assert sink is not None  # noqa: S101 - a policy that dead-letters has a sink
        dead_letter = DeadLetter(
            self._shard.stream, self._shard.shard_id, batch_slice.first, failed.error, failed.attempts
        )

        async def call(_slice: BatchSlice) -> None:
            if (returned := await sink(dead_letter)) is not None:
                raise _unexpected("dead-letter sink", returned, "None when the record is stored")

        outcome = await self._call_until_decided(batch_slice, call, name="dead_letter", is_indivisible=True)
        if isinstance(outcome, _Failed):
            raise self._stop(batch_slice, outcome)
        if outcome is not None:
            return False
        self._observer(RecordDeadLettered(*self._identity(batch_slice), error_type_of(failed.error)))
        return True

    def _identity(self, batch_slice: BatchSlice) -> tuple[str, str, int]:
        record = batch_slice.first
        return self._shard.shard_id, record.sequence_number, record.sub_sequence_number

    def _stop(self, batch_slice: BatchSlice, failed: _Failed) -> Exception:
        """Return what to raise if the shard, or everything, is to stop."""
        if failed.action == "stop":
            return failed.error
        error = IsolateShardError(
            f"{self._shard.shard_id}: the handler failed with {error_type_of(failed.error)} at sequence number "
            f"{batch_slice.first.sequence_number}, attempt {failed.attempts}",
            cooldown=failed.policy.cooldown,
            record=str(checkpoint_of(batch_slice.first)),
        )
        error.__cause__ = failed.error
        return error


def _unexpected(function: str, returned: object, expected: str) -> HandlerError:
    """Return the error for a function that returned something: perhaps a coroutine that nobody awaits."""
    return HandlerError(f"the {function} returned {type(returned).__name__}: expected {expected}")
