"""Record processors in the manner of KCL: a class whose methods are called in the life of one shard."""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

from efo.checks import check_callable, is_async, shown
from efo.consumer.handlers.failure_handler import FailureHandler
from efo.consumer.handlers.kcl_classes import KclClassProcessor, package_of
from efo.consumer.in_flight import record_index
from efo.consumer.shard_stream import ShardStream
from efo.errors import ConfigurationError, HandlerError
from efo.events import Observer
from efo.model import Batch, Checkpoint, Record
from efo.protocol.failure import FailurePolicy, OnError
from efo.protocol.per_key_order import BatchSlice

LEASE_LOST_TIMEOUT: Final = 2.0
"""Seconds for `lease_lost`: another worker reads the shard already."""


class Checkpointer:
    """Moves the checkpoint of one shard, as KCL's checkpointer does.

    It is saved with the next renewal of the lease (`ConsumerSettings.checkpoint_seconds`), and when the shard ends or
    the worker stops. So unlike KCL's, a call costs nothing and never fails.
    """

    def __init__(self, shard: ShardStream, post: Callable[..., object] | None = None) -> None:
        self._shard = shard
        self._post = post or _call
        self._done: BatchSlice | None = None

    def _passed(self, part: BatchSlice | None) -> BatchSlice | None:
        """Note which records were passed to the processor last; return those before. efo calls it."""
        before, self._done = self._done, part
        return before

    def checkpoint(self, record: Record | None = None) -> None:
        """Checkpoint everything passed to the processor so far; or up to and including a record of the current batch.

        Raises ConfigurationError for a record that is not one of the current batch.
        """
        if self._done is None:
            if record is not None:
                raise ConfigurationError(f"{self._shard.shard_id}: no record has been passed to the processor yet")
            return
        batch = self._done.batch
        index = self._done.indexes[-1] if record is None else record_index(batch, record)
        if index > self._done.indexes[-1]:
            raise ConfigurationError(f"{self._shard.shard_id}: that record was not passed to the processor yet")
        if record is None:
            self._done = None  # no more is needed, and idle shards would hold much memory
        self._post(self._shard.ack_through, batch, index)


def _call(function: Callable[..., object], *args: object) -> None:
    function(*args)


