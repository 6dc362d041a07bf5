"""The catalog of a topic on an object store, changed by compare-and-set.

What it says is in efo_service.log.catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from efo.model import Checkpoint
from efo.third_party_errors import reason_of
from efo_service.log.catalog import (
    CATALOG_VERSION,
    Adoption,
    Catalog,
    catalog_fields,
    catalog_from,
    check_stream,
    check_topic_name,
    is_topic_name,
    with_adoptions,
    with_new_stream,
    with_partition,
    with_records,
)
from efo_service.log.objects import keys
from efo_service.log.objects.documents import Fields, parse, update
from efo_service.relay.doubt import read_again
from efo_service.relay.errors import LogError, LogIncompleteError, TopicNotFoundError
from efo_service.relay.object_store.store import Store, StoredObject


def topics(store: Store) -> list[str]:
    """Return the names of all topics of a log."""
    return [name for name in _names(store) if store.head(keys.catalog(name), 1) is not None]


def uncatalogued_topics(store: Store) -> list[str]:
    """Return the names of what has partitions, but no catalog."""
    return [name for name in _names(store) if store.head(keys.catalog(name), 1) is None and existing(store, name)]


def _names(store: Store) -> list[str]:
    return list(filter(is_topic_name, store.folders("")))


def existing(store: Store, topic: str) -> list[int]:
    """Return the partitions that have objects, whatever the catalog says."""
    return keys.partition_numbers(store.folders(f"{topic}/"))


@read_again
def read_catalog(store: Store, topic: str) -> Catalog:
    """Read a topic's catalog.

    Raises TopicNotFoundError, LogIncompleteError if only the catalog is missing, LogVersionError, and LogError if it is
    invalid.
    """
    stored = store.get(keys.catalog(check_topic_name(topic))) or _created_meanwhile(store, topic)
    if stored is None:
        known = ", ".join(topics(store)) or "none"
        raise TopicNotFoundError(
            f"the log {store.name} has no topic {topic!r}; it has: {known}; start the relay that writes it, or check"
            " the name"
        )
    return _parse(store, topic, stored)


def _created_meanwhile(store: Store, topic: str) -> StoredObject | None:
    """Return the catalog of a topic that had none; None if it has no partitions either.

    Between two requests another worker may have created the catalog and a partition. Raises LogIncompleteError if there
    are partitions, and still no catalog.
    """
    if not existing(store, topic):
        return None
    stored = store.get(keys.catalog(topic))
    if stored is None:
        raise LogIncompleteError(
            f"{store.name}/{keys.catalog(topic)} does not exist, but the topic has partitions: restore an earlier"
            " version of it, or write it again (docs/log.md, Damage of objects)"
        )
    return stored


def _parse(store: Store, topic: str, stored: StoredObject) -> Catalog:
    name = f"{store.name}/{keys.catalog(topic)}"
    fields = parse(stored, name, CATALOG_VERSION)
    try:
        return catalog_from(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogError(
            f"{name} is not a valid catalog ({reason_of(error)}): restore an earlier version of it"
        ) from error


def allocate_partition(
    store: Store,
    topic: str,
    stream: str,
    shard_id: str,
    checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,
    created_at: float | None = None,
) -> tuple[int, Catalog]:
    """Return the shard's partition number, and the catalog. If it has none, allocate the next one durably.

    `created_at`: when the stream was created, None if unknown.

    `checkpoint`: that of the shard's lease. If it is a record's position, an earlier part of the shard was read without
    this log. Then nothing is allocated, and LogIncompleteError is raised: `adopt_shards` is how the log may begin here.
    Raises LogOwnerError if the topic belongs to another stream, StreamRecreatedError if it belongs to a former one of
    this name, LogVersionError, LogError and SinkError.
    """

    def allocate(catalog: Catalog) -> Catalog:
        where = f"{store.name}/{topic}"
        check_stream(catalog, stream, where, created_at)
        return with_partition(catalog, shard_id, checkpoint, where, partial(existing, store, topic), created_at)

    catalog = _update(store, topic, stream, allocate)
    return catalog.partitions[shard_id], catalog


def adopt_shards(store: Store, topic: str, stream: str, adoptions: Iterable[Adoption]) -> dict[str, int]:
    """Give these shards new, empty partitions durably; return the numbers by shard.

    As on a disk (efo_service.log.catalog). Raises as `allocate_partition` does.
    """
    adoptions = list(adoptions)

    def adopt(catalog: Catalog) -> Catalog:
        return with_adoptions(catalog, adoptions, partial(existing, store, topic))

    catalog = _update(store, topic, stream, adopt)
    return {
        one.shard_id: catalog.partitions[one.shard_id]
        for one in adoptions
        if catalog.partitions.get(one.shard_id) != one.replaces
    }


def continue_with(store: Store, topic: str, stream: str, created_at: float) -> None:
    """Let a topic go on with another stream of its name, durably: see `with_new_stream`. Raises as `adopt_shards`."""
    _update(store, topic, stream, partial(with_new_stream, created_at=created_at))


def mark_written(store: Store, topic: str, stream: str, partition: int, created_at: float | None = None) -> None:
    """Note durably that a partition has records. Raises as `allocate_partition` does."""
    _update(store, topic, stream, partial(with_records, partition=partition, created_at=created_at))


def _update(store: Store, topic: str, stream: str, change: Callable[[Catalog], Catalog]) -> Catalog:
    """Change the catalog, and return it. It is created if the topic has no partitions yet."""
    result: list[Catalog] = []

    def changed(stored: StoredObject | None) -> Fields | None:
        if stored is None:
            # The catalog to change is the one that `update` has read: if there is one by now, that is refused, and
            # this is called again with it.
            stored = _created_meanwhile(store, topic)
        before = Catalog(stream, {}) if stored is None else _parse(store, topic, stored)
        check_stream(before, stream, f"{store.name}/{topic}")
        after = change(before)
        result[:] = [after]
        return None if after == before else catalog_fields(after)

    update(store, keys.catalog(check_topic_name(topic)), changed)
    return result[0]
