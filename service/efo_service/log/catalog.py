"""The catalog of a topic: its stream, and the partition of each shard.

    <root>/<topic>/catalog.json

Each shard gets one partition, and numbers are never reused. So a reader's offsets stay valid through splits and merges.
The catalog also names the partitions that have records. So it proves that a partition was emptied or a log replaced
(efo_service.log.consistency), and a shard that was read before gets no partition without an adoption. And it says
when the stream was created: shards of another stream of the same name are not written to its partitions (rule R15). The
document is replaced as a whole, and only if nobody else has changed it. So several processes can allocate partitions at
once, and a reader never sees an incomplete one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from efo.errors import ConfigurationError, InvalidValueError, StreamRecreatedError
from efo.identity import created_text, recreated
from efo.model import Checkpoint
from efo.protocol.identity import are_same
from efo.third_party_errors import reason_of
from efo_service.log.files import Fields, LogFiles, Owner, parse_fields
from efo_service.relay.doubt import read_again
from efo_service.relay.errors import LogError, LogIncompleteError, LogOwnerError, TopicNotFoundError
from efo_service.relay.files import whole_number
from efo_service.relay.sink import LOG_REMEDY

CATALOG: Final = "catalog.json"
_FORMAT: Final = 1
CATALOG_VERSION: Final = 2
"""The format of a catalog with partitions of a former stream, which an earlier efo would leave unread. Without them it
has the format of the log, so that an earlier efo reads it."""
MAX_PARTITION: Final = 2**31
"""Partition numbers are less: the column is an int32."""
_PARTITION: Final = re.compile(r"[0-9]{1,9}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}")


@dataclass(frozen=True, slots=True)
class Catalog:
    """The catalog of one topic.

    `partitions`: partition numbers by shard id. `written`: the partitions that have records. Retention keeps the newest
    segment of each, so they always have some. `adopted`: the partitions in which a shard continues that was read
    before without this log, and the lease's checkpoint at the adoption. `notes_records`: false for a catalog of an
    earlier efo, whose `written` is unknown. `stream_created_at`: when the stream was created, in seconds since the
    epoch; None until a writer knows it. `former`: the shards of partitions that belong to a former stream of this name:
    they are read, and not written any more.
    """

    stream: str
    partitions: Mapping[str, int]
    written: frozenset[int] = frozenset()
    adopted: Mapping[int, str] = field(default_factory=dict)
    notes_records: bool = True
    stream_created_at: float | None = None
    former: Mapping[int, str] = field(default_factory=dict)

    @property
    def shards(self) -> dict[int, str]:
        """The shard of each partition, in the order of the partitions."""
        present = {partition: shard_id for shard_id, partition in self.partitions.items()}
        return dict(sorted({**self.former, **present}.items()))

    def owner(self, number: int) -> Owner:
        """Return the stream and the shard of a partition."""
        return self.stream, self.shards[number]


def check_topic_name(topic: str) -> str:
    """Return the name. Raises ConfigurationError if it is not valid for a topic."""
    if not is_topic_name(topic):
        raise ConfigurationError(
            f"{topic!r} is not a valid topic name: use up to 249 letters, digits, '.', '_' and '-', not starting with"
            " '.'"
        )
    return topic


def is_topic_name(name: str) -> bool:
    """Return whether a name is valid for a topic."""
    return _TOPIC.fullmatch(name) is not None


# --- what a catalog says: pure ------------------------------------------------------------------------------


def catalog_from(fields: Mapping[str, Any]) -> Catalog:
    """Return the catalog of these fields. Raises ValueError, KeyError, TypeError and AttributeError."""
    return _with_distinct_partitions(
        str(fields["stream"]),
        {str(shard_id): whole_number(number, MAX_PARTITION) for shard_id, number in fields["partitions"].items()},
        frozenset(map(whole_number, fields.get("written", ()))),
        {whole_number(number): str(checkpoint) for number, checkpoint in fields.get("adopted", {}).items()},
        notes_records="written" in fields,
        stream_created_at=None if (created := fields.get("stream_created_at")) is None else float(created),
        former={
            whole_number(number, MAX_PARTITION): str(shard_id) for number, shard_id in fields.get("former", {}).items()
        },
    )


def catalog_fields(catalog: Catalog) -> dict[str, Any]:
    """Return the fields of a catalog, with its format."""
    fields: dict[str, Any] = {
        "format": CATALOG_VERSION if catalog.former else _FORMAT,
        "stream": catalog.stream,
        "partitions": dict(catalog.partitions),
        "written": sorted(catalog.written),
        "adopted": {str(number): catalog.adopted[number] for number in sorted(catalog.adopted)},
    }
    if catalog.stream_created_at is not None:
        fields["stream_created_at"] = catalog.stream_created_at
    if catalog.former:
        fields["former"] = {str(number): shard_id for number, shard_id in sorted(catalog.former.items())}
    return fields


def other_stream(catalog: Catalog, created_at: float | None, where: object) -> str | None:
    """Return the sentence for a topic of a former stream of this name, None if it is not known to be one.

    `created_at`: when the present stream was created, None if unknown. `where`: the topic, for the message.
    """
    if are_same(catalog.stream_created_at, created_at) is not False:
        return None
    how = created_text(catalog.stream_created_at, created_at, f"the topic {where} is")
    return recreated(catalog.stream, how, LOG_REMEDY)


def check_stream(catalog: Catalog, stream: str, where: object, created_at: float | None = None) -> None:
    """Raise LogOwnerError if a topic belongs to another stream, StreamRecreatedError if to a former one of this name.

    `where`: the topic, for the message. `created_at`: when the stream was created, None if unknown.
    """
    if (problem := other_stream(catalog, created_at, where)) is not None and catalog.stream == stream:
        raise StreamRecreatedError(problem)
    if catalog.stream != stream:
        raise LogOwnerError(
            f"the topic {where} belongs to the stream {catalog.stream!r}, not to {stream!r}:"
            " choose another topic or another directory"
        )


def with_partition(
    catalog: Catalog,
    shard_id: str,
    checkpoint: Checkpoint,
    where: object,
    existing: Callable[[], Iterable[int]],
    created_at: float | None = None,
) -> Catalog:
    """Return the catalog with a partition of this shard, see `with_shard`.

    `existing`: returns the partitions that are there: an older copy of the catalog may be in use. A topic without
    partitions is that of the stream which was created at `created_at`. Raises LogIncompleteError.
    """
    if shard_id in catalog.partitions:
        return catalog
    if not checkpoint.is_sentinel:
        raise LogIncompleteError(not_adopted(where, shard_id, checkpoint))
    if not catalog.shards:
        catalog = replace(catalog, stream_created_at=created_at)
    return _with_partitions(catalog, [shard_id], existing())


def with_adoptions(catalog: Catalog, adoptions: Iterable[Adoption], existing: Callable[[], Iterable[int]]) -> Catalog:
    """Return the catalog after these adoptions, see `adopt_shards`. Doing it twice has the effect of once."""
    due = [one for one in adoptions if catalog.partitions.get(one.shard_id) == one.replaces]
    changed = _with_partitions(catalog, [one.shard_id for one in due], existing())
    checkpoints = {changed.partitions[one.shard_id]: str(one.after) for one in due}
    return replace(changed, written=changed.written & changed.shards.keys(), adopted={**catalog.adopted, **checkpoints})


def with_new_stream(catalog: Catalog, created_at: float) -> Catalog:
    """Return the catalog of a topic that goes on with another stream of its name, which was created at this time.

    The partitions keep their records and numbers, and are written no more; its shards get new ones.
    """
    if are_same(catalog.stream_created_at, created_at):
        return catalog
    return replace(catalog, partitions={}, former=catalog.shards, stream_created_at=created_at)


def _with_distinct_partitions(
    stream: str,
    partitions: Mapping[str, int],
    written: frozenset[int],
    adopted: Mapping[int, str],
    *,
    notes_records: bool,
    stream_created_at: float | None,
    former: Mapping[int, str],
) -> Catalog:
    """Return a catalog. Raises ValueError if two shards have the same partition."""
    if len({*partitions.values(), *former}) < len(partitions) + len(former):
        raise InvalidValueError("two shards have the same partition")
    return Catalog(stream, partitions, written, adopted, notes_records, stream_created_at, former)


@dataclass(frozen=True, slots=True)
class Adoption:
    """A shard that is to continue in a new partition, without what was read of it before.

    `after`: the checkpoint of its lease, after which it continues; TRIM_HORIZON if it has no lease. `replaces`: its
    emptied partition, None if it has none.
    """

    shard_id: str
    after: Checkpoint
    replaces: int | None


def with_records(catalog: Catalog, partition: int, created_at: float | None) -> Catalog:
    """Return the catalog when a partition has records, of a stream that was created at this time.

    A topic of an earlier efo does not say so. It does when its first writer has read on from its position.
    """
    known = catalog.stream_created_at
    return replace(
        catalog, written=catalog.written | {partition}, stream_created_at=created_at if known is None else known
    )


def is_noted(catalog: Catalog, partition: int, created_at: float | None) -> bool:
    """Return whether `with_records` would change nothing."""
    return partition in catalog.written and (catalog.stream_created_at is not None or created_at is None)


def not_adopted(directory: object, shard_id: str, checkpoint: Checkpoint) -> str:
    """Return the message for a shard that was read before, and has no partition."""
    return (
        f"the lease of {shard_id} is at {checkpoint}, but {directory} has no partition of this shard: what was read"
        " before is not in this log. If the log was moved, replaced or emptied, put it back. If it shall begin here"
        " (after a migration, a hand-over from KCL, a recovery), run `efo log adopt`"
    )


def _with_partitions(catalog: Catalog, shard_ids: Sequence[str], existing: Iterable[int]) -> Catalog:
    """Return the catalog with new partitions. What exists counts too: an older copy of the catalog may be in use."""
    last = max([-1, *catalog.shards, *existing])
    return replace(
        catalog,
        partitions={**catalog.partitions, **{shard_id: last + at for at, shard_id in enumerate(shard_ids, 1)}},
    )


# --- the document of a topic ---------------------------------------------------------------------------------


def topics(files: LogFiles) -> list[str]:
    """Return the names of all topics of a log."""
    return [name for name in _folders(files) if is_topic(files, name)]


def is_topic(files: LogFiles, topic: str) -> bool:
    """Return whether a log has a topic. Raises ConfigurationError if its name is invalid."""
    return files.exists(_document(topic))


def uncatalogued_topics(files: LogFiles) -> list[str]:
    """Return the names of what has partitions, but no catalog."""
    return [name for name in _folders(files) if not is_topic(files, name) and partition_names(files, name)]


def _folders(files: LogFiles) -> list[str]:
    return list(filter(is_topic_name, files.folders("")))


def _document(topic: str) -> str:
    return f"{check_topic_name(topic)}/{CATALOG}"


def partition_names(files: LogFiles, topic: str) -> list[str]:
    """Return the names of the folders of partitions in a topic, in order, whatever its catalog says."""
    return sorted(filter(_PARTITION.fullmatch, files.folders(topic)), key=int)


@read_again
def read_catalog(files: LogFiles, topic: str) -> Catalog:
    """Read a topic's catalog.

    Raises TopicNotFoundError, LogIncompleteError if only the catalog is missing, LogVersionError, and LogError if it is
    invalid.
    """
    content = files.read(_document(topic))
    if content is None and (content := _created_meanwhile(files, topic)) is None:
        raise TopicNotFoundError(files.no_topic(topic, partial(topics, files)))
    return _parse(files, topic, content)


def _created_meanwhile(files: LogFiles, topic: str) -> bytes | None:
    """Return the catalog of a topic that had none; None if it has no partitions either.

    Since it was looked for, another worker may have created the catalog and a partition. Raises LogIncompleteError if
    there are partitions, and still no catalog.
    """
    if not partition_names(files, topic):
        return None
    if (content := files.read(_document(topic))) is None:
        raise LogIncompleteError(
            f"{files.name}/{_document(topic)} does not exist, but the topic has partitions: {files.restore}, or write"
            " it again (docs/log.md)"
        )
    return content


def _parse(files: LogFiles, topic: str, content: bytes) -> Catalog:
    name = f"{files.name}/{_document(topic)}"
    fields = parse_fields(content, name, files.restore, CATALOG_VERSION)
    try:
        return catalog_from(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogError(f"{name} is not a valid catalog ({reason_of(error)}): {files.restore}") from error


def with_shard(
    files: LogFiles,
    topic: str,
    stream: str,
    shard_id: str,
    checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,
    created_at: float | None = None,
) -> Catalog:
    """Return the catalog with a partition of this shard. If it has none, allocate the next one durably.

    `checkpoint`: that of the shard's lease. If it is a record's position, an earlier part of the shard was read without
    this log. Then nothing is allocated, and LogIncompleteError is raised: `adopt_shards` is how the log may begin here.
    `created_at`: when the stream was created, None if unknown.
    Raises LogOwnerError if the topic belongs to another stream, StreamRecreatedError if it belongs to a former one of
    this name, LogVersionError, LogError and SinkError.
    """

    def allocate(catalog: Catalog) -> Catalog:
        where = f"{files.name}/{topic}"
        check_stream(catalog, stream, where, created_at)
        return with_partition(catalog, shard_id, checkpoint, where, partial(_existing, files, topic), created_at)

    return _update(files, topic, stream, allocate)


def allocate_partition(
    files: LogFiles, topic: str, stream: str, shard_id: str, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
) -> int:
    """Return the partition of a shard, allocated durably if it has none. Raises as `with_shard` does."""
    return with_shard(files, topic, stream, shard_id, checkpoint).partitions[shard_id]


def adopt_shards(files: LogFiles, topic: str, stream: str, adoptions: Iterable[Adoption]) -> dict[str, int]:
    """Give these shards new, empty partitions durably; return the numbers by shard.

    A shard leaves its emptied partition, because offsets never begin again within one. A shard whose partition is not
    `replaces` any more is left alone. Raises as `with_shard` does.
    """
    adoptions = list(adoptions)
    found: list[Catalog] = []

    def adopt(catalog: Catalog) -> Catalog:
        found.append(catalog)
        return with_adoptions(catalog, adoptions, partial(_existing, files, topic))

    changed = _update(files, topic, stream, adopt)
    # A change may be asked for again after it was made, if its answer was lost: the first catalog is the one before.
    new = changed.partitions.items() - found[0].partitions.items()
    return dict(sorted(new, key=lambda one: one[1]))


def continue_with(files: LogFiles, topic: str, stream: str, created_at: float) -> None:
    """Let a topic go on with another stream of its name, durably: see `with_new_stream`. Raises as `adopt_shards`."""
    _update(files, topic, stream, partial(with_new_stream, created_at=created_at))


def mark_written(files: LogFiles, topic: str, stream: str, partition: int, created_at: float | None = None) -> None:
    """Note durably that a partition has records. Raises as `with_shard` does."""
    _update(files, topic, stream, partial(with_records, partition=partition, created_at=created_at))


def _existing(files: LogFiles, topic: str) -> Iterable[int]:
    return map(int, partition_names(files, topic))


def _update(files: LogFiles, topic: str, stream: str, change: Callable[[Catalog], Catalog]) -> Catalog:
    """Change the catalog, and return it. It is created if the topic has no partitions yet."""
    result: list[Catalog] = []

    def changed(content: bytes | None) -> Fields | None:
        # The document to change is the one that was read: if there is one by now, a compare-and-set is refused, and
        # this is called again with it.
        if content is None:
            content = _created_meanwhile(files, topic)
        before = catalog = Catalog(stream, {}) if content is None else _parse(files, topic, content)
        check_stream(before, stream, f"{files.name}/{topic}")
        if not catalog.notes_records:
            partitions = {number: files.partition(topic, number, catalog.owner(number)) for number in catalog.shards}
            written = (number for number, partition in partitions.items() if partition.has_records())
            catalog = replace(catalog, written=frozenset(written), notes_records=True)
        result[:] = [change(catalog)]
        return None if result[0] == before else catalog_fields(result[0])

    files.update(_document(topic), changed)
    return result[0]
