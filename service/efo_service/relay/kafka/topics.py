"""The topics that the Kafka sink needs: looked up, created if that is allowed, and refused if they are unsuitable.

Blocking: runs in a thread.
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined] # not in its stubs

from efo_service.relay.kafka.errors import KafkaRefusedError, KafkaUnavailableError, said, translated

MAX_MESSAGE_BYTES: Final = 12 * 1024 * 1024
"""`max.message.bytes` of the topics that efo creates. The largest record of Kinesis has 10 MiB plus headers."""
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588
"""Kafka's default, used if efo may not read the topic's settings."""
_PROPAGATION_SECONDS: Final = 15.0
"""Seconds until all brokers of a cluster have started and know a new topic."""
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """An existing topic. `max_message_bytes`: the maximum size of a batch of its records."""

    name: str
    partitions: int
    max_message_bytes: int


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A required topic. `create`: create it if it is missing. `replication`: -1 for the cluster's default."""

    name: str
    partitions: int
    replication: int
    create: bool
    config: dict[str, str] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        """Whether the topic keeps the last record of each key forever."""
        return self.config.get("cleanup.policy") == "compact"


def checkpoint_topic(name: str, partitions: int, replication: int, *, create: bool) -> TopicSpec:
    """Return the checkpoint topic. It is compacted often, since it is read whenever a shard is opened."""
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(16 * 1024 * 1024),
        "segment.ms": str(10 * 60 * 1000),
        "min.cleanable.dirty.ratio": "0.1",
    }
    return TopicSpec(name, partitions, replication, create, config)


def records_topic(name: str, partitions: int, replication: int, *, create: bool) -> TopicSpec:
    """Return a topic of records."""
    return TopicSpec(name, partitions, replication, create, {"max.message.bytes": str(MAX_MESSAGE_BYTES)})


def ensure_topic(admin: AdminClient, spec: TopicSpec, timeout: float) -> KafkaTopic:
    """Return the topic; create it if it is missing.

    Raises KafkaRefusedError if it is missing and may not be created, or has an unsuitable cleanup policy;
    KafkaUnavailableError.
    """
    found = find_topic(admin, spec, timeout)
    if found is not None:
        return found
    _create(admin, spec, timeout)
    return _checked(admin, spec, _wait_for(admin, spec.name, timeout), timeout)


def find_topic(admin: AdminClient, spec: TopicSpec, timeout: float) -> KafkaTopic | None:
    """Return the topic; None if it is missing and may be created. Raises as `ensure_topic` does. Creates nothing."""
    partitions = _partitions(admin, spec.name, timeout)
    if partitions is not None:
        return _checked(admin, spec, partitions, timeout)
    if not spec.create:
        raise KafkaRefusedError(
            f"Kafka has no topic {spec.name!r}: create it, or set [relay.kafka] create_topics = true"
        )
    return None


def _checked(admin: AdminClient, spec: TopicSpec, partitions: int, timeout: float) -> KafkaTopic:
    """Return an existing topic. Raises KafkaRefusedError if its cleanup policy is unsuitable."""
    config = _config(admin, spec.name, timeout)
    policy = config.get("cleanup.policy", "compact" if spec.is_compacted else "delete")
    if spec.is_compacted and policy != "compact":
        raise KafkaRefusedError(
            f"the topic {spec.name!r} has cleanup.policy={policy}, so positions of idle shards would expire: set it to"
            " compact, or choose another [relay.kafka] checkpoint_topic"
        )
    if not spec.is_compacted and policy != "delete":
        raise KafkaRefusedError(
            f"the topic {spec.name!r} has cleanup.policy={policy}, so it would keep only one record of each partition"
            " key: set it to delete, or choose another topic"
        )
    return KafkaTopic(spec.name, partitions, int(config.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)))


def _partitions(admin: AdminClient, name: str, timeout: float) -> int | None:
    """Return the number of a topic's partitions; None if it does not exist."""
    try:
        found = _result(admin.describe_topics(TopicCollection([name]))[name], f"look up the topic {name!r}", timeout)
    except _MissingError:
        return None
    return len(found.partitions)


def _create(admin: AdminClient, spec: TopicSpec, timeout: float) -> None:
    new = NewTopic(spec.name, spec.partitions, spec.replication, config=spec.config)
    deadline = monotonic() + _PROPAGATION_SECONDS
    while True:
        try:
            with suppress(_ExistsError):  # another worker has created it
                _result(admin.create_topics([new])[spec.name], f"create the topic {spec.name!r}", timeout)
        except _TooFewBrokersError as error:  # in a starting cluster, some brokers start later
            if monotonic() > deadline:
                raise KafkaRefusedError(str(error)) from error
            sleep(_POLL_SECONDS)
        else:
            return


def _wait_for(admin: AdminClient, name: str, timeout: float) -> int:
    deadline = monotonic() + _PROPAGATION_SECONDS
    while (partitions := _partitions(admin, name, timeout)) is None:
        if monotonic() > deadline:
            raise KafkaUnavailableError(
                f"Kafka created the topic {name!r}, but does not know it {_PROPAGATION_SECONDS:g} s later"
            )
        sleep(_POLL_SECONDS)
    return partitions


def _config(admin: AdminClient, name: str, timeout: float) -> dict[str, str]:
    """Return a topic's settings; empty if efo may not read them."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    deadline = monotonic() + _PROPAGATION_SECONDS
    while True:
        try:
            entries = _result(admin.describe_configs([resource])[resource], f"read the settings of {name!r}", timeout)
            break
        except KafkaRefusedError:
            return {}
        except _MissingError as error:  # the responding broker does not know the topic yet
            if monotonic() > deadline:
                raise KafkaUnavailableError(
                    f"Kafka has the topic {name!r}, but does not know its settings {_PROPAGATION_SECONDS:g} s later"
                ) from error
        sleep(_POLL_SECONDS)
    return {key: entry.value for key, entry in entries.items() if entry.value is not None}


class _MissingError(Exception):
    """The topic does not exist."""


class _ExistsError(Exception):
    """The topic already exists."""


class _TooFewBrokersError(Exception):
    """The cluster has fewer brokers than the topic's replication factor."""


def _result(future: Any, action: str, timeout: float) -> Any:
    try:
        return future.result(timeout)
    except FutureTimeoutError as error:
        raise KafkaUnavailableError(f"Kafka: cannot {action}: no response within {timeout:g} s") from error
    except KafkaException as error:
        match error.args[0].code():
            case KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _MissingError from error
            case KafkaError.TOPIC_ALREADY_EXISTS:
                raise _ExistsError from error
            case KafkaError.INVALID_REPLICATION_FACTOR:
                raise _TooFewBrokersError(f"Kafka: cannot {action}: {said(error.args[0])}") from error
            case KafkaError.POLICY_VIOLATION | KafkaError.INVALID_PARTITIONS:
                raise KafkaRefusedError(f"Kafka: cannot {action}: {said(error.args[0])}") from error
        raise translated(error.args[0], action) from error
