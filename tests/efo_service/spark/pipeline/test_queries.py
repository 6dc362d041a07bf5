"""What a query's source is told; what the queries make is shown in test_pipeline.py."""

from __future__ import annotations

import pytest

from efo_service.config.settings import Settings
from efo_service.factories.pipeline import pipeline_settings
from efo_service.spark.pipeline.queries import source_options


def options(relay: dict | None = None, **pipeline) -> dict[str, str]:
    settings = Settings(kinesis={"stream": "orders"}, relay=relay or {}, pipeline=pipeline)
    return source_options(pipeline_settings(settings), "windows")


def test_the_log_is_read_from_its_start_under_the_querys_name() -> None:
    assert options(max_records=7) == {
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "7",
        "subscribe": "orders",
        "reader": "pipeline-windows",
    }


@pytest.mark.parametrize("source", ["efo", "kafka"])
@pytest.mark.parametrize("name", ["startingOffsets", "STARTINGOFFSETS"])
def test_what_the_settings_say_wins(source, name) -> None:
    own = {name: "latest", "failOnDataLoss": "false", "minPartitions": "4", "maxOffsetsPerTrigger": "9"}
    made = options(source=source, source_options=own)
    assert made == {
        **{other: value for other, value in options(source=source).items() if other != "startingOffsets"},
        **own,
    }


def test_spark_may_read_kafka_by_another_login_than_the_relays() -> None:
    kafka = {
        "security_protocol": "sasl_ssl",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "relay",
        "sasl_password": "hunter2",
    }
    made = options({"kafka": kafka}, source="kafka", source_options={"kafka.sasl.jaas.config": "another"})
    assert made["kafka.sasl.jaas.config"] == "another"
    assert made["kafka.sasl.mechanism"] == "PLAIN"
