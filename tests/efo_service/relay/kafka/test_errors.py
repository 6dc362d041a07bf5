"""The translation of the client library's errors: which are retryable, which end the shard, which end the service."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from efo_service.exit_codes import Exit, code_of
from efo_service.relay.kafka.errors import (
    KafkaAbortedError,
    KafkaFatalError,
    KafkaFencedError,
    KafkaRefusedError,
    KafkaUnavailableError,
    creation_error,
    kafka_errors,
)
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.relay.kafka.sink import open_kafka

CASES = {
    "fenced": (KafkaError(KafkaError._FENCED, fatal=True), KafkaFencedError),
    "old epoch": (KafkaError(KafkaError.INVALID_PRODUCER_EPOCH), KafkaFencedError),
    "password": (KafkaError(KafkaError._AUTHENTICATION), KafkaRefusedError),
    "certificate": (KafkaError(KafkaError._SSL), KafkaRefusedError),
    "topic permission": (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), KafkaRefusedError),
    "transactional id permission": (KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), KafkaRefusedError),
    "fatal": (KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True), KafkaFatalError),
    "fatal, raised again": (KafkaError(KafkaError._FATAL), KafkaFatalError),
    "abortable": (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, txn_requires_abort=True), KafkaAbortedError),
    "time-out": (KafkaError(KafkaError._TIMED_OUT, retriable=True), KafkaUnavailableError),
    "no broker": (KafkaError(KafkaError._ALL_BROKERS_DOWN), KafkaUnavailableError),
}


@pytest.mark.parametrize(("error", "kind"), CASES.values(), ids=CASES)
def test_each_client_error_is_translated_and_names_the_action(error, kind):
    with pytest.raises(kind, match="Kafka: cannot do this: ") as caught, kafka_errors("do this"):
        raise KafkaException(error)
    assert type(caught.value) is kind
    assert caught.value.retryable == (kind in {KafkaAbortedError, KafkaUnavailableError})
    assert code_of(caught.value) == (Exit.CONFIGURATION if kind is KafkaRefusedError else Exit.UNAVAILABLE)


def test_a_missing_permission_is_named():
    refused = KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaRefusedError, match="Describe and Write on the transactional ids"), kafka_errors("open it"):
        raise refused


async def test_an_invalid_ca_file_is_a_configuration_error(tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    settings = KafkaOptions(security_protocol="ssl", ca_file=tmp_path / "ca.pem", connect_seconds=1)
    with pytest.raises(KafkaRefusedError, match=r"ssl\.ca\.location failed.*check ca_file") as caught:
        async with open_kafka(settings, application="a", stream="orders", topic="t"):
            pytest.fail("it opened")
    assert code_of(caught.value) == Exit.CONFIGURATION


def test_other_errors_at_the_creation_of_a_client_are_retryable():
    error = creation_error(KafkaError(KafkaError._CRIT_SYS_RESOURCE))
    assert type(error) is KafkaUnavailableError
    assert "cannot create a client" in str(error)
