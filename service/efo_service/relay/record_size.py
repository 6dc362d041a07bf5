"""How many bytes a sink writes for records, with their headers. The relay bounds each commit by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from efo.model import MAX_HASH_KEY, Record
from efo_service.relay.errors import SinkError
from efo_service.relay.mapping import HEADERS, REQUIRED_HEADERS, RecordMapping, encryption_header

Records = Sequence[Record]
Size = Callable[[Records], int]

_REQUIRED_NAMES: Final = sum(map(len, HEADERS[:REQUIRED_HEADERS]))
_HASH_KEY_HEADER: Final = len(HEADERS[REQUIRED_HEADERS]) + len(str(MAX_HASH_KEY))
_ENCRYPTION_NAME: Final = len(HEADERS[REQUIRED_HEADERS + 1])


def size_of_keys(records: Records) -> int:
    """Return the bytes of the partition keys in UTF-8."""
    found = [record.partition_key for record in records]
    try:
        keys = "".join(cast("list[str]", found))
    except TypeError:  # there is a None among them
        keys = "".join([key or "" for key in found])
    return len(keys) if keys.isascii() else len(keys.encode())


def size_of_values(records: Records) -> int:
    """Return the bytes of the values."""
    return sum([len(record.data) for record in records])  # a list, since each record passes here: twice as fast


class RecordSize:
    """The bytes of the records of one shard in a sink: exact, or slightly more.

    `record`, `header`: the bytes that each record and each header take besides their contents. `keys`, `values`: return
    the bytes of the keys and values of records.
    """

    def __init__(
        self,
        mapping: RecordMapping,
        *,
        record: int,
        header: int,
        keys: Size = size_of_keys,
        values: Size = size_of_values,
    ) -> None:
        self._mapping = mapping
        self._record = record
        self._header = header
        self._keys = keys
        self._values = values
        names = len(mapping.stream.encode()) + len(mapping.shard_id.encode())
        self._constant = record + _REQUIRED_NAMES + names + REQUIRED_HEADERS * header

    def __call__(self, records: Records) -> int:
        """Return the bytes of these records."""
        return self._keys(records) + self._values(records) + self.headers(records) if records else 0

    def headers(self, records: Records) -> int:
        """Return what all but keys and values of these records take."""
        has_any = self._mapping.extract is not None or [record for record in records if record.tags]
        return self._any_headers(records) if has_any else self._fixed_headers(records)

    def _fixed_headers(self, records: Records) -> int:
        """Return the bytes of headers without tags.

        If one of them has an explicit hash key, all are counted as if they had the longest one.
        """
        size = self.plain_headers(records)
        if [record for record in records if record.explicit_hash_key]:
            size += (_HASH_KEY_HEADER + self._header) * len(records)
        return size

    def plain_headers(self, records: Records) -> int:
        """Return the bytes of headers without tags and hash keys. The last record of a shard has the longest ones."""
        last = records[-1]
        size = self._constant + len(last.sequence_number) + len(str(last.sub_sequence_number))
        if (encryption := encryption_header(last)) is not None:
            size += _ENCRYPTION_NAME + len(encryption) + self._header
        return size * len(records)

    def _any_headers(self, records: Records) -> int:
        return sum(map(self._headers, records))

    def _headers(self, record: Record) -> int:
        try:
            headers = self._mapping.headers(record)
        except SinkError:  # of the trace extractor: the commit raises it
            return self._fixed_headers((record,))
        return self._record + sum(len(name.encode()) + len(value or b"") + self._header for name, value in headers)