class RecordProcessor:
    """Processes the records of one shard. Derive a class from it, and pass the class to `ProcessorReader`.

    The methods are KCL's. `process_records` is required. The others do by default what KCL's examples do.
    """

    async def initialize(self, shard_id: str, checkpoint: Checkpoint) -> None:
        """Begin with a shard, after this checkpoint."""

    async def process_records(self, batch: Batch, checkpointer: Checkpointer) -> None:
        """Process a batch of at least one record. Checkpoint when the records are done, now or later."""
        raise NotImplementedError

    async def lease_lost(self) -> None:
        """Clean up: another worker reads the shard now. Nothing can be checkpointed any more."""

    async def shard_ended(self, checkpointer: Checkpointer) -> None:
        """Finish a shard that has no more records. It must checkpoint, or the shard's children would never start."""
        checkpointer.checkpoint()

    async def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Finish before the shard is released: in a drain, or because another worker asked for the lease."""
        checkpointer.checkpoint()


class ProcessorReader:
    """Reads shards by record processors: `await consumer.run(ProcessorReader(BillingProcessor))`.

    `factory`: the class, or a function, that makes a processor for each shard. Classes of amazon_kclpy and kcl-rs are
    taken as they are: their methods run in threads. `on_error`: what happens when `process_records` raises, as for
    `Handler`; by default everything stops (rule R11). KCL goes on with the next records instead, which loses those that
    failed. An exception of any other method stops everything. `observer`: as for `Handler`.

    Raises ConfigurationError.
    """

    processor_type: type = RecordProcessor
    are_async = True
    takes_kcl_classes = True
    surface = "efo"  # where the methods run

    def __init__(
        self,
        factory: Callable[[], Any],
        *,
        on_error: OnError | None = None,
        observer: Observer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if isinstance(factory, type):
            self._check(factory)
        elif isinstance(factory, RecordProcessor):
            raise ConfigurationError("factory is a RecordProcessor: pass its class, since each shard has its own")
        else:
            check_callable("factory", factory, "a class, or a function that returns a record processor")
        on_error = FailurePolicy() if on_error is None else on_error
        if not isinstance(on_error, FailurePolicy):
            expected = "a FailurePolicy, or a function that returns one for an exception"
            check_callable("on_error", on_error, expected, "exception")
        self._factory = factory
        self._on_error = on_error
        self._observer = observer
        self._rng = rng or random.Random()  # noqa: S311 - jitter is no secret

    async def __call__(self, shard: ShardStream) -> None:
        """Read one shard. Raises what the processor raises."""
        processor = await self._made(shard)
        checkpointer = self.checkpointer(shard)
        await self.bind(processor.initialize)(shard.shard_id, shard.checkpoint)
        try:
            await self._process(shard, processor, checkpointer)
        except trio.Cancelled:
            if shard.is_lost:
                with trio.move_on_after(LEASE_LOST_TIMEOUT, shield=True):
                    await self.bind(processor.lease_lost)()
            raise
        if shard.is_finished:
            await self.bind(processor.shard_ended)(checkpointer)
        else:
            await self.bind(processor.shutdown_requested)(checkpointer)

    # A surface calls the processor's methods elsewhere.

    def bind(self, method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Return an async function for trio that calls this method of a processor."""
        return method

    def checkpointer(self, shard: ShardStream) -> Checkpointer:
        """Return the checkpointer of a shard."""
        return Checkpointer(shard)

    async def make(self) -> Any:
        """Make a processor."""
        return self._factory()

    async def _made(self, shard: ShardStream) -> Any:
        processor = await self.make()
        if self.takes_kcl_classes and (package := package_of(type(processor))) is not None:
            return KclClassProcessor(processor, package, shard)
        if not isinstance(processor, self.processor_type):
            raise HandlerError(f"the factory returned {shown(processor)}: expected an {self._name}")
        self._check(type(processor))
        return processor

    @property
    def _name(self) -> str:
        # Of the surface that exports it: efo, efo.aio or efo.sync.
        module = self.processor_type.__module__
        package = next((one for one in ("efo.aio", "efo.sync") if module.startswith(f"{one}.")), "efo")
        return f"{package}.RecordProcessor"

    def _check(self, kind: type) -> None:
        if self.takes_kcl_classes and package_of(kind) is not None:
            return
        if not issubclass(kind, self.processor_type):
            raise ConfigurationError(f"factory {kind.__qualname__} is a class: expected one derived from {self._name}")
        if kind.process_records is self.processor_type.process_records:  # type: ignore[attr-defined]
            raise ConfigurationError(f"{kind.__qualname__} has no process_records: define it")
        for name in ("initialize", "process_records", "lease_lost", "shard_ended", "shutdown_requested"):
            method = getattr(kind, name)
            if is_async(method) != self.are_async:
                wanted = "write `async def`" if self.are_async else "write `def`, not `async def`"
                raise ConfigurationError(f"{kind.__qualname__}.{name}: {wanted} for an {self._name}")
            if len(inspect.signature(method).parameters) != len(_PARAMETERS[name]) + 1:
                raise ConfigurationError(
                    f"{kind.__qualname__}.{name}{inspect.signature(method)}: expected ({', '.join(_PARAMETERS[name])})"
                )

    async def _process(self, shard: ShardStream, processor: Any, checkpointer: Checkpointer) -> None:
        process_records = self.bind(processor.process_records)

        async def call(part: BatchSlice) -> None:
            before = checkpointer._passed(part)  # noqa: SLF001 - of this module
            try:
                returned = await process_records(part.as_batch(), checkpointer)
            except BaseException:
                checkpointer._passed(before)  # noqa: SLF001 - a drain may come before it is tried again
                raise
            if returned is not None:
                raise HandlerError(f"process_records returned {type(returned).__name__}: expected None")

        failures = FailureHandler(
            shard,
            call,
            checkpointer._passed,  # noqa: SLF001 - of this module
            on_error=self._on_error,
            random=self._rng.random,
            observer=self._observer,
        )
        while await self._process_next(shard, failures):
            pass

    @staticmethod
    async def _process_next(shard: ShardStream, failures: FailureHandler) -> bool:
        """Process the next batch; return whether there was one. No variable has it while the next one is awaited."""
        batch = await anext(shard, None)
        if batch is None:
            return False
        with shard.process_span(batch):
            await failures.process(BatchSlice.whole(batch))
        return True


_PARAMETERS: Final = {
    "initialize": ("shard_id", "checkpoint"),
    "process_records": ("batch", "checkpointer"),
    "lease_lost": (),
    "shard_ended": ("checkpointer",),
    "shutdown_requested": ("checkpointer",),
}
