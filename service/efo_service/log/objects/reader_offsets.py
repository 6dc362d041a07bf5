"""Reader offsets on an object store: what they mean is in efo_service.log.reader_offsets."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from efo_service.log.objects import keys
from efo_service.log.objects.documents import Fields, parse, update
from efo_service.log.reader_offsets import ReaderCommit, check_reader
from efo_service.relay.errors import LogError
from efo_service.relay.files import epoch_seconds, whole_number
from efo_service.relay.object_store.store import Store, StoredObject


def commit_reader(store: Store, topic: str, name: str, offsets: Mapping[int, int], now: float) -> None:
    """Write durably that a reader is done with all records before these offsets. Raises SinkError."""
    fields = {"offsets": {str(at): offsets[at] for at in sorted(offsets)}, "committed_at": now}

    def change(_stored: StoredObject | None) -> Fields:
        return fields

    update(store, keys.reader(topic, check_reader(name)), change)


def remove_reader(store: Store, topic: str, name: str) -> bool:
    """Remove a reader, durably. Return whether there was one. Raises ConfigurationError and SinkError."""
    key = keys.reader(topic, check_reader(name))
    was_there = store.get(key) is not None
    if was_there:
        store.delete([key])
    return was_there


def read_readers(store: Store, topic: str) -> list[ReaderCommit]:
    """Return the topic's readers, ordered by name. It costs a listing, and a request for each. Raises SinkError."""
    listed = sorted(one.key for one in store.keys(f"{topic}/{keys.READERS}/") if one.key.endswith(".json"))
    found = ((key.rpartition("/")[2].removesuffix(".json"), store.get(key)) for key in listed)
    return [_read(name, stored) for name, stored in found if stored is not None]


def _read(name: str, stored: StoredObject) -> ReaderCommit:
    """Return a reader. One that cannot be read counts as one at offset 0, so that nothing expires."""
    with suppress(LogError, ValueError, KeyError, TypeError, AttributeError):
        fields = parse(stored, name)
        offsets = {whole_number(at): whole_number(offset) for at, offset in fields["offsets"].items()}
        return ReaderCommit(name, offsets, epoch_seconds(fields["committed_at"]))
    return ReaderCommit(name, {}, None)
