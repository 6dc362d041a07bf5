from __future__ import annotations

import pytest

from efo_service.config.loading import load
from efo_service.config.rendering import resolved, to_toml
from efo_service.config.settings import Settings
from efo_service.factories.pipeline import DAY, pipeline_settings


def settings(pipeline: dict, **relay) -> Settings:
    return Settings(kinesis={"stream": "orders"}, relay=relay, pipeline=pipeline)


def test_the_defaults_write_raw_values_of_the_log_to_parquet() -> None:
    pipeline = pipeline_settings(settings({}))
    assert (pipeline.topic, pipeline.kafka, pipeline.jars, pipeline.reader) == ("orders", None, (), "pipeline")
    assert (pipeline.decoding.format, pipeline.deduplicate_seconds) == ("raw", 0)
    assert (pipeline.sink_format, pipeline.table, pipeline.available_now) == ("parquet", None, False)


def test_settings_reach_the_pipeline() -> None:
    pipeline = pipeline_settings(
        settings(
            {
                "decode": "json",
                "value_schema": "id bigint",
                "unwrap": ["gzip", "glue"],
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
    assert pipeline.decoding.unwrap == ("gzip", "glue")
    assert (pipeline.topic, pipeline.decoding.schema, pipeline.sink_format) == ("other", "id bigint", "delta")
    assert (pipeline.sink_options, pipeline.source_options) == ({"mergeSchema": "true"}, {"failOnDataLoss": "false"})
    assert pipeline.spark_options == {"spark.sql.extensions": "x.Y"}
    assert (pipeline.table, pipeline.max_records, pipeline.deduplicate_seconds) == ("lake.orders", 7, 60)
    assert pipeline.available_now


@pytest.mark.parametrize(
    ("source", "delivery", "seconds"),
    [("kafka", "at_least_once", DAY), ("kafka", "exactly_once", 0), ("efo", "at_least_once", 0)],
)
def test_by_default_only_records_of_an_at_least_once_relay_are_deduplicated(source, delivery, seconds) -> None:
    pipeline = pipeline_settings(settings({"source": source}, kafka={"delivery": delivery}))
    assert pipeline.deduplicate_seconds == seconds
    assert (pipeline.kafka is None) == (source == "efo")
    assert pipeline_settings(settings({"deduplicate_seconds": 5})).deduplicate_seconds == 5


def test_older_schemas_reach_the_decoding() -> None:
    avro = {"decode": "avro", "value_schema": '"long"', "older_value_schemas": ['"int"']}
    assert pipeline_settings(settings(avro)).decoding.older == ('"int"',)


def test_option_names_with_dots_are_quoted_in_toml() -> None:
    text = to_toml(resolved(settings({"spark_options": {"spark.jars.packages": "a:b:1"}})))
    assert '[pipeline.spark_options]\n"spark.jars.packages" = "a:b:1"\n' in text


@pytest.mark.parametrize(
    "location",
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
def test_output_and_checkpoint_are_paths_or_uris(location, tmp_path) -> None:
    file = tmp_path / "efo.toml"
    file.write_text(
        f'[kinesis]\nstream = "orders"\n[pipeline]\noutput = "{location}"\ncheckpoint = "{location}-state/"\n'
    )
    loaded = load(file)
    location = location if ":" in location else str(tmp_path / location)
    assert resolved(loaded)["pipeline"]["output"] == location
    pipeline = pipeline_settings(loaded)
    assert pipeline.output_of("records") == f"{location}/records"
    assert pipeline.checkpoint_of("records") == f"{location}-state/records"


def test_a_location_that_ends_with_a_slash_gets_no_second_one() -> None:
    pipeline = pipeline_settings(settings({"output": "s3a://lake/", "checkpoint": "/"}))
    assert (pipeline.output_of("windows"), pipeline.checkpoint_of("windows")) == ("s3a://lake/windows", "/windows")
