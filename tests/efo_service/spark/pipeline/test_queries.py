"""The options of a query's source. test_pipeline.py checks the results of the queries."""

from __future__ import annotations

import pytest

from efo_service.config.settings import Settings
from efo_service.factories.pipeline import pipeline_settings
from efo_service.spark.pipeline.queries import source_options


def options(relay: dict | None = None, **pipeline) -> dict[str, str]:
    settings = Settings(kinesis={"stream": "orders"}, relay=relay or {}, pipeline=pipeline)
    return source_options(pipeline_settings(settings), "windows")


def test_the_log_is_read_from_its_start_with_a_reader_name_per_query() -> None:
    assert options(max_records=7) == {
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "7",
        "subscribe": "orders",
        "reader": "pipeline-windows",
    }


@pytest.mark.parametrize("source", ["efo", "kafka"])
@pytest.mark.parametrize("name", ["startingOffsets", "STARTINGOFFSETS"])
def test_source_options_override_the_defaults(source, name) -> None:
    overrides = {name: "latest", "failOnDataLoss": "false", "minPartitions": "4", "maxOffsetsPerTrigger": "9"}
    result = options(source=source, source_options=overrides)
    assert result == {
        **{other: value for other, value in options(source=source).items() if other != "startingOffsets"},
        **overrides,
    }


def test_spark_can_read_kafka_with_another_login_than_the_relay() -> None:
    kafka = {
        "security_protocol": "sasl_ssl",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "relay",
        "sasl_password": "hunter2",
    }
    result = options({"kafka": kafka}, source="kafka", source_options={"kafka.sasl.jaas.config": "another"})
    assert result["kafka.sasl.jaas.config"] == "another"
    assert result["kafka.sasl.mechanism"] == "PLAIN"


def test_the_options_of_an_object_store_reach_the_source() -> None:
    relay = {"directory": "s3://logs/efo", "store_options": {"region": "eu-west-1"}}
    assert options(relay)["storeOptions"] == '{"region": "eu-west-1"}'
    assert "storeOptions" not in options({"directory": "s3://logs/efo"})
