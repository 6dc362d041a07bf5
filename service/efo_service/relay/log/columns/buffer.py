"""The write buffer of the log: what was written, as columns, and not yet taken by a commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from efo.model import Batch, Checkpoint, Record
from efo_service.relay.log.columns.layout import Columns, columns_of
from efo_service.relay.mapping import RecordMapping
from efo_service.relay.record_size import RecordSize
from efo_service.relay.write_buffer import BatchOrder

_ROW: Final = 40
"""Bytes of a row besides key, value, topic and headers: two integers of 8, two of 4 and four offsets of 4."""
_HEADER: Final = 8
"""Bytes of a header besides its name and value: two offsets of 4."""


class ColumnBuffer:
    """The batches of a shard in order, starting after `position`, as columns. Once closed, it takes no more batches.

    `topic`, `mapping`: how records become rows. `rows`: how many it has. `size`: the bytes that they take.
    """

    def __init__(self, mapping: RecordMapping, topic: str, position: Checkpoint | None = None) -> None:
        self._mapping = mapping
        self._record_size = RecordSize(mapping, record=_ROW + len(topic), header=_HEADER)
        self._order = BatchOrder(position)
        self._parts: list[Columns] = []
        self._asked: tuple[Sequence[Record], Columns] | None = None
        self.rows = 0
        self.size = 0

    def size_of(self, records: Sequence[Record]) -> int:
        """Return how many bytes some records take."""
        return self._size_of(records, self._columns_of(records)) if records else 0

    def add(self, batch: Batch) -> None:
        """Add a batch. Raises SinkOrderError if it does not start after the last record, and SinkClosedError."""
        self._order.check_open()
        if batch.records:
            self._order.add(batch)
            columns = self._columns_of(batch.records)
            self._asked = None
            self._parts.append(columns)
            self.rows += columns.rows
            self.size += self._size_of(batch.records, columns)

    def take(self) -> list[Columns]:
        """Return the columns of the batches, and empty the buffer. Raises SinkClosedError."""
        self._order.check_open()
        parts = self._parts
        self._empty()
        return parts

    def close(self) -> None:
        """Close it and drop its batches. They were not acked either."""
        self._order.is_closed = True
        self._empty()

    @property
    def is_closed(self) -> bool:
        """Whether it is closed."""
        return self._order.is_closed

    def _empty(self) -> None:
        self._parts, self._asked, self.rows, self.size = [], None, 0, 0

    def _columns_of(self, records: Sequence[Record]) -> Columns:
        """Return the columns of some records. The relay asks for their size and then adds them: they are made once."""
        if self._asked is None or self._asked[0] is not records:
            self._asked = records, columns_of(records, self._mapping)
        return self._asked[1]

    def _size_of(self, records: Sequence[Record], columns: Columns) -> int:
        headers = self._record_size.headers if columns.plain is None else self._record_size.plain_headers
        return len(columns.keys) + len(columns.values) + headers(records)
