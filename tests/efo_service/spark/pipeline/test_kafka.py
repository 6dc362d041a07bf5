"""Options of Spark's Kafka source, from the relay's Kafka options."""

from __future__ import annotations

import re

import pytest

from efo.errors import ConfigurationError
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.spark.pipeline.kafka import jars, reader_options


def options(topic: str = "orders", **settings) -> dict[str, str]:
    return reader_options(KafkaOptions(bootstrap_servers="b:9092", **settings), topic)


def test_only_committed_records_are_read():
    result = options()
    assert (result["kafka.bootstrap.servers"], result["subscribe"]) == ("b:9092", "orders")
    assert result["kafka.isolation.level"] == "read_committed"
    assert result["kafka.security.protocol"] == "PLAINTEXT"


def test_a_topic_per_shard_becomes_a_pattern():
    pattern = options("a.orders.{shard}")["subscribePattern"]
    assert re.fullmatch(pattern, "a.orders.shardId-000000000000")
    assert not re.fullmatch(pattern, "abordersxshardId-000000000000")
    assert not re.fullmatch(pattern, "a.orders.eu.shardId-000000000000")  # of the stream orders.eu
    assert not re.fullmatch(pattern, "a.orders.dead-letters")


def test_a_password_is_quoted_for_jaas():
    result = options(
        security_protocol="sasl_ssl",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="me",
        sasl_password='a"b\\',
        ca_file=__file__,
    )
    assert result["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="a\\"b\\\\";'
    )
    assert (result["kafka.security.protocol"], result["kafka.sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert result["kafka.ssl.truststore.location"] == __file__


@pytest.mark.parametrize(
    "settings",
    [
        {"security_protocol": "sasl_ssl", "sasl_mechanism": "AWS_MSK_IAM"},
        {"security_protocol": "ssl", "certificate_file": __file__, "key_file": __file__},
    ],
)
def test_security_settings_that_spark_cannot_take_over_are_rejected(settings):
    with pytest.raises(ConfigurationError, match="write your own Spark job"):
        options(**settings)


def test_jars_are_the_jars_of_a_directory(tmp_path):
    assert jars(None) == ()
    with pytest.raises(ConfigurationError, match=re.escape(f"no jar in {tmp_path}")):
        jars(tmp_path)
    (tmp_path / "b.jar").touch()
    (tmp_path / "a.jar").touch()
    assert jars(tmp_path) == (tmp_path / "a.jar", tmp_path / "b.jar")
