"""`efo.ExactlyOnceHandler`: an application keeps the position of a shard in the transaction that stores its records.

Then each record is in its database exactly once (rule R12): what was stored and the position are one commit, and the
position wins at the start. A worker that lost its lease without noticing cannot store anything: its positions are old.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import trio

from efo.checks import check_async, shown
from efo.consumer.handlers.handler import Handler
from efo.consumer.shard_stream import ShardStream
from efo.errors import HandlerError, IsolateShardError, PositionRefusedError, error_type_of
from efo.events import Observer
from efo.model import Batch, Checkpoint, checkpoint_of, is_decimal
from efo.protocol.failure import FailurePolicy, OnError, decide
from efo.protocol.lazy_batch import records_of

MAX_REFUSALS: Final = 3
"""How often the position of a batch may be refused although the database has none that is newer."""


@dataclass(frozen=True, slots=True)
class PositionMove:
    """What a transaction does to the position of a shard: from `before`, None if there is none yet, to `after`.

    Positions are texts. `UPDATE ... SET position = after WHERE position = before`, or an INSERT if `before` is None.
    """

    stream: str
    shard_id: str
    before: str | None
    after: str

    def check(self, rows: int) -> None:
        """Raise PositionRefusedError unless one row was changed: call it within the transaction, which then fails."""
        if rows != 1:
            raise PositionRefusedError(
                f"{self.shard_id}: the position in the database is not {self.before}, but another worker's: nothing "
                "was stored"
            )


PositionHandler = Callable[[Batch, PositionMove], Awaitable[None]]
"""Stores the records of a batch and moves the position, in one transaction."""
LoadPosition = Callable[[str, str], Awaitable[str | None]]
"""Returns the position of a shard by the names of its stream and its id; None if there is none."""


class ExactlyOnce:
    """What the handlers of all surfaces do: it is the first base of each, before its Handler."""

    _batch_parameters: ClassVar[tuple[str, ...]] = ("batch", "move")
    _load: Callable[[str, str], Awaitable[object]]
    _on_error: OnError
    _rng: random.Random

    async def __call__(self, shard: ShardStream) -> None:
        """Read a shard from its position on. Raises what the failure policy does not resolve."""
        stored = await self._first_position(shard)
        if stored is not None and stored != shard.checkpoint:
            shard.seek(stored)
        own: Any = copy(self)  # of this shard
        own._handler = _Stores(self, shard, stored).handle  # noqa: SLF001 - it is another Handler
        await Handler.__call__(own, shard)

    async def _first_position(self, shard: ShardStream) -> Checkpoint | None:
        """Return the position of a shard. If the database fails, the failure policy says what happens."""
        failures, began = 0, trio.current_time()
        while True:
            try:
                return await self._position(shard)
            except HandlerError:
                raise
            except Exception as error:
                failures += 1
                policy = self._on_error if isinstance(self._on_error, FailurePolicy) else self._on_error(error)
                elapsed = trio.current_time() - began
                decision = decide(
                    policy, failures=failures, elapsed=elapsed, records=1, is_half=False, random=self._rng.random
                )
                if decision.action == "stop":
                    raise
                if decision.action != "retry":
                    text = f"{shard.shard_id}: its position could not be loaded: {error_type_of(error)}"
                    raise IsolateShardError(text, cooldown=policy.cooldown) from error
            await trio.sleep(decision.delay)

    async def _position(self, shard: ShardStream) -> Checkpoint | None:
        found = await self._load(shard.stream, shard.shard_id)
        return None if found is None else parse_position(found, shard.shard_id)


def parse_position(text: object, shard_id: str) -> Checkpoint:
    """Return the checkpoint that a position says. Raises HandlerError: what is not of efo must not be read past."""
    number, _, sub = text.partition("/") if isinstance(text, str) else ("", "", "")
    if not is_decimal(number) or (sub and not is_decimal(sub)):
        raise HandlerError(f"{shard_id}: load_position returned {shown(text)}: expected `after` of a move")
    return Checkpoint(number, int(sub or 0))


class _Stores:
    """The calls of one shard. `_stored`: the position in the database; not known after a call that failed."""

    def __init__(self, handler: ExactlyOnce, shard: ShardStream, stored: Checkpoint | None) -> None:
        self._owner = handler
        self._call: Callable[[Batch, PositionMove], Awaitable[object]] = handler._handler  # type: ignore[attr-defined] # noqa: SLF001
        self._shard = shard
        self._stored = stored
        self._is_known = True

    async def handle(self, batch: Batch) -> None:
        """Store a batch, or what of it is not stored yet."""
        for _ in range(MAX_REFUSALS):
            if not self._is_known:
                self._stored = await self._owner._position(self._shard)  # noqa: SLF001 - it is its own
                self._is_known = True
            rest = self._not_stored(batch)
            if not len(rest):
                return
            try:
                await self._store(rest)
            except PositionRefusedError:
                continue  # another worker was faster, or an earlier attempt has succeeded
            return
        raise IsolateShardError(
            f"{self._shard.shard_id}: its position in the database was refused {MAX_REFUSALS} times"
        )

    async def _store(self, batch: Batch) -> None:
        before, after = self._stored, checkpoint_of(records_of(batch)[-1])
        move = PositionMove(batch.stream, batch.shard_id, None if before is None else str(before), str(after))
        self._is_known = False  # until it has returned: a commit whose answer was lost may have succeeded
        if (returned := await self._call(batch, move)) is not None:
            raise HandlerError(f"the handler returned {type(returned).__name__}: expected None when it has stored all")
        self._stored, self._is_known = after, True

    def _not_stored(self, batch: Batch) -> Batch:
        stored = self._stored
        if stored is None or checkpoint_of(records_of(batch)[0]) > stored:
            return batch
        return replace(batch, records=tuple(record for record in batch.records if checkpoint_of(record) > stored))


class ExactlyOnceHandler(ExactlyOnce, Handler):
    """Reads shards into a database that keeps their positions: `await consumer.run(ExactlyOnceHandler(store, load))`.

    `handler`: an async function of a batch and a `PositionMove`, or `efo.batched(...)` of one. In one transaction it
    stores the records and moves the position, and calls `move.check` with the number of rows that it has moved.
    `load_position`: an async function of a stream's name and a shard's id that returns the position, None if there is
    none. It is called before a shard is read, which then continues there, whatever its checkpoint says; and after a
    call that failed, since a commit whose answer was lost may have succeeded.

    `on_error`, `observer`: as for `Handler`. A record that is skipped or dead-lettered is passed by the position of the
    next one that is stored. Raises ConfigurationError.
    """

    def __init__(
        self,
        handler: PositionHandler,
        load_position: LoadPosition,
        *,
        on_error: OnError | None = None,
        observer: Observer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        check_async(load_position, "load_position", "stream", "shard_id")
        Handler.__init__(self, handler, on_error=on_error, observer=observer, rng=rng)  # type: ignore[arg-type] # _batch_parameters
        self._load = load_position
