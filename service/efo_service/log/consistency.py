"""Whether the parts of a log agree: its catalog, its directories, its segments, its readers and the leases.

Each can be lost, restored from an old copy or mistaken for another, alone. Then the others prove it: a directory that
the catalog does not name, a partition that had records and is empty, a lease of a shard that the log does not know. A
writer that went on would lose these records for all readers, without a word. So nothing is continued by a guess:
`efo log adopt` is how an operator says that a shard begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from efo.model import Checkpoint, Lease
from efo_service.log import catalog as catalogs
from efo_service.log.catalog import (
    Adoption,
    Catalog,
    adopt_shards,
    check_stream,
    not_adopted,
    other_stream,
    partition_names,
    read_catalog,
)
from efo_service.log.files import LogFiles
from efo_service.log.reader_offsets import read_readers
from efo_service.log.topic import Topic, read_topic
from efo_service.relay.errors import LogIncompleteError, SinkError, TopicNotFoundError


def checked_topic(files: LogFiles, name: str, complete: Catalog | None = None) -> tuple[Topic, list[str]]:
    """Return a topic, and a message for each partition with records that its catalog does not name.

    `complete`: a catalog that named all of them. If it is still the catalog, it is not compared again where a listing
    costs a request. Raises as `read_catalog` does.
    """
    if complete is not None and files.has_costly_listings and (topic := read_topic(files, name)).catalog == complete:
        return topic, []
    # A partition enters the catalog before it gets a file: so the folders are listed first.
    folders = partition_names(files, name)
    topic = read_topic(files, name)
    unknown = [folder for folder in folders if folder not in {str(number) for number in topic.catalog.shards}]
    messages = (files.uncatalogued(name, folder, topic.catalog.partitions) for folder in unknown)
    return topic, [message for message in messages if message is not None]


def emptied(topic: Topic) -> Iterator[int]:
    """Yield the partitions that have nothing although records were committed to them."""
    for number in sorted(topic.catalog.written & topic.catalog.shards.keys()):
        if not topic.partition(number).has_records():
            yield number


def emptied_messages(topic: Topic) -> list[str]:
    """Return a message for each of the partitions of `emptied`."""
    return [topic.partition(number).emptied_message for number in emptied(topic)]


def check_topic(files: LogFiles, name: str, stream: str | None = None) -> None:
    """Check the catalog against the partitions, before a topic is written or exported. A new topic is consistent.

    `stream`: the topic must belong to it. Of each partition only the newest records are looked at. Raises
    LogIncompleteError, which names the first problem, LogOwnerError, LogVersionError, LogError and SinkError.
    """
    with suppress(TopicNotFoundError):
        topic, problems = checked_topic(files, name)
        if stream is not None:
            check_stream(topic.catalog, stream, topic.where)
        refuse([*problems, *emptied_messages(topic)])
        for number in topic.catalog.shards:
            topic.partition(number).check()


def refuse(problems: list[str]) -> None:
    """Raise LogIncompleteError if there are problems."""
    if problems:
        others = f" ({len(problems) - 1} more problems: see `efo log verify`)" if problems[1:] else ""
        raise LogIncompleteError(problems[0] + others)


def readers_ahead(topic: Topic) -> Iterator[str]:
    """Yield a message for each reader that has read further than a partition reaches."""
    # The readers are read first: afterwards a partition can only have grown.
    shards = topic.catalog.shards
    for reader in read_readers(topic.files, topic.name):
        for number, offset in sorted(reader.offsets.items()):
            if number not in shards and str(number) in partition_names(topic.files, topic.name):
                continue  # the catalog does not name it, which is a problem of its own
            with suppress(SinkError):  # damage is a problem of its own
                end = (topic.partition(number).end() or 0) if number in shards else 0
                if offset > end:
                    yield (
                        f"{topic.where}/{number} ends at offset {end}, but the reader {reader.name} has read to"
                        f" {offset}: its newest segments are missing. Restore them; if the relay has to read these"
                        " records again, see docs/log.md, Damage on a disk"
                    )


# --- adoption ----------------------------------------------------------------------------------------------
#
# An operator states that shards continue in new partitions of a log, without what was read of them before. It is
# legitimate after a migration, after a hand-over from KCL, and after a recovery without a copy. efo cannot tell these
# from a log that was lost, moved or mistaken for another. So it is a command, `efo log adopt`, and never a guess.


def plan_adoption(files: LogFiles, name: str, leases: Iterable[Lease]) -> list[Adoption]:
    """Return what `adopt_into` would do: for shards that were read but are unknown, and for emptied partitions.

    Raises LogIncompleteError if the catalog lacks a partition that has records: these are not lost.
    """
    leases = list(leases)
    try:
        topic, problems = checked_topic(files, name)
    except TopicNotFoundError:
        return planned_adoptions(None, (), leases)
    refuse(problems)
    return planned_adoptions(topic.catalog, emptied(topic), leases)


def adopt_into(files: LogFiles, topic: str, stream: str, adoptions: Iterable[Adoption]) -> dict[str, int]:
    """Give the shards new partitions, durably; return the numbers by shard, see `adopt_shards`.

    Raises SinkLockedError if a writer has one of the emptied partitions open, LogOwnerError, LogError and SinkError.
    """
    adoptions = list(adoptions)
    with files.without_writers(topic, [one.replaces for one in adoptions if one.replaces is not None]):
        return adopt_shards(files, topic, stream, adoptions)


def continue_with(files: LogFiles, topic: str, stream: str, created_at: float) -> None:
    """Let a topic go on with another stream of its name: see `with_new_stream`.

    Raises SinkLockedError if a writer has one of its partitions open, LogOwnerError, LogError and SinkError.
    """
    with files.without_writers(topic, read_catalog(files, topic).partitions.values()):
        catalogs.continue_with(files, topic, stream, created_at)


# --- leases: pure ----------------------------------------------------------------------------------------


def was_read(lease: Lease) -> bool:
    """Whether the shard was read: its checkpoint is not only where to start."""
    return lease.is_finished or not lease.checkpoint.is_sentinel


def unknown_shards(catalog: Catalog | None, leases: Iterable[Lease]) -> dict[str, Checkpoint]:
    """Return the shards that were read, but have no partition in the catalog, with the checkpoints of their leases.

    The leases must be older than the catalog: a shard gets its partition before its first checkpoint.
    """
    known: Mapping[str, int] = {} if catalog is None else catalog.partitions
    unknown = [lease for lease in leases if was_read(lease) and lease.key not in known]
    return {lease.key: lease.checkpoint for lease in sorted(unknown, key=lambda lease: lease.key)}


def planned_adoptions(catalog: Catalog | None, emptied: Iterable[int], leases: Iterable[Lease]) -> list[Adoption]:
    """Return the adoptions of shards that were read but are unknown, and of those with these emptied partitions."""
    leases = list(leases)
    unknown = [Adoption(shard_id, after, None) for shard_id, after in unknown_shards(catalog, leases).items()]
    if catalog is None:
        return unknown
    checkpoints = {lease.key: lease.checkpoint for lease in leases}
    shards = catalog.shards
    replaced = [
        Adoption(shards[number], checkpoints.get(shards[number], Checkpoint.TRIM_HORIZON), number) for number in emptied
    ]
    return replaced + unknown


def stream_of_leases(leases: Iterable[Lease]) -> float | None:
    """Return when the stream was created that the leases are of; None if they do not say it."""
    return next((lease.stream_created_at for lease in leases if lease.stream_created_at is not None), None)


def lease_problems(where: object, catalog: Catalog | None, leases: Sequence[Lease]) -> Iterator[str]:
    """Yield a message if the leases are of another stream than the log, or for each shard of `unknown_shards`.

    `where`: the topic.
    """
    if catalog is not None and (problem := other_stream(catalog, stream_of_leases(leases), where)) is not None:
        yield problem
        return
    for shard_id, checkpoint in unknown_shards(catalog, leases).items():
        yield not_adopted(where, shard_id, checkpoint)
