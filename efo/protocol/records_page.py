"""Parses responses of GetRecords: pages of records, as a shard is polled."""

from __future__ import annotations

from typing import Final

import msgspec

from efo.errors import EventError
from efo.model import ChildShard, Record
from efo.protocol.messages import DECODE_ERRORS, UntimedRecord, check_children, check_sequence_numbers
from efo.protocol.native import STEP, Step, records_of
from efo.third_party_errors import reason_of


class RecordsPage(msgspec.Struct, frozen=True, rename="pascal"):
    """A page of records, as the service sends it (AWS: GetRecords).

    `next_shard_iterator`: None at the end of the shard. Then the page has `child_shards` (rule R2).
    `millis_behind_latest`: how far the end of the page is behind the tip of the shard.
    """

    records: tuple[Record, ...]
    next_shard_iterator: str | None = None
    millis_behind_latest: int | None = None
    child_shards: tuple[ChildShard, ...] | None = None


class _UntimedPage(msgspec.Struct, frozen=True, rename="pascal"):
    """A page whose records may have no arrival time."""

    records: tuple[UntimedRecord, ...]
    next_shard_iterator: str | None = None
    millis_behind_latest: int | None = None
    child_shards: tuple[ChildShard, ...] | None = None

    def with_timestamps(self) -> RecordsPage:
        """Return the page, with 0 for missing arrival times."""
        records = tuple(record.with_timestamps() for record in self.records)
        return RecordsPage(records, self.next_shard_iterator, self.millis_behind_latest, self.child_shards)


class _IteratorResponse(msgspec.Struct, frozen=True, rename="pascal"):
    shard_iterator: str


_PAGE: Final = msgspec.json.Decoder(RecordsPage)
_UNTIMED_PAGE: Final = msgspec.json.Decoder(_UntimedPage)
_ITERATOR: Final = msgspec.json.Decoder(_IteratorResponse)


def parse_page(body: bytes, step: Step | None = STEP) -> RecordsPage:
    """Return the page of a response. Raises EventError if it is invalid, or half an end of a shard (rule R2)."""
    try:
        page = (step and _native_page(body, step)) or _decode_page(body)
    except DECODE_ERRORS as error:
        raise EventError(f"the response to GetRecords cannot be parsed: {reason_of(error)}") from None
    children = page.child_shards or ()
    # To end the shard at a page without children would leave them unknown; with an iterator, there may be more.
    if (not page.next_shard_iterator) != bool(children):
        found = "an iterator and child shards" if children else "neither an iterator nor child shards"
        raise EventError(f"the response to GetRecords has {found}: exactly one of them is allowed")
    check_children(children)
    check_sequence_numbers(page.records)
    return page


def _native_page(body: bytes, step: Step) -> RecordsPage | None:
    """Return the page; None if the Python step has to read it, or to tell what is wrong besides the records."""
    if (columns := step.page(body)) is None:
        return None
    try:
        rest = _PAGE.decode(columns[-1])
    except DECODE_ERRORS:
        return None
    return RecordsPage(records_of(columns), rest.next_shard_iterator, rest.millis_behind_latest, rest.child_shards)


def parse_iterator(body: bytes) -> str:
    """Return the iterator in a response to GetShardIterator. Raises EventError."""
    try:
        return _ITERATOR.decode(body).shard_iterator
    except DECODE_ERRORS as error:
        raise EventError(f"the response to GetShardIterator cannot be parsed: {reason_of(error)}") from None


def _decode_page(body: bytes) -> RecordsPage:
    try:
        return _PAGE.decode(body)
    except msgspec.ValidationError:
        return _UNTIMED_PAGE.decode(body).with_timestamps()
