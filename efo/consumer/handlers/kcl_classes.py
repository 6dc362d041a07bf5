"""Record processors of amazon_kclpy and kcl-rs, as they are: their classes behind efo's `RecordProcessor`.

Their methods block, and run in a thread each. What they are given has the attributes of their packages' own inputs, so
that neither package is imported here, unless a processor is one of its classes.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from math import inf
from typing import Any, Final

import trio

from efo.consumer.shard_stream import ShardStream
from efo.errors import ConfigurationError, LeaseError
from efo.model import Batch, Checkpoint, Record
from efo.protocol.kcl_checkpoints import INVALID_STATE, KclCheckpointError, Permitted, refusal_of

_PACKAGES: Final = ("amazon_kclpy", "kcl_rs")
_FIELDS: Final = {
    "data": "data",
    "partitionKey": "partition_key",
    "sequenceNumber": "sequence_number",
    "subSequenceNumber": "sub_sequence_number",
    "approximateArrivalTimestamp": "timestamp_millis",
}


def package_of(kind: type) -> str | None:
    """Return which of the packages a class of processors is of: by its base class. None: of neither."""
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if package in _PACKAGES and hasattr(base, "process_records"):
            return package
    return None


class KclRecord:
    """A record with the attributes of amazon_kclpy's and kcl-rs's.

    `data`: of amazon_kclpy, base64; of kcl-rs, the bytes. `binary_data`: the bytes.
    """

    __slots__ = ("_is_base64", "_record")

    def __init__(self, record: Record, *, is_base64: bool) -> None:
        self._record = record
        self._is_base64 = is_base64

    @property
    def binary_data(self) -> bytes:
        """The data."""
        return self._record.data

    @property
    def data(self) -> str | bytes:
        """The data, as the package has it."""
        return base64.b64encode(self._record.data).decode("ascii") if self._is_base64 else self._record.data

    @property
    def partition_key(self) -> str | None:
        """The partition key."""
        return self._record.partition_key

    @property
    def sequence_number(self) -> str:
        """The sequence number."""
        return self._record.sequence_number

    @property
    def sub_sequence_number(self) -> int:
        """The index in the KPL aggregate."""
        return self._record.sub_sequence_number

    @property
    def timestamp_millis(self) -> int:
        """The arrival time in milliseconds since the epoch."""
        return round(self._record.approximate_arrival_timestamp * 1000)

    @property
    def approximate_arrival_timestamp(self) -> datetime:
        """The arrival time: of kcl-rs in UTC; of amazon_kclpy in the local time zone, which it does not name."""
        zone = None if self._is_base64 else UTC
        return datetime.fromtimestamp(self._record.approximate_arrival_timestamp, zone)

    def get(self, field: str) -> Any:
        """Return a field by its name in the protocol. Raises KeyError."""
        return getattr(self, _FIELDS[field])

    __getitem__ = get


class KclCheckpointer:
    """The checkpointer of a shard, for the thread of a processor. A checkpoint is saved when the call returns."""

    def __init__(self, permitted: Permitted, error: Callable[[str], Exception]) -> None:
        self.shard: ShardStream | None = None  # None: no checkpoint is possible now
        self._permitted = permitted
        self._error = error

    def checkpoint(self, sequence_number: str | None = None, sub_sequence_number: int | None = None) -> None:
        """Save a checkpoint: everything that was given, or up to and including a record.

        Raises the package's CheckpointError, whose value is the name of KCL's exception.
        """
        if (name := trio.from_thread.run(self._save, sequence_number, sub_sequence_number)) is not None:
            raise self._error(name)

    def prepare_checkpoint(self, *_position: object) -> None:
        """Refuse it: efo's processors have no checkpoint in two steps. Raises CheckpointError."""
        raise self._error("UnsupportedOperationException")

    async def _save(self, sequence_number: object, sub_sequence_number: object) -> str | None:
        if self.shard is None:
            return INVALID_STATE
        try:
            checkpoint = self._permitted.resolve(sequence_number, sub_sequence_number)
            if not checkpoint.is_sentinel:
                self.shard.ack_to(checkpoint)
            await self.shard.save()
        except KclCheckpointError as error:
            return error.name
        except LeaseError as error:
            return refusal_of(error)
        return None


