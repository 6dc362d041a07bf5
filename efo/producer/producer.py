"""The producer: checks records, takes them while there is room, and waits for what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

import trio

from efo.errors import ConfigurationError, DeliveryError, ProducerClosedError
from efo.producer.buffer import OVERHEAD, Buffer
from efo.producer.delivery import Delivery
from efo.producer.dispatcher import Dispatcher
from efo.protocol.aggregation import is_hash_key

MAX_PARTITION_KEY: Final = 256
"""The maximum number of characters of a partition key (AWS: PartitionKey)."""
PUTS_PER_CHECKPOINT: Final = 64
"""After so many puts that need not wait, other tasks get a turn. A turn costs as much as several puts."""

T = TypeVar("T")
Serializer = Callable[[T], bytes]
"""Returns the data of a record, such as `str.encode` or `msgspec.json.encode`. What it raises, `put` raises."""


class ProducerRecord(NamedTuple, Generic[T]):
    """A record to put. `partition_key`: None only for a stream with the record distribution strategy AUTO.

    `explicit_hash_key`: decimal digits, instead of the MD5 of the partition key.
    """

    data: T
    partition_key: str | None = None
    explicit_hash_key: str | None = None


class Producer(Generic[T]):
    """Puts records into a stream. Made by `open_producer`.

    `stream`: the stream's name.
    """

    def __init__(
        self,
        stream: str,
        buffer: Buffer,
        dispatcher: Dispatcher,
        *,
        serializer: Serializer[T] | None,
        max_record_bytes: int,
        max_buffered_bytes: int,
    ) -> None:
        self.stream = stream
        self._buffer = buffer
        self._dispatcher = dispatcher
        self._unseen = dispatcher.unseen
        self._serializer = serializer
        self._max_record_bytes = max_record_bytes
        self._max_buffered_bytes = max_buffered_bytes
        self._clock = trio.lowlevel.current_clock().current_time
        self._puts_left = 0
        self._flushes = 0
        self._is_closed = False

    @property
    def buffered_records(self) -> int:
        """The number of records that were put and are neither stored nor given up."""
        return self._buffer.records

    @property
    def is_auto(self) -> bool:
        """Whether the service distributes the records (strategy AUTO), as far as is known: keys are optional then."""
        return self._buffer.is_auto

    @property
    def max_record_bytes(self) -> int:
        """The largest data and partition key of a record that the stream takes, together."""
        return self._max_record_bytes

    @property
    def buffered_bytes(self) -> int:
        """What counts against `ProducerSettings.max_buffered_bytes`."""
        return self._buffer.weight

    async def put(self, data: T, partition_key: str | None = None, explicit_hash_key: str | None = None) -> Delivery:
        """Take a record, and return its delivery: await that for where the record was stored.

        Waits only while the buffer is full. `data`: bytes, or what the serializer takes. `partition_key`: 1 to 256
        characters; a stream with the record distribution strategy AUTO needs none, and places a record with one in any
        shard too. `explicit_hash_key`: decimal digits; selects the shard instead of the MD5 of the partition key.

        Raises ConfigurationError for a record that the service would refuse, ProducerClosedError, and what the
        serializer raises; the record is then not taken. Without a key it may ask the service whether it takes such
        records, and raises EfoError.
        """
        if partition_key is None:
            await self._check_keyless()
        payload, key, explicit_hash_key = self._checked(data, partition_key, explicit_hash_key)
        size = len(payload) + len(key) + OVERHEAD
        self._puts_left -= 1
        if self._puts_left <= 0 or self._is_closed or self._buffer.weight + size > self._max_buffered_bytes:
            await self._wait_for_room(size)
        delivery = Delivery(self._clock(), self._unseen)
        if self._buffer.put(delivery, partition_key, key, payload, explicit_hash_key):
            self._dispatcher.wake()
        return delivery

    async def put_many(self, records: Iterable[ProducerRecord[T]]) -> list[Delivery]:
        """Take several records in order, and return their deliveries, as `put` does for one.

        All of them are checked before the first is taken.
        """
        records = list(records)
        if any(record[1] is None for record in records):
            await self._check_keyless()
        checked = [(record[1], self._checked(*record)) for record in records]
        deliveries = []
        for partition_key, (payload, key, explicit_hash_key) in checked:
            size = len(payload) + len(key) + OVERHEAD
            self._puts_left -= 1
            if self._puts_left <= 0 or self._is_closed or self._buffer.weight + size > self._max_buffered_bytes:
                await self._wait_for_room(size)
            delivery = Delivery(self._clock(), self._unseen)
            if self._buffer.put(delivery, partition_key, key, payload, explicit_hash_key):
                self._dispatcher.wake()
            deliveries.append(delivery)
        return deliveries

    async def flush(self) -> None:
        """Send everything without lingering, and wait until all records that were put before are stored or given up.

        It does not raise for records that were given up: their deliveries do.
        """
        await trio.lowlevel.checkpoint()
        number = self._buffer.flush()
        self._flushes += 1
        self._buffer.is_flushing = True
        self._dispatcher.wake()
        try:
            while not self._buffer.is_flushed(number):
                await self._dispatcher.progress.park()
        finally:
            self._flushes -= 1
            self._buffer.is_flushing = self._flushes > 0

    def close(self) -> None:
        """Take no more records: `put` raises ProducerClosedError, also where it waits. What was taken is still sent."""
        self._is_closed = True
        self._dispatcher.progress.unpark_all()

    # --- within the package --------------------------------------------------------------------------------

    async def _wait_for_room(self, size: int) -> None:
        self._check_open()
        await trio.lowlevel.checkpoint()
        self._puts_left = PUTS_PER_CHECKPOINT
        while self._buffer.weight and self._buffer.weight + size > self._max_buffered_bytes:
            self._check_open()
            await self._dispatcher.progress.park()
        self._check_open()

    async def _check_keyless(self) -> None:
        """Raise ConfigurationError unless the stream takes records without a partition key."""
        if not await self._dispatcher.allows_keyless():
            raise ConfigurationError(
                f"partition_key is missing: stream {self.stream} has the record distribution strategy "
                "USER_PARTITION_KEY, which requires one of each record"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ProducerClosedError(
                f"the producer for {self.stream} is closed: the record was not taken; put within its block"
            )

    def _checked(
        self, data: T, partition_key: str | None = None, explicit_hash_key: str | None = None
    ) -> tuple[bytes, bytes, str | None]:
        """Return the payload, the partition key in UTF-8, and the explicit hash key. Raises ConfigurationError.

        A key that is missing is empty.
        """
        payload = data if self._serializer is None else self._serializer(data)
        if type(payload) is not bytes:
            payload = self._as_bytes(payload)
        try:
            key = partition_key.encode() if partition_key and len(partition_key) <= MAX_PARTITION_KEY else b""
        except (AttributeError, TypeError, UnicodeEncodeError):
            key = b""
        if not key and partition_key is not None:
            raise ConfigurationError(_wrong_key(partition_key))
        if explicit_hash_key is not None:
            explicit_hash_key = _checked_hash_key(explicit_hash_key)
        if len(payload) + len(key) > self._max_record_bytes:
            raise ConfigurationError(
                f"the record has {len(payload) + len(key)} bytes with its partition key: stream {self.stream} accepts "
                f"at most {self._max_record_bytes}; split it, or raise the stream's MaxRecordSizeInKiB and open the "
                "producer again"
            )
        return payload, key, explicit_hash_key

    def _as_bytes(self, payload: object) -> bytes:
        if isinstance(payload, bytes | bytearray | memoryview):
            return bytes(payload)
        if self._serializer is not None:
            raise ConfigurationError(f"the serializer returned {type(payload).__name__}: expected bytes")
        raise ConfigurationError(
            f"data is of type {type(payload).__name__}: expected bytes, or pass a serializer to open_producer"
        )

    def check_delivered(self) -> None:
        """Raise DeliveryError if records were given up whose deliveries nobody has looked at."""
        if count := self._unseen.count:
            raise DeliveryError(
                f"records for {self.stream} that were not delivered: {count}; "
                "await the deliveries that put returns, to handle each; the log has the reasons"
            )


def _wrong_key(partition_key: object) -> str:
    """Return what is wrong with a partition key."""
    if not isinstance(partition_key, str):
        return f"partition_key is of type {type(partition_key).__name__}: expected a text"
    if not 0 < len(partition_key) <= MAX_PARTITION_KEY:
        return f"partition_key has {len(partition_key)} characters: expected 1 to {MAX_PARTITION_KEY}"
    return "partition_key has a surrogate, which UTF-8 cannot express"


def _checked_hash_key(explicit_hash_key: object) -> str:
    if not isinstance(explicit_hash_key, str) or not is_hash_key(explicit_hash_key):
        raise ConfigurationError("explicit_hash_key: expected a text of decimal digits, at most 2**128 - 1, or None")
    return explicit_hash_key.lstrip("0") or "0"  # AWS refuses leading zeros
