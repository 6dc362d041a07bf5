"""The first connection to a cluster. Blocking: runs in a thread."""

from __future__ import annotations

from time import monotonic
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from efo_service.relay.kafka.client import Config, ConnectionErrors
from efo_service.relay.kafka.errors import creation_error, translated

_POLL_SECONDS: Final = 1.0


def open_admin(config: Config, errors: ConnectionErrors) -> AdminClient:
    """Return a client of the cluster, which is not connected yet. `errors`: gets its connection errors.

    Raises KafkaRefusedError.
    """
    try:
        return AdminClient(config | {"error_cb": errors})
    except KafkaException as error:
        raise creation_error(error.args[0]) from error


def wait_for_brokers(admin: AdminClient, errors: ConnectionErrors, servers: str, seconds: float) -> int:
    """Wait until a broker responds; return the number of brokers.

    Rejected credentials are raised at once, since waiting does not help. Raises KafkaUnavailableError and
    KafkaRefusedError.
    """
    action = f"reach the brokers {servers} within {seconds:g} s"
    deadline = monotonic() + seconds
    while True:
        try:
            return len(admin.list_topics(timeout=min(_POLL_SECONDS, seconds)).brokers)
        except KafkaException as error:
            admin.poll(0)
            if errors.are_credentials_rejected or monotonic() >= deadline:
                raise errors.explain(translated(error.args[0], action), action) from error
