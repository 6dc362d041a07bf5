"""Errors of the Kafka sink, and the translation of the client library's errors into them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from efo.errors import ConfigurationError
from efo_service.relay.errors import SinkError


class KafkaUnavailableError(SinkError):
    """The brokers do not respond, or not yet. No record is lost: those that were not committed are written again."""

    retryable = True
    error_type = "kafka_unavailable"


class KafkaAbortedError(SinkError):
    """The transaction was aborted. None of its records is visible, and all of them are written again."""

    retryable = True
    error_type = "kafka_aborted"


class KafkaFencedError(SinkError):
    """Another worker has opened the shard since. This one may not write any more."""

    error_type = "kafka_fenced"


class KafkaFatalError(SinkError):
    """The producer has failed for good. The shard's lease must be released."""

    error_type = "kafka_fatal"


class KafkaRefusedError(SinkError, ConfigurationError):
    """The cluster and the settings do not match. The message says what to change."""

    error_type = "kafka_refused"


class KafkaCheckpointError(SinkError):
    """The record in the checkpoint topic is not a position of this shard. The position is never guessed."""

    error_type = "kafka_checkpoint"


_QUOTES: Final = re.compile(r"[Ii]nvalid value|https?://|property \"")
"""Texts of the client library that may quote a setting, or the URL of tokens with its user."""
_FENCED: Final = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}  # noqa: SLF001 - part of its API
_CREDENTIALS: Final = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - part of its API
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError._SSL,  # noqa: SLF001 - part of its API
}
_PERMISSIONS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Describe and Write on the topics, and Read on the checkpoint topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on the group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Create and IdempotentWrite on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Describe and Write on the transactional ids <application>/*",
}


def said(error: KafkaError) -> str:
    """Return the text of an error of the client library; its name if it may quote a setting, or the URL of tokens."""
    text = str(error.str())
    return str(error.name()) if _QUOTES.search(text) else text


def translated(error: KafkaError, action: str) -> SinkError:
    """Return the SinkError for an error of the client library. `action`: what failed, such as "commit records"."""
    message = f"Kafka: cannot {action}: {said(error)}"
    code = error.code()
    if code in _FENCED:
        return KafkaFencedError(f"{message}; another worker has opened this shard since")
    if code in _CREDENTIALS:
        return KafkaRefusedError(
            f"{message}; check security_protocol, ca_file and the sasl_ settings of [relay.kafka], and the secrets in"
            " the environment"
        )
    if code in _PERMISSIONS:
        return KafkaRefusedError(f"{message}; the principal needs {_PERMISSIONS[code]}")
    if error.fatal() or code == KafkaError._FATAL:  # noqa: SLF001 - raised by `produce` after another call has failed
        return KafkaFatalError(message)
    if error.txn_requires_abort():
        return KafkaAbortedError(message)
    return KafkaUnavailableError(message)


def creation_error(error: KafkaError) -> SinkError:
    """Return the error for the first client if it cannot be created. It has read its files, but not connected yet.

    Only for the first client: while the service runs, a file may be missing briefly because it is being replaced.
    """
    if error.code() == KafkaError._INVALID_ARG:  # noqa: SLF001 - part of its API
        return KafkaRefusedError(
            f"Kafka: cannot create a client: {said(error)}; check ca_file, certificate_file and key_file of"
            " [relay.kafka], which must be PEM files, and the key's password"
        )
    return translated(error, "create a client")


@contextmanager
def kafka_errors(action: str) -> Iterator[None]:
    """Translate the client library's exceptions into SinkErrors. `action`: see `translated`."""
    try:
        yield
    except KafkaException as error:
        raise translated(error.args[0], action) from error
