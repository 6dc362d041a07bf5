"""Whether the parts of a log agree: its catalog, its directories, its segments, its readers and the leases.

Each can be lost, restored from an old copy or mistaken for another, alone. Then the others prove it: a directory that
the catalog does not name, a partition that had records and is empty, a lease of a shard that the log does not know. A
writer that went on would lose these records for all readers, without a word. So nothing is continued by a guess:
`efo log adopt` is how an operator says that a shard begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from efo.model import Checkpoint, Lease
from efo_service.log.catalog import (
    Adoption,
    Catalog,
    not_adopted,
    other_stream,
    partition_names,
    read_catalog,
    topic_directory,
)
from efo_service.log.reader_offsets import read_readers
from efo_service.log.segments import check_owner, has_segments, last_segment, read_origin, read_segment
from efo_service.relay.errors import LogIncompleteError, LogOwnerError, SinkError, TopicNotFoundError


def read_checked_catalog(root: Path, topic: str) -> tuple[Catalog, list[str]]:
    """Return a topic's catalog, and a message for each partition with segments that it does not name.

    Raises as `read_catalog` does.
    """
    # A partition enters the catalog before it gets its directory: so the directories are listed first.
    names = partition_names(topic_directory(root, topic))
    catalog = read_catalog(root, topic)
    return catalog, list(_uncatalogued(topic_directory(root, topic), names, catalog))


def _uncatalogued(directory: Path, names: Iterable[str], catalog: Catalog) -> Iterator[str]:
    known = {str(number) for number in catalog.shards}
    for name in names:
        if name in known or not has_segments(directory / name):
            continue
        what = f"{directory / name} has segments, but the catalog does not name this partition"
        shard_id = _shard_of(directory / name)
        if shard_id is None:
            yield f"{what}: restore catalog.json from a copy"
        elif shard_id in catalog.partitions:
            yield (
                f"{what}: its shard {shard_id} has the partition {catalog.partitions[shard_id]}. Keep the segments of"
                " one of the two, and move the others out of the log"
            )
        else:
            yield f'{what}: restore catalog.json from a copy, or add "{shard_id}": {name} to its partitions'


def _shard_of(directory: Path) -> str | None:
    """Return the shard that a partition's newest segment names, None if it is damaged."""
    with suppress(SinkError):
        segment = last_segment(directory)
        return None if segment is None else read_origin(segment).shard_id
    return None


def emptied(root: Path, topic: str, catalog: Catalog) -> Iterator[int]:
    """Yield the partitions that have no segment although records were committed to them."""
    for partition in sorted(catalog.written & catalog.shards.keys()):
        if not has_segments(topic_directory(root, topic) / str(partition)):
            yield partition


def emptied_messages(root: Path, topic: str, catalog: Catalog) -> list[str]:
    """Return a message for each of the partitions of `emptied`."""
    directory = topic_directory(root, topic)
    return [emptied_message(directory / str(partition)) for partition in emptied(root, topic, catalog)]


def emptied_message(directory: Path) -> str:
    """Return the message for the directory of a partition without segments that had records."""
    return (
        f"{directory} has no segment, but records were committed to it: restore"
        " its segments from a copy. Without a copy, stop the relay and run `efo log adopt`: the shard then continues"
        " in a new partition"
    )


def check_topic(root: Path, topic: str) -> None:
    """Check the catalog against the directories, before a topic is written or exported. A new topic is consistent.

    Of each partition, the origin of the newest segment is read, and no other. Raises LogIncompleteError, which names
    the first problem, LogOwnerError, LogVersionError, LogError and SinkError.
    """
    with suppress(TopicNotFoundError):
        catalog, problems = read_checked_catalog(root, topic)
        problems += emptied_messages(root, topic, catalog)
        refuse(problems)
        for partition, shard_id in catalog.shards.items():
            _check_newest(topic_directory(root, topic) / str(partition), (catalog.stream, shard_id))


def _check_newest(directory: Path, owner: tuple[str, str]) -> None:
    """Raise LogOwnerError if the directory was moved. Damage is left to those who read the whole segment."""
    try:
        if (segment := last_segment(directory)) is not None:
            try:
                check_owner(segment, read_origin(segment), owner)
            except LogOwnerError:
                read_segment(segment)  # damage may name another owner
                raise
    except LogOwnerError:
        raise
    except SinkError:
        return


def refuse(problems: list[str]) -> None:
    """Raise LogIncompleteError if there are problems."""
    if problems:
        others = f" ({len(problems) - 1} more problems: see `efo log verify`)" if problems[1:] else ""
        raise LogIncompleteError(problems[0] + others)


def readers_ahead(root: Path, topic: str) -> Iterator[str]:
    """Yield a message for each reader that has read further than a partition reaches."""
    # The readers are read first: afterwards a partition can only have grown.
    for reader in read_readers(root, topic):
        for partition, offset in sorted(reader.offsets.items()):
            directory = topic_directory(root, topic) / str(partition)
            try:
                last = last_segment(directory)
            except SinkError:  # a file with an invalid name, which is a problem of its own
                continue
            end = 0 if last is None else last.end
            if offset > end:
                yield (
                    f"{directory} ends at offset {end}, but the reader {reader.name} has read to {offset}: its newest"
                    " segments are missing. Restore them; if the relay has to read these records again, see"
                    " docs/log.md, Damage on a disk"
                )


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
