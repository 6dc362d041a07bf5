"""What Spark's Kafka source is told, from the relay's settings."""

from __future__ import annotations

import re

import pytest

from efo.errors import ConfigurationError
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.spark.pipeline.kafka import jars, reader_options


def options(topic: str = "orders", **settings) -> dict[str, str]:
    return reader_options(KafkaOptions(bootstrap_servers="b:9092", **settings), topic)


def test_only_what_is_committed_is_read():
    found = options()
    assert (found["kafka.bootstrap.servers"], found["subscribe"]) == ("b:9092", "orders")
    assert found["kafka.isolation.level"] == "read_committed"
    assert found["kafka.security.protocol"] == "PLAINTEXT"


def test_a_topic_per_shard_is_a_pattern():
    pattern = options("a.orders.{shard}")["subscribePattern"]
    assert re.fullmatch(pattern, "a.orders.shardId-000000000000")
    assert not re.fullmatch(pattern, "abordersxshardId-000000000000")
    assert not re.fullmatch(pattern, "a.orders.eu.shardId-000000000000")  # of the stream orders.eu
    assert not re.fullmatch(pattern, "a.orders.dead-letters")


def test_a_password_is_quoted_as_jaas_wants_it():
    found = options(
        security_protocol="sasl_ssl",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="me",
        sasl_password='a"b\\',
        ca_file=__file__,
    )
    assert found["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="a\\"b\\\\";'
    )
    assert (found["kafka.security.protocol"], found["kafka.sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert found["kafka.ssl.truststore.location"] == __file__


@pytest.mark.parametrize(
    "settings",
    [
        {"security_protocol": "sasl_ssl", "sasl_mechanism": "AWS_MSK_IAM"},
        {"security_protocol": "ssl", "certificate_file": __file__, "key_file": __file__},
    ],
)
def test_what_spark_cannot_be_told_so_is_refused(settings):
    with pytest.raises(ConfigurationError, match=r"in a job of your own"):
        options(**settings)


def test_jars_of_a_directory(tmp_path):
    assert jars(None) == ()
    with pytest.raises(ConfigurationError, match=re.escape(f"there is no jar in {tmp_path}")):
        jars(tmp_path)
    (tmp_path / "b.jar").touch()
    (tmp_path / "a.jar").touch()
    assert jars(tmp_path) == (tmp_path / "a.jar", tmp_path / "b.jar")
