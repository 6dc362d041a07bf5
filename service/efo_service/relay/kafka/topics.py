"""The topics that the Kafka sink needs: looked up, created where that is allowed, refused where they do not fit.

Blocking: made to run in a thread.
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined] # not in its stubs

from efo_service.relay.kafka.errors import KafkaRefusedError, KafkaUnavailableError, translated

LARGEST: Final = 12 * 1024 * 1024
"""`max.message.bytes` of topics that we create: the largest record of Kinesis is 10 MiB, and has headers besides."""
DEFAULT_LARGEST: Final = 1_048_588
"""Kafka's own; taken where the cluster does not let us ask."""
_APPEARS: Final = 15.0
"""Seconds until all brokers of a cluster are there, and know a topic that was created."""
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that is there. `largest`: how many bytes a batch of its records may have."""

    name: str
    partitions: int
    largest: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A topic as it is to be. `create`: make it if it is missing. `replication`: -1 for the cluster's default."""

    name: str
    partitions: int
    replication: int
    create: bool
    config: dict[str, str] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        """Whether it keeps the last record of each key, for ever."""
        return self.config.get("cleanup.policy") == "compact"


def positions_topic(name: str, partitions: int, replication: int, *, create: bool) -> Wanted:
    """Return the topic of positions: compacted, and compacted soon, since it is read when a shard is opened."""
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(16 * 1024 * 1024),
        "segment.ms": str(10 * 60 * 1000),
        "min.cleanable.dirty.ratio": "0.1",
    }
    return Wanted(name, partitions, replication, create, config)


def records_topic(name: str, partitions: int, replication: int, *, create: bool) -> Wanted:
    """Return a topic of records."""
    return Wanted(name, partitions, replication, create, {"max.message.bytes": str(LARGEST)})


def ensure_topic(admin: AdminClient, wanted: Wanted, timeout: float) -> Topic:
    """Return the topic, created if need be.

    Raises KafkaRefusedError if it is missing and may not be created, or is not what is wanted; KafkaUnavailableError.
    """
    partitions = _partitions(admin, wanted.name, timeout)
    if partitions is None:
        if not wanted.create:
            raise KafkaRefusedError(
                f"Kafka has no topic {wanted.name!r}: create it, or set [relay.kafka] create_topics = true"
            )
        _create(admin, wanted, timeout)
        partitions = _wait_for(admin, wanted.name, timeout)
    config = _config(admin, wanted.name, timeout)
    policy = config.get("cleanup.policy", "compact" if wanted.is_compacted else "delete")
    if wanted.is_compacted and policy != "compact":
        raise KafkaRefusedError(
            f"the topic {wanted.name!r} has cleanup.policy={policy}: it would forget the positions of shards that are"
            " quiet for long. Set it to compact, or name another [relay.kafka] checkpoint_topic"
        )
    if not wanted.is_compacted and policy != "delete":
        raise KafkaRefusedError(
            f"the topic {wanted.name!r} has cleanup.policy={policy}: it keeps one record of each partition key, and the"
            " others would be lost. Set it to delete, or name another topic"
        )
    return Topic(wanted.name, partitions, int(config.get("max.message.bytes", DEFAULT_LARGEST)))


def _partitions(admin: AdminClient, name: str, timeout: float) -> int | None:
    """Return how many partitions a topic has; None if it does not exist."""
    try:
        found = _result(admin.describe_topics(TopicCollection([name]))[name], f"look up the topic {name!r}", timeout)
    except _MissingError:
        return None
    return len(found.partitions)


def _create(admin: AdminClient, wanted: Wanted, timeout: float) -> None:
    new = NewTopic(wanted.name, wanted.partitions, wanted.replication, config=wanted.config)
    deadline = monotonic() + _APPEARS
    while True:
        try:
            with suppress(_ExistsError):  # another worker was quicker
                _result(admin.create_topics([new])[wanted.name], f"create the topic {wanted.name!r}", timeout)
        except _TooFewBrokersError as error:  # a cluster that starts has some of its brokers first
            if monotonic() > deadline:
                raise KafkaRefusedError(str(error)) from error
            sleep(_LOOK_SECONDS)
        else:
            return


def _wait_for(admin: AdminClient, name: str, timeout: float) -> int:
    deadline = monotonic() + _APPEARS
    while (partitions := _partitions(admin, name, timeout)) is None:
        if monotonic() > deadline:
            raise KafkaUnavailableError(f"Kafka created the topic {name!r}, and does not know it {_APPEARS:g} s later")
        sleep(_LOOK_SECONDS)
    return partitions


def _config(admin: AdminClient, name: str, timeout: float) -> dict[str, str]:
    """Return a topic's settings; none where we may not ask."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    deadline = monotonic() + _APPEARS
    while True:
        try:
            entries = _result(admin.describe_configs([resource])[resource], f"read the settings of {name!r}", timeout)
            break
        except KafkaRefusedError:
            return {}
        except _MissingError as error:  # another broker answers, which does not know it yet
            if monotonic() > deadline:
                raise KafkaUnavailableError(
                    f"Kafka has the topic {name!r}, and does not know its settings {_APPEARS:g} s later"
                ) from error
        sleep(_LOOK_SECONDS)
    return {key: entry.value for key, entry in entries.items() if entry.value is not None}


class _MissingError(Exception):
    """There is no such topic."""


class _ExistsError(Exception):
    """There is such a topic already."""


class _TooFewBrokersError(Exception):
    """There are not as many brokers as the topic is to have copies."""


def _result(future: Any, doing: str, timeout: float) -> Any:
    try:
        return future.result(timeout)
    except FutureTimeoutError as error:
        raise KafkaUnavailableError(f"Kafka: cannot {doing}: no answer within {timeout:g} s") from error
    except KafkaException as error:
        match error.args[0].code():
            case KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _MissingError from error
            case KafkaError.TOPIC_ALREADY_EXISTS:
                raise _ExistsError from error
            case KafkaError.INVALID_REPLICATION_FACTOR:
                raise _TooFewBrokersError(f"Kafka: cannot {doing}: {error.args[0].str()}") from error
            case KafkaError.POLICY_VIOLATION | KafkaError.INVALID_PARTITIONS:
                raise KafkaRefusedError(f"Kafka: cannot {doing}: {error.args[0].str()}") from error
        raise translated(error.args[0], doing) from error
