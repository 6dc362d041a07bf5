from __future__ import annotations

import pytest

from efo_service.config.loading import load
from efo_service.config.rendering import resolved, to_toml
from efo_service.config.settings import Settings
from efo_service.factories.pipeline import DAY, pipeline_settings


def settings(pipeline: dict, **relay) -> Settings:
    return Settings(kinesis={"stream": "orders"}, relay=relay, pipeline=pipeline)


def test_the_defaults_are_the_log_raw_into_parquet() -> None:
    made = pipeline_settings(settings({}))
    assert (made.topic, made.kafka, made.jars, made.reader) == ("orders", None, (), "pipeline")
    assert (made.decoding.format, made.deduplicate_seconds) == ("raw", 0)
    assert (made.sink_format, made.table, made.available_now) == ("parquet", None, False)


def test_what_is_said_arrives() -> None:
    made = pipeline_settings(
        settings(
            {
                "decode": "json",
                "value_schema": "id bigint",
                "sink_format": "delta",
                "sink_options": {"mergeSchema": "true"},
                "source_options": {"failOnDataLoss": "false"},
                "spark_options": {"spark.sql.extensions": "x.Y"},
                "table": "lake.orders",
                "max_records": 7,
                "deduplicate_seconds": 60,
            },
            topic="other",
        ),
        available_now=True,
    )
    assert (made.topic, made.decoding.schema, made.sink_format) == ("other", "id bigint", "delta")
    assert (made.sink_options, made.source_options) == ({"mergeSchema": "true"}, {"failOnDataLoss": "false"})
    assert made.spark_options == {"spark.sql.extensions": "x.Y"}
    assert (made.table, made.max_records, made.deduplicate_seconds) == ("lake.orders", 7, 60)
    assert made.available_now


@pytest.mark.parametrize(
    ("source", "delivery", "seconds"),
    [("kafka", "at_least_once", DAY), ("kafka", "exactly_once", 0), ("efo", "at_least_once", 0)],
)
def test_only_what_an_at_least_once_relay_wrote_is_deduplicated(source, delivery, seconds) -> None:
    made = pipeline_settings(settings({"source": source}, kafka={"delivery": delivery}))
    assert made.deduplicate_seconds == seconds
    assert (made.kafka is None) == (source == "efo")
    assert pipeline_settings(settings({"deduplicate_seconds": 5})).deduplicate_seconds == 5


def test_options_of_others_have_dots_in_their_names() -> None:
    text = to_toml(resolved(settings({"spark_options": {"spark.jars.packages": "a:b:1"}})))
    assert '[pipeline.spark_options]\n"spark.jars.packages" = "a:b:1"\n' in text


@pytest.mark.parametrize(
    "place",
    [
        "s3a://lake/orders",
        "hdfs://names:8020/a",
        "gs://lake/a",
        "abfss://c@a.dfs.core.windows.net/a",
        "file:/a b",
        "file:///a",
        "/srv/a",
        "var/a",
        "../a",
        "~/a",
    ],
)
def test_a_place_of_spark_is_a_path_or_a_uri(place, tmp_path) -> None:
    file = tmp_path / "efo.toml"
    file.write_text(f'[kinesis]\nstream = "orders"\n[pipeline]\noutput = "{place}"\ncheckpoint = "{place}-state/"\n')
    loaded = load(file)
    assert resolved(loaded)["pipeline"]["output"] == place
    made = pipeline_settings(loaded)
    assert made.output_of("records") == f"{place}/records"
    assert made.checkpoint_of("records") == f"{place}-state/records"


def test_a_root_has_one_slash() -> None:
    made = pipeline_settings(settings({"output": "s3a://lake/", "checkpoint": "/"}))
    assert (made.output_of("windows"), made.checkpoint_of("windows")) == ("s3a://lake/windows", "/windows")