@dataclass(frozen=True, slots=True)
class InitializeInput:
    """What `initialize` is given."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int


@dataclass(frozen=True, slots=True)
class ProcessRecordsInput:
    """What `process_records` is given."""

    records: Sequence[KclRecord]
    millis_behind_latest: int
    checkpointer: KclCheckpointer


@dataclass(frozen=True, slots=True)
class EndInput:
    """What `lease_lost` (without a checkpointer), `shard_ended` and `shutdown_requested` are given."""

    checkpointer: KclCheckpointer | None = None


class KclClassProcessor:
    """A processor of one of the packages, with the methods of `efo.RecordProcessor`. `package`: see `package_of`."""

    def __init__(self, processor: Any, package: str, shard: ShardStream) -> None:
        self._shard = shard
        self._processor = _as_version_3(processor)
        self._is_base64 = package == "amazon_kclpy"
        self._permitted = Permitted.after(shard.checkpoint)
        self._checkpointer = KclCheckpointer(self._permitted, _error_class(package))
        self._limiter = trio.CapacityLimiter(inf)

    async def initialize(self, shard_id: str, checkpoint: Checkpoint) -> None:
        """Begin with the shard."""
        sub = checkpoint.sub_sequence_number
        await self._call(self._processor.initialize, InitializeInput(shard_id, checkpoint.sequence_number, sub))

    async def process_records(self, batch: Batch, _checkpointer: object) -> None:
        """Process a batch."""
        self._permitted.give(batch.records[-1])
        self._checkpointer.shard = self._shard
        records = [KclRecord(record, is_base64=self._is_base64) for record in batch.records]
        given = ProcessRecordsInput(records, batch.millis_behind_latest, self._checkpointer)
        await self._call(self._processor.process_records, given)

    async def lease_lost(self) -> None:
        """Clean up. No checkpoint is possible any more."""
        self._checkpointer.shard = None
        await self._call(self._processor.lease_lost, EndInput())

    async def shard_ended(self, _checkpointer: object) -> None:
        """Finish the shard."""
        self._checkpointer.shard = self._shard
        await self._call(self._processor.shard_ended, EndInput(self._checkpointer))

    async def shutdown_requested(self, _checkpointer: object) -> None:
        """Finish before the lease is given up; then the processor loses it, as in KCL."""
        self._checkpointer.shard = self._shard
        await self._call(self._processor.shutdown_requested, EndInput(self._checkpointer))
        await self.lease_lost()

    async def _call(self, method: Callable[[Any], object], given: object) -> None:
        await trio.to_thread.run_sync(method, given, limiter=self._limiter)


def _as_version_3(processor: Any) -> Any:
    """Return a processor with the methods of amazon_kclpy's version 3, by the package's own adapters."""
    version = getattr(processor, "version", 3)
    if version not in {1, 2, 3}:
        raise ConfigurationError(f"{type(processor).__qualname__}.version is {version!r}: expected 1, 2 or 3")
    if version == 1:
        processor = import_module("amazon_kclpy.v2.processor").V1toV2Processor(processor)
    return processor if version == 3 else import_module("amazon_kclpy.v3.processor").V2toV3Processor(processor)  # noqa: PLR2004 - as above


def _error_class(package: str) -> Callable[[str], Exception]:
    """Return what makes the package's CheckpointError of the name of KCL's exception."""
    kind: Any = sys.modules[package].CheckpointError if package == "kcl_rs" else None
    if kind is None:
        kind = import_module("amazon_kclpy.checkpoint_error").CheckpointError

    def error(name: str) -> Exception:
        made: Exception = kind(name)
        if getattr(made, "value", None) != name:
            made.value = name  # type: ignore[attr-defined]
        return made

    return error
