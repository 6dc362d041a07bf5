"""Whether the parts of a log on an object store agree: its catalog, its partitions, their heads, and the leases.

As on a disk (efo_service.log.consistency): what is lost, an old copy, or mistaken for another is refused, and
nothing goes on by a guess. Here the commits themselves are a witness, since a key of theirs never disappears.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from efo.model import Lease
from efo_service.log.catalog import Adoption, Catalog, check_stream
from efo_service.log.consistency import planned_adoptions, refuse
from efo_service.log.objects.catalog import adopt_shards, existing, read_catalog
from efo_service.log.objects.partition import Partition
from efo_service.log.objects.reader_offsets import read_readers
from efo_service.log.objects.writer import emptied_message
from efo_service.relay.errors import LogIncompleteError, LogOwnerError, SinkError, TopicNotFoundError
from efo_service.relay.object_store.store import Store


def partition_of(store: Store, topic: str, number: int, catalog: Catalog) -> Partition:
    """Return a partition of the catalog, to read."""
    return Partition(store, topic, number, (catalog.stream, catalog.shards[number]))


def read_checked_catalog(store: Store, topic: str) -> tuple[Catalog, list[str]]:
    """Return a topic's catalog, and a message for each partition with objects that it does not name.

    Raises as `read_catalog` does.
    """
    # A partition enters the catalog before it gets an object: so the objects are looked for first.
    numbers = existing(store, topic)
    catalog = read_catalog(store, topic)
    unknown = [number for number in numbers if number not in catalog.shards]
    return catalog, [_uncatalogued(store, topic, number) for number in unknown]


def _uncatalogued(store: Store, topic: str, number: int) -> str:
    return (
        f"{store.name}/{topic}/{number} has objects, but the catalog does not name this partition: restore the newest"
        " version of catalog.json, add the shard that its head.json"
        " names, or move the objects out of the log"
    )


def emptied(store: Store, topic: str, catalog: Catalog) -> Iterator[int]:
    """Yield the partitions that have no head although records were committed to them."""
    for number in sorted(catalog.written & catalog.shards.keys()):
        with suppress(LogIncompleteError, LogOwnerError):
            if partition_of(store, topic, number, catalog).read_head() is None:
                yield number


def emptied_messages(store: Store, topic: str, catalog: Catalog) -> list[str]:
    """Return a message for each of the partitions of `emptied`."""
    return [emptied_message(f"{store.name}/{topic}/{number}") for number in emptied(store, topic, catalog)]


def check_topic(store: Store, topic: str, stream: str | None = None) -> None:
    """Check the catalog against the partitions, before a topic is written or exported. A new topic is consistent.

    `stream`: the topic must belong to it. Of each partition the head is read, and the end looked for: so an old copy of
    a head is found. Raises LogIncompleteError, which names the first problem, LogOwnerError, LogVersionError, LogError
    and SinkError.
    """
    with suppress(TopicNotFoundError):
        catalog, problems = read_checked_catalog(store, topic)
        if stream is not None:
            check_stream(catalog, stream, f"{store.name}/{topic}")
        problems += emptied_messages(store, topic, catalog)
        refuse(problems)
        for number in catalog.shards:
            partition_of(store, topic, number, catalog).bounds()


def readers_ahead(store: Store, topic: str, catalog: Catalog) -> Iterator[str]:
    """Yield a message for each reader that has read further than a partition reaches."""
    # The readers are read first: afterwards a partition can only have grown.
    for reader in read_readers(store, topic):
        for number, offset in sorted(reader.offsets.items()):
            if number not in catalog.shards:
                continue
            end = 0
            with suppress(SinkError):  # a damaged partition is a problem of its own
                end = partition_of(store, topic, number, catalog).bounds()[1]
                if offset > end:
                    yield (
                        f"{store.name}/{topic}/{number} ends at offset {end}, but the reader {reader.name} has read to"
                        f" {offset}: its newest commits are missing, restore them"
                    )


def plan_adoption(store: Store, topic: str, leases: Iterable[Lease]) -> list[Adoption]:
    """Return what `adopt_into` would do: for shards that were read but are unknown, and for emptied partitions.

    Raises LogIncompleteError if the catalog lacks a partition that has objects: these are not lost.
    """
    leases = list(leases)
    try:
        catalog, problems = read_checked_catalog(store, topic)
    except TopicNotFoundError:
        return planned_adoptions(None, (), leases)
    refuse(problems)
    return planned_adoptions(catalog, emptied(store, topic, catalog), leases)


def adopt_into(store: Store, topic: str, stream: str, adoptions: Iterable[Adoption]) -> dict[str, int]:
    """Give the shards new partitions, durably; return the numbers by shard, see `adopt_shards`.

    An open writer of an emptied partition goes on in it until its next start; its commits are then in no partition of
    the catalog, which `efo log verify` reports. So stop the relay first. Raises LogOwnerError, LogError and SinkError.
    """
    return adopt_shards(store, topic, stream, adoptions)
