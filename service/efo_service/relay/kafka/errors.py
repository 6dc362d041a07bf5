"""What may go wrong with Kafka: the one seam between its client library and the sink's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from efo.errors import ConfigurationError
from efo_service.relay.errors import SinkError


class KafkaUnavailableError(SinkError):
    """The brokers do not answer, or not yet. Nothing is lost: what was not committed is written again."""

    retryable = True
    error_type = "kafka_unavailable"


class KafkaAbortedError(SinkError):
    """The transaction was aborted: none of its records is visible, and all of them are written again."""

    retryable = True
    error_type = "kafka_aborted"


class KafkaFencedError(SinkError):
    """Another worker has opened the shard since: this one may not write to it any more."""

    error_type = "kafka_fenced"


class KafkaFatalError(SinkError):
    """The producer cannot go on: its shard's lease is to be released."""

    error_type = "kafka_fatal"


class KafkaRefusedError(SinkError, ConfigurationError):
    """The cluster refuses what the settings ask for: the message says what to change."""

    error_type = "kafka_refused"


class KafkaCheckpointError(SinkError):
    """What stands in the topic of positions is not this shard's position; it is never guessed."""

    error_type = "kafka_checkpoint"


_FENCED: Final = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}  # noqa: SLF001 - its names
_CREDENTIALS: Final = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - so it is called
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError._SSL,  # noqa: SLF001 - so it is called
}
_PERMISSIONS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Describe and Write on the topics, and Read on the checkpoint topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on the group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Create and IdempotentWrite on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Describe and Write on the transactional ids <application>/*",
}


def translated(error: KafkaError, doing: str) -> SinkError:
    """Return our error for one of the client library."""
    said = f"Kafka: cannot {doing}: {error.str()}"
    code = error.code()
    if code in _FENCED:
        return KafkaFencedError(f"{said}. Another worker has opened this shard since; what it has is its to write")
    if code in _CREDENTIALS:
        return KafkaRefusedError(
            f"{said}. Check security_protocol, ca_file and the sasl_ settings of [relay.kafka], and the secrets in"
            " the environment"
        )
    if code in _PERMISSIONS:
        return KafkaRefusedError(f"{said}. The principal needs {_PERMISSIONS[code]}")
    if error.fatal() or code == KafkaError._FATAL:  # noqa: SLF001 - what `produce` says once another call was told
        return KafkaFatalError(said)
    if error.txn_requires_abort():
        return KafkaAbortedError(said)
    return KafkaUnavailableError(said)


def not_made(error: KafkaError) -> SinkError:
    """Return our error where the first client cannot be made: it has read its files, and talked to nobody yet.

    Of the first only: a file that is being replaced while the service runs is there again in a moment.
    """
    if error.code() == KafkaError._INVALID_ARG:  # noqa: SLF001 - so it is called
        return KafkaRefusedError(
            f"Kafka: cannot make a client: {error.str()}. Check ca_file, certificate_file and key_file of"
            " [relay.kafka], which are PEM, and the key's password"
        )
    return translated(error, "make a client")


@contextmanager
def kafka_errors(doing: str) -> Iterator[None]:
    """Translate the client library's exceptions."""
    try:
        yield
    except KafkaException as error:
        raise translated(error.args[0], doing) from error
