"""[pipeline]: settings that cannot work are refused when they are loaded, before Spark starts."""

from __future__ import annotations

import pytest

from efo.errors import ConfigurationError
from efo_service.config.loading import load

HEAD = '[kinesis]\nstream = "orders"\n[pipeline]\n'


@pytest.fixture
def load_text(tmp_path):
    def load_text(text: str):
        path = tmp_path / "efo.toml"
        path.write_text(HEAD + text)
        return load(path)

    return load_text


WRONG = {
    "no schema": ('decode = "json"', '3: [pipeline]: decode = "json" needs value_schema'),
    "unknown layer": ('unwrap = ["gzip", "lz4"]', "4: [pipeline] unwrap: expected 'gzip'"),
    "schema without a decoder": ('value_schema = "id bigint"', '3: [pipeline]: decode = "raw" takes no value_schema'),
    "schema is not Avro": (
        'decode = "avro"\nvalue_schema = "id bigint"',
        "3: [pipeline]: value_schema is not an Avro schema in JSON",
    ),
    "two record limits": (
        'max_records = 7\nsource_options = { maxoffsetspertrigger = "8" }',
        "3: [pipeline]: max_records and the source option maxOffsetsPerTrigger are the same limit",
    ),
    "empty output": ('output = ""', "4: [pipeline] output: String should have at least 1 character"),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_pipeline_is_refused_with_the_location_of_the_error(load_text, text, expected):
    with pytest.raises(ConfigurationError) as caught:
        load_text(text)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("path", "use [relay] directory"),
        ("subscribe", "use [relay] topic"),
        ("subscribePattern", "use [relay] topic"),
        ("assign", "use [relay] topic"),
        ("reader", "use [pipeline] reader"),
        ("READER", "use [pipeline] reader"),
        ("includeHeaders", "remove it"),
        ("kafka.bootstrap.servers", "use [relay.kafka] bootstrap_servers"),
        ("kafka.isolation.level", "remove it"),
    ],
)
def test_source_options_that_efo_sets_are_refused(load_text, option, instead):
    with pytest.raises(ConfigurationError) as caught:
        load_text(f'[pipeline.source_options]\n"{option}" = "true"')
    assert f"4: [pipeline] source_options: {option!r} is set by efo: {instead}" in str(caught.value)


@pytest.mark.parametrize(("option", "key"), [("path", "output"), ("checkpointLocation", "checkpoint")])
def test_sink_options_that_efo_sets_are_refused(load_text, option, key):
    with pytest.raises(ConfigurationError) as caught:
        load_text(f'[pipeline.sink_options]\n{option} = "x"')
    assert f"4: [pipeline] sink_options: {option!r} is set by efo: use [pipeline] {key} instead" in str(caught.value)
